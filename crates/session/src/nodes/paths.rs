//! Where a node lies: its directory, its name, its path.

use super::super::damaged;
use super::{NAME_MAX, NAMED, NODES, SessionCache};
use base::{Errno, Error, Node, Result};
use core::sync::atomic::Ordering::*;

impl SessionCache {
    /// The directory of a node (its own for the root).
    pub fn parent(&self, node: Node) -> Result<Node> {
        let _guard = self.lock();
        let record = self.get(node)?;
        let index = if node.id as u32 == 0 { 0 } else { record.parent.load(Relaxed) };
        match self.record(index) {
            Some(parent) if parent.in_use() => Ok(self.node_of(index, parent)),
            _ => damaged(),
        }
    }

    /// The name of a node; `ENOENT` for the root and for what has lost its name.
    pub fn name(&self, node: Node, out: &mut [u8; NAME_MAX]) -> Result<usize> {
        let _guard = self.lock();
        let record = self.get(node)?;
        if record.state.load(Relaxed) != NAMED {
            return Err(Error::Posix(Errno::ENOENT));
        }
        Ok(self.name_into(record, out))
    }

    /// Writes the path of a node from the root of the mount on, `/`-separated with
    /// one in front (nothing for the root), behind `head`, and a slash and `name`
    /// if it is not empty; a NUL ends it. Its length without the NUL. `ENOENT`
    /// if a name on the way is gone.
    pub fn path(&self, head: &[u8], node: Node, name: &[u8], out: &mut [u8]) -> Result<usize> {
        let too_long = Error::Posix(Errno::ENAMETOOLONG);
        let _guard = self.lock();
        self.get(node)?;
        let mut index = node.id as u32;
        let mut at = out.len();
        let mut put = |bytes: &[u8]| -> Result<()> {
            let start = at.checked_sub(bytes.len()).ok_or(too_long)?;
            out[start..at].copy_from_slice(bytes);
            at = start;
            Ok(())
        };
        put(b"\0")?;
        if !name.is_empty() {
            put(name)?;
            put(b"/")?;
        }
        let mut levels = 0;
        while index != 0 {
            let Some(record) = self.record(index) else { return damaged() };
            if record.state.load(Relaxed) != NAMED {
                return Err(Error::Posix(Errno::ENOENT));
            }
            let mut own = [0u8; NAME_MAX];
            let len = self.name_into(record, &mut own);
            put(&own[..len])?;
            put(b"/")?;
            index = record.parent.load(Relaxed);
            levels += 1;
            if levels > NODES {
                return damaged();
            }
        }
        put(head)?;
        let len = out.len() - at;
        out.copy_within(at.., 0);
        Ok(len - 1)
    }
}
