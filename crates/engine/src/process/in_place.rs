//! An image whose file may not be written, used where it lies by the programs of a session.
//!
//! They attach a file of the session's that is laid out as the image is. All that the engine stores to lies in it: tables,
//! directories, inodes, index. Where the contents of files lie it has holes; over these the image itself is mapped, for
//! reading. A file's contents are stored to by who may change the image only, and nobody may through such an attachment; so
//! no store reaches the image, and any number of sessions, here and on other machines, read one file.
//!
//! ```text
//! 0 … limit     as in the image, contents left out; the superblock stands at 2048 alone, so that for who does not know of
//!               the image the file is none
//! limit         head: magic word, number of runs, the image's device, inode number, length and time of change; this file's
//!               own device and inode number, so that no copy of it is one
//! limit + 4096  the image's path, NUL-terminated
//! limit + 8192  runs: first block, number of blocks
//! ```
//! Behind the mappings is an open image with the kernel's shared lock: whoever wants to change it asks for the other one.

use super::attach::{self, AttachError};
use crate::fs::Fs;
use format::Superblock;
use format::layout::{BLOCK, Layout};
use pm::file::File;
#[cfg(any(test, feature = "check"))]
use pm::file::Stat;
use pm::sys::abi;
use pm::{Errno, Region};

/// How such a file begins behind the limit.
const MAGIC: u64 = u64::from_le_bytes(*b"in place");
/// Runs that there may be: each costs every program a mapping.
pub const RUNS_MAX: usize = 128;
/// Bytes behind the limit.
pub const TAIL: u64 = 2 * BLOCK + RUNS_MAX as u64 * 16;
/// Room for the image's path.
pub const PATH_MAX: usize = BLOCK as usize;
const HEAD_WORDS: usize = 8;

/// Where the superblock stands.
pub const SUPERBLOCK: u64 = 2048;

/// Blocks that lie side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first of them.
    pub block: u64,
    /// How many.
    pub len: u64,
}

/// What is written behind the limit of the file with the identity `session`; `None`: too many runs, or a path that is too long. The path has a NUL.
#[cfg(any(test, feature = "check"))]
pub fn tail(session: [u64; 2], image: &Stat, path: &[u8], runs: &[Run]) -> Option<heap::vec::Vec<u8>> {
    let mut bytes = heap::vec![0; TAIL as usize];
    let [dev, ino] = session;
    put(&mut bytes, &[MAGIC, runs.len() as u64, image.dev, image.ino, image.size, image.modified.cast_unsigned(), dev, ino]);
    bytes.get_mut(PATH_MAX..2 * PATH_MAX)?.get_mut(..path.len())?.copy_from_slice(path);
    for (run, at) in runs.iter().zip(bytes[2 * PATH_MAX..].chunks_exact_mut(16)) {
        put(at, &[run.block, run.len]);
    }
    (runs.len() <= RUNS_MAX && path.last() == Some(&0)).then_some(bytes)
}

#[cfg(any(test, feature = "check"))]
fn put(bytes: &mut [u8], words: &[u64]) {
    for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
        at.copy_from_slice(&word.to_le_bytes());
    }
}

fn words<const N: usize>(file: &File, at: u64) -> Result<[u64; N], Errno> {
    let mut bytes = [[0u8; 8]; N];
    match file.read_at(bytes.as_flattened_mut(), at)? {
        len if len == 8 * N => Ok(bytes.map(u64::from_le_bytes)),
        _ => Err(Errno::EINVAL),
    }
}

/// The superblock of a session's file.
pub(super) fn superblock(session: &File) -> Result<(Superblock, Layout), AttachError> {
    attach::superblock_among(session, [SUPERBLOCK; 2])
}

/// Whether the file at `path` (NUL-terminated) is a session's of this user, and the one that was made as such.
pub fn is_own(path: &[u8]) -> bool {
    let user = pm::file::own_user();
    let Ok((session, stat)) = File::open_checked(path, abi::O_RDONLY, |stat| stat.uid == user) else { return false };
    let Ok((_, layout)) = superblock(&session) else { return false };
    words::<HEAD_WORDS>(&session, layout.limit)
        .is_ok_and(|[magic, _, _, _, _, _, own @ ..]| magic == MAGIC && own == stat.identity())
}

