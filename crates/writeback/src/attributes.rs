//! Owner, mode, extended attributes, times: as they are here.

use crate::below::{ATTRIBUTES_MAX, Dir, join};
use crate::plan::{if_there, image};
use crate::{Failure, Result, Work};
use base::{Cx, Kind, Node};
use cache::Cache;
use engine::lower::bits;
use pm::{Errno, UserSlice};
use std::collections::BTreeMap;

/// Set-id bits.
const SET_ID: u16 = 0o6000;

/// Their names and values.
pub type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

impl Work<'_> {
    /// Gives what is called `name` the attributes that the node has; whether that is still here.
    pub fn set_attributes(&mut self, dir: &Dir, name: &[u8], node: Node) -> Result<bool> {
        let Some(attr) = if_there(self.cache.fs().attr(&self.cx, node))? else { return Ok(false) };
        let Some(there) = dir.stat(name)? else { return Err(Failure::new(join(&dir.path, name), Errno::ESTALE)) };
        let uid = (there.attr.uid != attr.uid).then_some(attr.uid);
        let gid = (there.attr.gid != attr.gid).then_some(attr.gid);
        if uid.is_some() || gid.is_some() {
            dir.set_owner(name, uid, gid)?;
        }
        let mut mode = None;
        if attr.kind != Kind::Symlink {
            match self.set_extended(dir, name, node) {
                Err(_) if self.is_gone(node)? => return Ok(false),
                set => set?,
            }
            // A change of owner takes set-id bits away.
            if there.attr.mode != attr.mode || (uid.is_some() || gid.is_some()) && attr.mode & SET_ID != 0 {
                mode = Some(attr.mode);
            }
        }
        let atime = (attr.atime != attr.mtime).then_some(attr.atime);
        dir.set_last(name, mode, atime, attr.mtime)?;
        Ok(true)
    }

    /// Extended attributes, if they are here.
    fn set_extended(&mut self, dir: &Dir, name: &[u8], node: Node) -> Result<()> {
        if self.cache.known_if(node).map_err(image)?.is_some_and(|known| known.state & bits::XATTRS == 0) {
            return Ok(());
        }
        let here = extended_here(self.cache, &self.cx, node)?;
        let there = dir.attributes(name)?;
        for (attribute, value) in &here {
            if there.get(attribute) != Some(value) {
                dir.set_attribute(name, attribute, value)?;
            }
        }
        // Those of a kind that images do not have are not ours to remove.
        for attribute in there.keys().filter(|name| name.starts_with(b"user.") || name.starts_with(b"trusted.")) {
            if !here.contains_key(attribute) {
                dir.remove_attribute(name, attribute)?;
            }
        }
        Ok(())
    }
}

/// Those that are here.
pub fn extended_here(cache: &Cache, cx: &Cx, node: Node) -> Result<Attributes> {
    let (fs, mut all) = (cache.fs(), Attributes::new());
    let mut names = vec![0u8; ATTRIBUTES_MAX];
    let len = fs.list_xattr(cx, node, UserSlice::from_mut(&mut names)).map_err(image)?;
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; ATTRIBUTES_MAX];
        let len = match fs.get_xattr(cx, node, name, UserSlice::from_mut(&mut value)) {
            // Removed meanwhile, and noted for the next round.
            Err(base::Error::Posix(Errno::ENODATA)) => continue,
            len => len.map_err(image)?,
        };
        value.truncate(len);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}
