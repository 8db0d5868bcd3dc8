//! What the kernel is told to forget.
//!
//! It may keep attributes for [`KEEP_S`], names for [`KEEP_NAMES_S`], and pages. What
//! changes is told before the call that changes it returns. The times are the bounds on what
//! no notice tells of (`engine::process::served`): of names that is more.

use super::Fuse;
use super::abi::{ForgetEntry, ForgetInode, OutHeader};
use base::Node;
use zerocopy::IntoBytes;

/// How long the kernel keeps attributes, seconds.
pub const KEEP_S: u64 = 60;
/// How long it keeps names, and that there is none, seconds.
pub const KEEP_NAMES_S: u64 = 1;

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
