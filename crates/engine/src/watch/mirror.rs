//! Mirrors: what the kernel watches in place of what is watched in an image.
//!
//! ```text
//! <shared cache>.w/        one user's, 0700; its `flock` orders changes of names
//!     a/<node>             an empty file in place of a file
//!     a/<node>/<name>      an empty file or directory for each name in a watched directory
//!     b/<node>             the same; a rename of the watched one itself moves it from one side to the other
//!     x-<process>          being made, or on its way out
//! ```
//! The kernel tells of a change where it is made, by the directory and name through which it is made: so a name in a
//! watched directory and the mirror of what the name leads to are two files, and a change is made to both.

use crate::fs::Fs;
use core::ffi::CStr;
use pm::file::{self, File};
use pm::names;
use pm::{Errno, sys::abi};

/// Behind the path of the shared cache.
pub(crate) const SUFFIX: &[u8] = b".w";
/// Sides on which a mirror may lie.
const SIDES: [u8; 2] = *b"ab";
/// The path of the shared cache, the longest name, and what stands between.
const PATH: usize = 256 + 64 + 255 + 1;
/// Directories inside each other in it.
const DEPTH: u32 = 4;

/// A path of the kernel's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    text: [u8; PATH],
    len: usize,
}

impl Place {
    fn new(path: &[u8]) -> Place {
        let mut place = Place { text: [0; PATH], len: 0 };
        place.put(path);
        place
    }

    /// What does not fit is left away: nothing is called so then.
    fn put(&mut self, bytes: &[u8]) {
        // A NUL must be left at the end.
        let len = bytes.len().min(PATH - 1 - self.len);
        self.text[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }

    fn put_hex(&mut self, value: u64) {
        for digit in (0..16).rev() {
            self.put(&[b"0123456789abcdef"[(value >> (4 * digit)) as usize & 15]]);
        }
    }

    /// The path of a name in this directory; of no name, its own.
    pub(super) fn child(&self, name: &[u8]) -> Place {
        let mut place = *self;
        if !name.is_empty() {
            place.put(b"/");
            place.put(name);
        }
        place
    }

    /// The path itself.
    pub(super) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or_default()
    }

    pub(super) fn is_there(&self) -> bool {
        file::lstat(self.text().to_bytes_with_nul()).is_ok()
    }
}

/// The mirrors of an image.
#[derive(Debug)]
pub(super) struct Mirrors {
    root: Place,
}

