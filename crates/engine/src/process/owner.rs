//! Whether a file is the segment of an image. The image's bytes are not believed: whoever may write it can name any
//! segment in it; nor are those of a file in the segment directory, where everybody can lay one.
//!
//! A file is the segment of an image if all of this is so, looked at in this order:
//! 1. It is a regular file with one name, and its inode number is the one that the image names: whoever may write the
//!    image has chosen this file, and not another that has got its name.
//! 2. It belongs to the image's owner, to root, to us, or to somebody of whom its own attributes prove that he may
//!    write the image. So nobody else can put anything into it.
//! 3. It says, in what only those can write, that it serves this image: device and inode number of the file, and the
//!    random identity in the superblock. So a segment of another image is not joined, whoever names it.
//! 4. Its mode is no wider than the image's; one that is, since the image's was changed, is made so.
//!
//! A segment is removed only by who has mapped it or finds all this so; that of no image any more by its owner (`sweep`).

use crate::fs::{Files, Fs};
use crate::segment::{Header, MAGIC, Serves};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use pm::file::{self, File, Stat};
use pm::sys::abi;
use zerocopy::IntoBytes;

/// Reads the word at an offset of a segment's file.
pub(super) fn word(file: &File, at: u64) -> Option<u64> {
    let mut bytes = [0u8; 8];
    file.read_at(&mut bytes, at).ok().filter(|len| *len == 8)?;
    Some(u64::from_ne_bytes(bytes))
}

/// The image that a segment says it serves: device and inode number of its file, random identity.
pub(super) fn served(segment: &File) -> Option<[[u64; 2]; 2]> {
    let mut words = [[0u64; 2]; 2];
    let at = offset_of!(Header, serves) as u64;
    segment.read_at(words.as_mut_bytes(), at).ok().filter(|len| *len == size_of_val(&words))?;
    Some(words)
}

const _: () = assert!(offset_of!(Serves, file) == 0 && offset_of!(Serves, uuid) == 16);

/// Whether the owner of a segment may write the image, as far as attributes prove it: a file's group is one that its
/// owner is in.
fn may_write(segment: &Stat, image: &Stat) -> bool {
    let by_group = image.mode & 0o020 != 0 && segment.gid == image.gid;
    segment.uid == image.uid || segment.uid == 0 || image.mode & 0o002 != 0 || by_group || segment.uid == file::own_user()
}

/// The mode of a segment whose group is `gid`: its users are those of the image.
pub(super) fn mode(gid: u32, image: &Stat) -> u32 {
    let mode = image.mode & 0o666;
    // Another group is the others.
    if gid == image.gid { mode } else { mode & 0o606 | (mode & 0o006) << 3 }
}

impl Fs {
    /// The file at `segment_path`, opened to be read and written, if it is the segment of this image.
    pub(super) fn own_segment(&self, image: &Stat) -> Option<(File, Stat)> {
        let named = self.volatile().segment.load(Acquire);
        let path = self.segment_path.split_inclusive(|byte| *byte == 0).next()?;
        let is_right = |stat: &Stat| stat.links == 1 && stat.ino == named && may_write(stat, image);
        let (file, stat) = File::open_checked(path, abi::O_RDWR, is_right).ok()?;
        let fits = self.is_served_by(&file) && narrow(&file, &stat, image);
        fits.then_some((file, stat))
    }

    /// Whether a segment says that it serves this image.
    fn is_served_by(&self, segment: &File) -> bool {
        word(segment, 0) == Some(MAGIC) && served(segment) == Some([self.files.image, self.files.uuid])
    }

    /// Has a new segment say whom it serves.
    pub(super) fn note_served(&self) {
        let serves = &self.header().serves;
        let Files { image, uuid, .. } = self.files;
        for (word, value) in serves.file.iter().zip(image).chain(serves.uuid.iter().zip(uuid)) {
            word.store(value, Relaxed);
        }
    }

    /// Removes the segment's file, if its name still leads to the one that this process has mapped.
    pub(super) fn remove_segment(&self) {
        let path = self.segment_path.split_inclusive(|byte| *byte == 0).next().unwrap_or(b"\0");
        if file::lstat(path).is_ok_and(|stat| stat.identity() == self.files.segment) {
            let _ = file::unlink(path);
        }
        self.remove_mirrors();
    }
}

/// Gives a segment the image's mode; whether it is no wider.
fn narrow(file: &File, stat: &Stat, image: &Stat) -> bool {
    let wanted = mode(stat.gid, image);
    stat.mode & 0o7777 == wanted || file.change_mode(wanted).is_ok() || stat.mode & 0o7777 & !wanted == 0
}
