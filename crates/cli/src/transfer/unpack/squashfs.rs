//! squashfs images. Names of one file (hard links) become files of their own, and extended attributes stay behind: what
//! reads such images tells neither.

use super::sink::Sink;
use super::{Member, What};
use crate::failure::{Failure, Result};
use backhand::{FilesystemReader, InnerNode};
use base::Kind;
use std::io::{BufRead, Seek, empty};
use std::os::unix::ffi::OsStrExt;

/// Puts all that is in the image into ours.
pub fn read(sink: &mut Sink, input: impl BufRead + Seek + Send) -> Result<()> {
    let shown = sink.shown.clone();
    let squashfs = FilesystemReader::from_reader(input)
        .map_err(|_| Failure::new(format!("{shown}: broken off, or no squashfs image of version 4.0 by gzip, xz or zstd")))?;
    for node in squashfs.files() {
        let mode = node.header.permissions & 0o7777;
        let owner = Some((node.header.uid, node.header.gid));
        let mtime = Some(i64::from(node.header.mtime) * 1_000_000_000);
        let what = match &node.inner {
            InnerNode::Dir(_) => What::Directory,
            InnerNode::File(_) => What::Regular,
            InnerNode::Symlink(link) => What::Symlink(link.link.as_os_str().as_bytes()),
            InnerNode::CharacterDevice(device) => What::Special(Kind::CharDevice, device.device_number),
            InnerNode::BlockDevice(device) => What::Special(Kind::BlockDevice, device.device_number),
            InnerNode::NamedPipe => What::Special(Kind::Fifo, 0),
            InnerNode::Socket => What::Special(Kind::Socket, 0),
        };
        let member = Member { path: node.fullpath.as_os_str().as_bytes(), what, mode, owner, mtime, xattrs: Vec::new() };
        match &node.inner {
            InnerNode::File(file) => sink.add(&member, &mut squashfs.file(file).reader())?,
            _ => sink.add(&member, &mut empty())?,
        }
    }
    Ok(())
}