/// The path of the image that the session's file at `path` (NUL-terminated) stands before, into `text`; its length.
pub fn path_behind(path: &[u8], text: &mut [u8; PATH_MAX]) -> Result<usize, AttachError> {
    let session = File::open(path, abi::O_RDONLY | abi::O_NONBLOCK, 0).map_err(AttachError::Open)?;
    let (_, layout) = superblock(&session)?;
    session.read_at(text, layout.limit + BLOCK).map_err(AttachError::Open)?;
    text.iter().position(|byte| *byte == 0).ok_or(AttachError::Damaged)
}

/// The image behind a session's file, opened to be read, and how many runs it has; `ESTALE` if it is not as it was.
pub(super) fn image(session: &File, layout: &Layout) -> Result<(File, u64), Errno> {
    let [magic, runs, dev, ino, size, modified, own @ ..] = words::<HEAD_WORDS>(session, layout.limit)?;
    let mut path = [0u8; PATH_MAX];
    session.read_at(&mut path, layout.limit + BLOCK)?;
    let len = path.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
    if magic != MAGIC || runs > RUNS_MAX as u64 || own != session.stat()?.identity() {
        return Err(Errno::EINVAL);
    }
    let image = File::open_known(&path[..=len], abi::O_RDONLY, [dev, ino])?;
    let stat = image.stat()?;
    if (stat.size, stat.modified.cast_unsigned()) != (size, modified) {
        return Err(Errno::ESTALE);
    }
    Ok((image, runs))
}

/// Lays the contents of the files over the holes of the session's file, which is mapped as `region`.
pub(super) fn lay_over(session: &File, layout: &Layout, region: &Region) -> Result<(), AttachError> {
    let (image, runs) = image(session, layout).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE => AttachError::Changed,
        errno => AttachError::Open(errno),
    })?;
    // Where the file system has no locks nobody else can ask for one either.
    if image.lock_shared_soon() == Err(Errno::EAGAIN) {
        return Err(AttachError::Locked);
    }
    for number in 0..runs {
        let [block, len] = words(session, layout.limit + 2 * BLOCK + 16 * number).map_err(AttachError::Open)?;
        let end = block.checked_add(len).filter(|end| block >= layout.first_block() && *end <= layout.block_count());
        end.ok_or(AttachError::Damaged)?;
        image.map_over(region, block * BLOCK, len * BLOCK).map_err(AttachError::Map)?;
    }
    Ok(())
}

impl Fs {
    /// The file in which the contents of files lie, opened to be read; `None` if another one lies at its path by now.
    pub fn open_image(&self) -> Option<File> {
        let file = File::open_known(self.path(), abi::O_RDONLY, self.files.image).ok()?;
        if self.files.in_place { image(&file, &self.layout).ok().map(|(image, _)| image) } else { Some(file) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::contents;
    use crate::check::tests::{node, populated};
    use crate::process::Options;
    use crate::testing::TestFs;
    use base::{Cred, Cx, Error, Thread};
    use pm::UserSlice;
    use std::boxed::Box;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::PathBuf;
    use std::vec;
    use std::vec::Vec;

    /// The session's file before an image that nobody uses.
    fn before(image: &std::path::Path) -> PathBuf {
        let path = [image.as_os_str().as_bytes(), b"\0"].concat();
        let found = contents(&path).unwrap().unwrap();
        let all = std::fs::read(image).unwrap();
        let session = image.with_extension("session");
        let file = std::fs::File::create(&session).unwrap();
        file.set_len(found.layout.limit + TAIL).unwrap();
        let meta = file.metadata().unwrap();
        let stat = File::open(&path, abi::O_RDONLY, 0).unwrap().stat().unwrap();
        file.write_all_at(&tail([meta.dev(), meta.ino()], &stat, &path, &found.runs).unwrap(), found.layout.limit).unwrap();
        file.write_all_at(&all[..128], SUPERBLOCK).unwrap();
        let tables = 2 * BLOCK as usize..found.layout.blocks as usize;
        file.write_all_at(&all[tables.clone()], tables.start as u64).unwrap();
        for run in found.others {
            let range = (run.block * BLOCK) as usize..((run.block + run.len) * BLOCK) as usize;
            file.write_all_at(&all[range.clone()], range.start as u64).unwrap();
        }
        session
    }

    fn attached<'t>(path: &std::path::Path, thread: &'t Thread, in_place: bool) -> Result<(&'static Fs, Cx<'t>), AttachError> {
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread };
        let segment_dir = path.parent().map(|directory| directory.as_os_str().as_bytes());
        let path = [path.as_os_str().as_bytes(), b"\0"].concat();
        let options = Options { read_only: true, in_place, segment_dir, ..Options::default() };
        Fs::attach_at(Box::leak(Box::new_uninit()), &cx, &path, &options).map(|fs| (fs, cx))
    }

