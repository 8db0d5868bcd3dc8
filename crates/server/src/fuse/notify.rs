//! What the kernel is told to forget.
//!
//! It may keep names for [`KEEP_S`], and pages: long enough for whoever asks
//! again at once, and the bound on what no notice tells of. Everything else
//! that changes is told before the call that changes it returns.

use super::Fuse;
use super::abi::{ForgetEntry, ForgetInode, OutHeader};
use base::Node;
use zerocopy::IntoBytes;

/// How long the kernel keeps what it has been told, seconds.
pub const KEEP_S: u64 = 1;

const INODE: i32 = 2;
const ENTRY: i32 = 3;

impl Fuse {
    /// The message that makes the kernel forget a node's attributes and pages, or a name in it.
    pub fn notice(&self, node: Node, name: Option<&[u8]>) -> Vec<u8> {
        let number = self.number(node);
        let (code, body) = match name {
            // From byte 0, to the end.
            None => (INODE, ForgetInode { node: number, offset: 0, len: 0 }.as_bytes().to_vec()),
            Some(name) => {
                let mut body = ForgetEntry { node: number, name_len: name.len() as u32, flags: 0 }.as_bytes().to_vec();
                body.extend_from_slice(name);
                body.push(0);
                (ENTRY, body)
            }
        };
        let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error: code, unique: 0 };
        [header.as_bytes(), &body].concat()
    }
}
