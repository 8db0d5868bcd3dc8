//! Owner, mode, extended attributes, times: those that programs set here are below as they are here.

use crate::below::{ATTRIBUTES_MAX, Dir, join};
use crate::plan::{Noted, if_there, image};
use crate::{Failure, Result, Work};
use base::{Cx, Kind, Node};
use cache::Cache;
use cache::touch::Set;
use engine::lower::bits;
use pm::{Errno, UserSlice};
use std::collections::{BTreeMap, BTreeSet};

/// Set-id bits.
const SET_ID: u16 = 0o6000;

/// Their names and values.
pub type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a round changes of a file.
#[derive(Debug, Default)]
pub struct Changed {
    /// Attributes that were set.
    pub set: Set,
    /// Extended ones that were set or removed.
    pub extended: BTreeSet<Vec<u8>>,
    /// All of them.
    pub is_new: bool,
    /// They were.
    pub has_contents: bool,
    /// Its time of change, as it is noted: a program may have changed it since.
    pub mtime: Option<i64>,
    /// And another program has changed them too.
    pub is_merged: bool,
}

impl Changed {
    /// What the notes of a node say.
    pub fn by(noted: &Noted) -> Changed {
        Changed { set: noted.set, extended: noted.extended.clone(), is_new: noted.is_new, ..Changed::default() }
    }

    fn sets(&self, one: Set) -> bool {
        self.is_new || self.set.has(one)
    }
}

impl Work<'_> {
    /// Gives what is called `name` all attributes of the node; whether that is still here.
    pub fn set_all_attributes(&mut self, dir: &Dir, name: &[u8], node: Node) -> Result<bool> {
        self.set_attributes((dir, name), node, &Changed { is_new: true, ..Changed::default() })
    }

    /// Gives what is called `name` the attributes of the node that were set, and no others; whether that is still here.
    pub fn set_attributes(&mut self, (dir, name): (&Dir, &[u8]), node: Node, changed: &Changed) -> Result<bool> {
        let Some(attr) = if_there(self.cache.fs().attr(&self.cx, node))? else { return Ok(false) };
        let Some(there) = dir.stat(name)? else { return Err(Failure::new(join(&dir.path, name), Errno::ESTALE)) };
        let uid = (changed.sets(Set::UID) && there.attr.uid != attr.uid).then_some(attr.uid);
        let gid = (changed.sets(Set::GID) && there.attr.gid != attr.gid).then_some(attr.gid);
        if uid.is_some() || gid.is_some() {
            dir.set_owner(name, uid, gid)?;
        }
        let mut mode = None;
        if attr.kind != Kind::Symlink {
            match self.set_extended(dir, name, node, changed) {
                Err(_) if self.is_gone(node)? => return Ok(false),
                set => set?,
            }
            // A write and a change of owner take set-id bits away here.
            let is_owner = changed.set.has(Set::UID.with(Set::GID).with(Set::RIGHTS));
            let was = there.attr.mode;
            let wanted = match changed.sets(Set::MODE) {
                true => attr.mode,
                false if changed.has_contents || is_owner => was & (!SET_ID | attr.mode),
                false => was,
            };
            if there.attr.mode != wanted || (uid.is_some() || gid.is_some()) && wanted & SET_ID != 0 {
                mode = Some(wanted);
            }
        }
        let atime = (changed.sets(Set::ATIME) && attr.atime != attr.mtime || changed.set.has(Set::ATIME)).then_some(attr.atime);
        // Where another program has written too, the file has changed later than it did here.
        let is_timed = changed.sets(Set::MTIME) || changed.has_contents && !changed.is_merged;
        let mtime = is_timed.then_some(changed.mtime.unwrap_or(attr.mtime));
        if mode.is_some() || atime.is_some() || mtime.is_some() {
            dir.set_last(name, mode, atime, mtime)?;
        }
        Ok(true)
    }

    /// Sets or removes the extended attributes that were set or removed here.
    fn set_extended(&mut self, dir: &Dir, name: &[u8], node: Node, changed: &Changed) -> Result<()> {
        let is_known = |known: engine::lower::Known| known.state & bits::XATTRS != 0;
        let has_any = if changed.is_new {
            self.cache.known_if(node).map_err(image)?.is_none_or(is_known)
        } else {
            !changed.extended.is_empty()
        };
        if !has_any {
            return Ok(());
        }
        let (here, there) = (extended_here(self.cache, &self.cx, node)?, dir.attributes(name)?);
        let names: BTreeSet<&Vec<u8>> = if changed.is_new {
            // Those of a kind that images do not have are not ours to remove.
            let removable = |name: &&Vec<u8>| name.starts_with(b"user.") || name.starts_with(b"trusted.");
            here.keys().chain(there.keys().filter(removable)).collect()
        } else {
            changed.extended.iter().collect()
        };
        for attribute in names {
            match (here.get(attribute), there.get(attribute)) {
                (Some(ours), theirs) if theirs != Some(ours) => dir.set_attribute(name, attribute, ours)?,
                (None, Some(_)) => dir.remove_attribute(name, attribute)?,
                _ => {}
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
