//! Several processes on one image: at random, appending, watching one another,
//! being stopped and killed.

mod append;
mod deaths;
mod flat;
mod held;
mod random;
mod recover;
mod stops;
mod storm;
mod visible;

pub use append::append;
pub use deaths::deaths;
pub use flat::flat;
pub use held::held;
pub use random::random;
pub use recover::recover;
pub use stops::stops;
pub use storm::storm;
pub use visible::visible;

use crate::differential::op::Arg;
use crate::differential::sandbox::{Child, Report};
use crate::differential::side::Side;
use crate::image;
use crate::world::World;
use pm::sys::abi as nr;
use std::path::{Path, PathBuf};

const CWD: i64 = libc::AT_FDCWD as i64;

/// An image that is removed in the end.
pub struct Image(PathBuf);

impl Image {
    /// Makes one.
    pub fn new(name: &str, bytes: u64) -> Image {
        let path = image::fresh_path(name);
        image::make(&path, bytes);
        Image(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// This process's view of it.
    pub fn world(&self) -> World {
        World::new(image::attach(&self.0))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Short forms of the calls that the tests make; results as the kernel gives them.
impl World {
    fn path_call(&self, number: u32, before: &[i64], path: &str, after: &[i64]) -> isize {
        let mut args: Vec<Arg> = before.iter().map(|&n| Arg::Int(n)).collect();
        args.push(Arg::Text(path.as_bytes().to_vec()));
        args.extend(after.iter().map(|&n| Arg::Int(n)));
        self.call(number as usize, &args).0
    }

    /// `open`.
    pub fn open(&self, path: &str, flags: i32) -> i64 {
        self.path_call(nr::__NR_openat, &[CWD], path, &[flags as i64, 0o644]) as i64
    }

    /// `close`.
    pub fn close(&self, fd: i64) -> isize {
        self.plain(nr::__NR_close, &[fd])
    }

    /// Creates an empty file.
    pub fn create(&self, path: &str) -> isize {
        let fd = self.open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY);
        if fd < 0 { fd as isize } else { self.close(fd) }
    }

    /// `mkdir`.
    pub fn mkdir(&self, path: &str) -> isize {
        self.path_call(nr::__NR_mkdirat, &[CWD], path, &[0o755])
    }

    /// `unlink`.
    pub fn unlink(&self, path: &str) -> isize {
        self.path_call(nr::__NR_unlinkat, &[CWD], path, &[0])
    }

    /// `rmdir`.
    pub fn rmdir(&self, path: &str) -> isize {
        self.path_call(nr::__NR_unlinkat, &[CWD], path, &[i64::from(libc::AT_REMOVEDIR)])
    }

    /// `truncate`.
    pub fn truncate(&self, path: &str, size: u64) -> isize {
        self.path_call(nr::__NR_truncate, &[], path, &[size as i64])
    }

    /// `symlink`.
    pub fn symlink(&self, text: &str, path: &str) -> isize {
        let args = [Arg::Text(text.into()), Arg::Int(CWD), Arg::Text(path.into())];
        self.call(nr::__NR_symlinkat as usize, &args).0
    }

    /// `link`.
    pub fn link(&self, from: &str, to: &str) -> isize {
        let args = [Arg::Int(CWD), Arg::Text(from.into()), Arg::Int(CWD), Arg::Text(to.into()), Arg::Int(0)];
        self.call(nr::__NR_linkat as usize, &args).0
    }

    /// `rename` of two names to each other.
    pub fn exchange(&self, one: &str, other: &str) -> isize {
        let flags = Arg::Int(i64::from(libc::RENAME_EXCHANGE));
        let args = [Arg::Int(CWD), Arg::Text(one.into()), Arg::Int(CWD), Arg::Text(other.into()), flags];
        self.call(nr::__NR_renameat2 as usize, &args).0
    }

    /// `rename`.
    pub fn rename(&self, from: &str, to: &str) -> isize {
        let args = [Arg::Int(CWD), Arg::Text(from.into()), Arg::Int(CWD), Arg::Text(to.into()), Arg::Int(0)];
        self.call(nr::__NR_renameat2 as usize, &args).0
    }

    /// `stat`, or the negated error.
    pub fn stat(&self, path: &str) -> Result<libc::stat, isize> {
        let (result, out) =
            self.call(nr::__NR_newfstatat as usize, &[Arg::Int(CWD), Arg::Text(path.into()), Arg::Stat, Arg::Int(0)]);
        if result < 0 { Err(result) } else { Ok(crate::differential::compare::parse_stat(&out[0])) }
    }

    /// `write`.
    pub fn write(&self, fd: i64, data: &[u8]) -> isize {
        let args = [fd as usize, data.as_ptr() as usize, data.len(), 0, 0, 0];
        // SAFETY: a buffer and its length.
        unsafe { self.serve(nr::__NR_write as usize, args) }
    }

    /// `pread`.
    pub fn pread(&self, fd: i64, out: &mut [u8], offset: u64) -> isize {
        let args = [fd as usize, out.as_mut_ptr() as usize, out.len(), offset as usize, 0, 0];
        // SAFETY: a buffer and its length.
        unsafe { self.serve(nr::__NR_pread64 as usize, args) }
    }
}

/// Fails with what was done and how it ended.
fn expect(result: isize, what: impl Fn() -> String) -> Result<(), String> {
    if result < 0 { Err(format!("{}: {}", what(), crate::differential::compare::error(result))) } else { Ok(()) }
}

/// Waits for children; the first failure.
fn wait_all(children: Vec<Child>, seconds: u64) -> Result<(), String> {
    let mut result = Ok(());
    for (number, child) in children.into_iter().enumerate() {
        if let Report::Failed { sequence, step, text } = child.wait(seconds) {
            result = result.and(Err(format!("process {number} (sequence {sequence}, step {step}): {text}")));
        }
    }
    result
}