    fn image() -> (TestFs, Vec<u8>) {
        let test = populated();
        let text = vec![b'x'; 70_000];
        test.write(&test.cx(), node(&test, b"file-0-"), Some(0), &[UserSlice::from_ref(&text)]).unwrap();
        test.fs.detach(&test.cx());
        (test, text)
    }

    /// Goal: contents come from the image, everything else from the session's file; nothing can be changed, and no byte of
    /// the image is another. Method: two sessions at a time; the contents are not in their files.
    #[test]
    fn contents_are_the_images() {
        let (test, text) = image();
        let before_it = std::fs::read(test.image.file()).unwrap();
        let threads = [Thread::new(), Thread::new()];
        let sessions: Vec<PathBuf> = threads
            .iter()
            .enumerate()
            .map(|(number, _)| {
                let made = before(test.image.file().as_ref());
                let own = made.with_extension(std::format!("session{number}"));
                // Another name of the same file.
                std::fs::rename(&made, &own).unwrap();
                own
            })
            .collect();
        let users: Vec<_> = sessions.iter().zip(&threads).map(|(path, thread)| attached(path, thread, true).unwrap()).collect();
        for (session, (fs, cx)) in sessions.iter().zip(&users) {
            assert!(!std::fs::read(session).unwrap().windows(1000).any(|part| part == &text[..1000]));
            let found = fs.lookup(cx, fs.root_node(), b"file-0-").unwrap();
            let mut read = vec![0; text.len()];
            assert_eq!(fs.read(cx, found, 0, &[UserSlice::from_mut(&mut read)]), Ok(text.len()));
            assert!(read == text);
            let refused = fs.write(cx, found, Some(0), &[UserSlice::from_ref(b"y")]).map(drop);
            assert_eq!(refused, Err(Error::Posix(Errno::EROFS)));
            assert_eq!(fs.unlink(cx, fs.root_node(), b"file-0-").map(drop), Err(Error::Posix(Errno::EROFS)));
            assert_eq!(fs.open_image().unwrap().stat().unwrap().ino, std::fs::metadata(test.image.file()).unwrap().ino());
        }
        // Who wants to change it does not get its lock as long as they live.
        let path = test.image.path();
        assert!(!File::open(&path, abi::O_RDONLY, 0).unwrap().lock_soon());
        for (fs, cx) in &users {
            fs.end_session(cx);
        }
        assert!(std::fs::read(test.image.file()).unwrap() == before_it);
        sessions.iter().for_each(|session| std::fs::remove_file(session).unwrap());
    }

    /// Goal: the session's file is none without the image, as the image, or as a copy; and not when the image is another.
    #[test]
    fn nothing_else_is_taken_for_it() {
        let (test, _) = image();
        let session = before(test.image.file().as_ref());
        let thread = Thread::new();
        assert_eq!(attached(&session, &thread, false).map(drop), Err(AttachError::NotAnImage));
        assert_eq!(attached(test.image.file().as_ref(), &thread, true).map(drop), Err(AttachError::NotAnImage));
        let copy = session.with_extension("copy");
        std::fs::copy(&session, &copy).unwrap();
        assert_eq!(attached(&copy, &thread, true).map(drop), Err(AttachError::Open(Errno::EINVAL)));
        let bytes = std::fs::read(test.image.file()).unwrap();
        std::fs::rename(test.image.file(), session.with_extension("old")).unwrap();
        std::fs::write(test.image.file(), bytes).unwrap();
        assert_eq!(attached(&session, &thread, true).map(drop), Err(AttachError::Changed));
        for name in ["session", "copy", "old"] {
            std::fs::remove_file(session.with_extension(name)).unwrap();
        }
    }
}
