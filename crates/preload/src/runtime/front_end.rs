//! What this front end lends to `posix`.

use crate::runtime::kernel::Who;
use crate::runtime::placeholders::{Placeholders, before_kernel};
use crate::runtime::{kernel, kernel_root, saved, tls};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use pm::sys::abi::*;
use pm::{Errno, sys};
use posix::{Door, Numbers, Process};

/// The program as the core sees it.
pub static PROCESS: Process = Process::new(&PRELOAD);
static PRELOAD: Preload = Preload;
/// Whether mappings may have pages that are put in place when they are touched.
static WATCHES_MAPPINGS: AtomicBool = AtomicBool::new(false);

/// See [`WATCHES_MAPPINGS`].
pub fn watches_mappings() -> bool {
    WATCHES_MAPPINGS.load(Relaxed)
}

struct Preload;

impl Door for Preload {
    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(&Placeholders)
    }

    unsafe fn kernel(&self, nr: usize, args: [usize; 6]) -> isize {
        if let Some(answer) = before_kernel(nr, args) {
            return answer;
        }
        // SAFETY: by contract.
        unsafe { sys::raw(nr, args) }
    }

    fn enter_in_kernel(&self, path: &[u8], ino: u64) -> bool {
        let Some(directory) = kernel_root::open_number(path, O_PATH | O_DIRECTORY | O_CLOEXEC, ino) else { return false };
        let entered = kernel::fchdir(directory);
        kernel::close(directory);
        entered.is_ok()
    }

    /// Makes a directory, enters it and removes it: whatever a missed call asks
    /// for relative to it does not exist, and nothing can be made there.
    fn enter_virtual_cwd(&self) -> Result<(), Errno> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..100 {
            let name = nowhere(COUNT.fetch_add(1, Relaxed));
            // SAFETY: the path is NUL-terminated.
            match unsafe { pm::call!(__NR_mkdirat, AT_FDCWD, name.as_ptr(), 0o700) } {
                Ok(_) => {
                    // SAFETY: as above.
                    let entered = unsafe { pm::call!(__NR_chdir, name.as_ptr()) };
                    // SAFETY: as above.
                    let _ = unsafe { pm::call!(__NR_unlinkat, AT_FDCWD, name.as_ptr(), AT_REMOVEDIR) };
                    return entered.map(|_| ());
                }
                Err(Errno::EEXIST) => continue,
                Err(_) => break,
            }
        }
        // No place to make one: a directory of numbers in which nothing can be made.
        // SAFETY: the path is NUL-terminated.
        unsafe { pm::call!(__NR_chdir, c"/proc/self/fdinfo".as_ptr()) }.map(|_| ())
    }

    fn interrupted(&self) -> bool {
        tls::get().pending.get() != 0
    }

    fn watch_faults(&self) {
        WATCHES_MAPPINGS.store(true, Release);
    }

    fn watches_faults(&self) -> bool {
        true
    }

    fn private_directory(&self) -> &[u8] {
        saved::private_directory()
    }
}

/// `/tmp/.bypath-nowhere-<pid>-<count>`, NUL-terminated.
fn nowhere(count: u32) -> [u8; 64] {
    use core::fmt::Write;
    struct Out([u8; 64], usize);
    impl Write for Out {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            let end = self.1 + s.len();
            self.0.get_mut(self.1..end).ok_or(core::fmt::Error)?.copy_from_slice(s.as_bytes());
            self.1 = end;
            Ok(())
        }
    }
    let pid = kernel::own(Who::Process);
    let mut out = Out([0; 64], 0);
    // Two numbers of at most 20 digits fit.
    let _ = write!(out, "/tmp/.bypath-nowhere-{pid}-{count}");
    out.0
}
