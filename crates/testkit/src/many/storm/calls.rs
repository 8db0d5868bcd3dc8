//! The calls that workers make, with nothing around them; results as the kernel gives them.

use super::board::{Board, Seat};
use crate::world::World;
use pm::sys::abi as nr;
use std::ffi::CString;

const CWD: usize = libc::AT_FDCWD as usize;

/// A worker at work.
pub struct Worker {
    pub world: World,
    pub board: &'static Board,
    pub fs: &'static engine::Fs,
    pub number: usize,
}

/// A path or other text for the kernel.
fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

impl Worker {
    pub fn seat(&self) -> &'static Seat {
        &self.board.seats[self.number]
    }

    /// A call whose pointers lead to texts and buffers that outlive it.
    pub fn raw(&self, number: u32, args: [usize; 6]) -> isize {
        // SAFETY: the callers here pass valid texts and buffers.
        unsafe { self.world.serve(number as usize, args) }
    }

    /// As `raw`, on a path and with one more argument.
    pub fn at(&self, number: u32, path: &str, after: [usize; 2]) -> isize {
        let path = text(path);
        self.raw(number, [CWD, path.as_ptr() as usize, after[0], after[1], 0, 0])
    }

    /// As `at`, measured.
    pub fn timed(&self, number: u32, path: &str, after: [usize; 2]) -> isize {
        self.seat().timed(self.board, || self.at(number, path, after))
    }

    pub fn open(&self, path: &str, flags: i32) -> isize {
        self.at(nr::__NR_openat, path, [flags as usize, 0o644])
    }

    pub fn close(&self, fd: isize) -> isize {
        self.raw(nr::__NR_close, [fd as usize, 0, 0, 0, 0, 0])
    }

    /// Creates an empty file and closes it.
    pub fn create(&self, path: &str) -> isize {
        match self.open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY) {
            fd @ 0.. => self.close(fd),
            error => error,
        }
    }

    pub fn write(&self, fd: isize, data: &[u8]) -> isize {
        self.raw(nr::__NR_write, [fd as usize, data.as_ptr() as usize, data.len(), 0, 0, 0])
    }

    pub fn pread(&self, fd: isize, out: &mut [u8], offset: u64) -> isize {
        self.raw(nr::__NR_pread64, [fd as usize, out.as_mut_ptr() as usize, out.len(), offset as usize, 0, 0])
    }

    pub fn unlink(&self, path: &str, flags: i32) -> isize {
        self.at(nr::__NR_unlinkat, path, [flags as usize, 0])
    }

    pub fn mkdir(&self, path: &str) -> isize {
        self.at(nr::__NR_mkdirat, path, [0o755, 0])
    }

    pub fn rename(&self, from: &str, to: &str, flags: u32) -> isize {
        let (from, to) = (text(from), text(to));
        self.raw(nr::__NR_renameat2, [CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, flags as usize, 0])
    }

    pub fn link(&self, from: &str, to: &str) -> isize {
        let (from, to) = (text(from), text(to));
        self.raw(nr::__NR_linkat, [CWD, from.as_ptr() as usize, CWD, to.as_ptr() as usize, 0, 0])
    }

    /// An open file becomes one that shares the data of another.
    pub fn clone_data(&self, from: isize, to: isize) -> isize {
        self.raw(nr::__NR_ioctl, [to as usize, 0x4004_9409, from as usize, 0, 0, 0])
    }

    pub fn symlink(&self, target: &str, path: &str) -> isize {
        let (target, path) = (text(target), text(path));
        self.raw(nr::__NR_symlinkat, [target.as_ptr() as usize, CWD, path.as_ptr() as usize, 0, 0, 0])
    }

    pub fn readlink(&self, path: &str) -> Result<Vec<u8>, isize> {
        let mut out = vec![0u8; 256];
        let len = self.at(nr::__NR_readlinkat, path, [out.as_mut_ptr() as usize, out.len()]);
        out.truncate(usize::try_from(len).map_err(|_| len)?);
        Ok(out)
    }

    /// `stat` of the name itself.
    pub fn stat(&self, path: &str) -> Result<libc::stat, isize> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        let result = self.at(nr::__NR_newfstatat, path, [stat.as_mut_ptr() as usize, libc::AT_SYMLINK_NOFOLLOW as usize]);
        // SAFETY: plain numbers, all of which were set above.
        if result < 0 { Err(result) } else { Ok(unsafe { stat.assume_init() }) }
    }

    pub fn truncate(&self, path: &str, size: u64) -> isize {
        let path = text(path);
        self.raw(nr::__NR_truncate, [path.as_ptr() as usize, size as usize, 0, 0, 0, 0])
    }

    pub fn chmod(&self, path: &str, mode: u32) -> isize {
        self.at(nr::__NR_fchmodat, path, [mode as usize, 0])
    }

    pub fn set_xattr(&self, path: &str, value: u64) -> isize {
        let (path, value) = (text(path), value.to_ne_bytes());
        self.raw(nr::__NR_setxattr, [path.as_ptr() as usize, c"user.s".as_ptr() as usize, value.as_ptr() as usize, 8, 0, 0])
    }

    pub fn xattr(&self, path: &str) -> Result<u64, isize> {
        let (path, mut value) = (text(path), [0u8; 8]);
        let args = [path.as_ptr() as usize, c"user.s".as_ptr() as usize, value.as_mut_ptr() as usize, 8, 0, 0];
        match self.raw(nr::__NR_getxattr, args) {
            8 => Ok(u64::from_ne_bytes(value)),
            other => Err(other),
        }
    }

    /// The whole of a file.
    pub fn read_all(&self, path: &str) -> Result<Vec<u8>, isize> {
        let fd = self.open(path, libc::O_RDONLY);
        if fd < 0 {
            return Err(fd);
        }
        let mut data = vec![0u8; 1 << 16];
        let mut len = 0;
        let result = loop {
            match self.pread(fd, &mut data[len..], len as u64) {
                0 => break Ok(()),
                got @ 1.. => len += got as usize,
                error => break Err(error),
            }
            if len == data.len() {
                data.resize(len * 2, 0);
            }
        };
        self.close(fd);
        data.truncate(len);
        result.map(|()| data)
    }
}