/// The mirrors' lock; it ends with its file.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Mirrors {
    /// Where those of an image lie; `None` if its shared cache has no path of its own.
    pub(super) fn of(fs: &Fs) -> Option<Mirrors> {
        let path = fs.segment_path();
        if path.first() != Some(&b'/') || path.starts_with(b"/proc/") {
            return None;
        }
        let mut root = Place::new(path);
        root.put(SUFFIX);
        Some(Mirrors { root })
    }

    /// Whether they are there, and this user's: what another one has laid there could lead anywhere.
    pub(super) fn usable(&self) -> bool {
        let own = file::own_user();
        let is_right = |stat: file::Stat| stat.mode & 0o170077 == 0o040000 && stat.uid == own;
        file::lstat(self.root.text().to_bytes_with_nul()).is_ok_and(is_right)
    }

    /// Makes what is missing, and locks it, for who is sure to be there: a lock that is not to be had within a moment is
    /// gone without. `EOPNOTSUPP` if it is another user's.
    pub(super) fn made_and_locked(&self) -> Result<Lock, Errno> {
        make(&self.root, true).or_else(there_already)?;
        if !self.usable() {
            return Err(Errno::EOPNOTSUPP);
        }
        let directory = self.open()?;
        let lock = Lock(directory);
        lock.0.lock_soon();
        for side in SIDES {
            make(&self.root.child(&[side]), true).or_else(there_already)?;
        }
        Ok(lock)
    }

    /// The lock, if it is to be had within a moment. Of mirrors that were taken away meanwhile it is good for nothing, as
    /// they are.
    pub(super) fn lock(&self) -> Option<Lock> {
        let directory = self.open().ok()?;
        directory.lock_soon().then_some(Lock(directory))
    }

    fn open(&self) -> Result<File, Errno> {
        File::open(self.root.text().to_bytes_with_nul(), abi::O_RDONLY | abi::O_DIRECTORY | abi::O_NOFOLLOW, 0)
    }

    fn place(&self, side: u8, id: u64) -> Place {
        let mut place = self.root.child(&[side]);
        place.put(b"/");
        place.put_hex(id);
        place
    }

    /// On which side the mirror of a node lies, if there is one.
    pub(super) fn side(&self, id: u64) -> Option<u8> {
        SIDES.into_iter().find(|side| self.place(*side, id).is_there())
    }

    /// The mirror of a node, if there is one.
    pub(super) fn found(&self, id: u64) -> Option<Place> {
        self.side(id).map(|side| self.place(side, id))
    }

    /// Makes a call on a name in the mirror of a node, or on the mirror itself (no name), on the side on which it lies.
    pub(super) fn act(&self, id: u64, name: &[u8], call: impl Fn(&Place) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut done = Err(Errno::ENOENT);
        for side in SIDES {
            // Nearly always the first one: to look where it lies would be a call more.
            done = call(&self.place(side, id).child(name));
            if done != Err(Errno::ENOENT) {
                break;
            }
        }
        done
    }

    /// Where one is made, and where what leaves all watched directories goes.
    pub(super) fn aside(&self, process: u32) -> Place {
        let mut place = self.root.child(b"x-");
        place.put_hex(process.into());
        place
    }

    /// What was made aside is the mirror of a node from now on.
    pub(super) fn publish(&self, new: &Place, id: u64) -> Result<(), Errno> {
        names::rename(new.text(), self.place(SIDES[0], id).text(), false)
    }

    /// The node itself was renamed.
    pub(super) fn turn(&self, id: u64) {
        if let Some(side) = self.side(id) {
            let other = if side == SIDES[0] { SIDES[1] } else { SIDES[0] };
            let _ = names::rename(self.place(side, id).text(), self.place(other, id).text(), false);
        }
    }

    /// Takes all of them away, at once for whoever looks.
    pub(super) fn remove(&self) {
        let mut gone = self.root;
        gone.put(b"-");
        gone.put_hex(pm::clock::monotonic() as u64);
        if names::rename(self.root.text(), gone.text(), false).is_ok() {
            remove_tree(&gone);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

fn there_already(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::EEXIST { Ok(()) } else { Err(errno) }
}

/// Makes an empty file or directory.
pub(super) fn make(place: &Place, directory: bool) -> Result<(), Errno> {
    if directory { names::make_directory(place.text()) } else { names::make_file(place.text()) }
}

/// Removes this user's mirrors at a path: those of a shared cache that is gone, or that are on their way out.
pub(crate) fn remove_at(path: &[u8]) {
    let mirrors = Mirrors { root: Place::new(path) };
    if mirrors.usable() {
        remove_tree(&mirrors.root);
    }
}

/// Removes a file, or a directory with all that is in it.
pub(super) fn remove_tree(place: &Place) {
    let _ = remove(place);
}

/// The same; `ENOENT` if there is none.
pub(super) fn remove(place: &Place) -> Result<(), Errno> {
    remove_within(place, DEPTH)
}

fn remove_within(place: &Place, depth: u32) -> Result<(), Errno> {
    match names::remove(place.text(), false) {
        Err(Errno::EISDIR | Errno::EPERM) => {}
        done => return done,
    }
    let done = names::remove(place.text(), true);
    if done != Err(Errno::ENOTEMPTY) || depth == 0 {
        return done;
    }
    let flags = abi::O_RDONLY | abi::O_DIRECTORY | abi::O_NOFOLLOW;
    let directory = File::open(place.text().to_bytes_with_nul(), flags, 0)?;
    let mut entries = [0u8; 2048];
    while let Ok(Some(listed)) = directory.listed(&mut entries) {
        for entry in listed.flatten().map(|entry| entry.name.to_bytes()).filter(|name| !matches!(*name, b"." | b"..")) {
            let _ = remove_within(&place.child(entry), depth - 1);
        }
    }
    names::remove(place.text(), true)
}
