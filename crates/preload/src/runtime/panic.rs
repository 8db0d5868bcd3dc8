//! What happens on a bug: one line on stderr, then abort. No unwinding into C.

use core::fmt::Write;
use pm::sys::{self, abi};

/// Formats into a fixed buffer; what does not fit is cut.
pub struct Line {
    text: [u8; 512],
    len: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Line { text: [0; 512], len: 0 }
    }

    /// Writes the line to descriptor 2 by a raw call.
    pub fn print(&self) {
        // SAFETY: the buffer outlives the call.
        let _ = unsafe { pm::call!(abi::__NR_write, 2, self.text.as_ptr(), self.len) };
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        for &byte in s.as_bytes() {
            if self.len < self.text.len() {
                self.text[self.len] = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

/// `complain!("…", …)`: one line `bypath: …` on stderr.
#[macro_export]
macro_rules! complain {
    ($($arg:tt)*) => {{
        let mut line = $crate::runtime::panic::Line::new();
        let _ = core::fmt::Write::write_fmt(&mut line, format_args!("bypath: {}\n", format_args!($($arg)*)));
        line.print();
    }};
}

/// Ends the process at once with `SIGABRT`.
pub fn abort() -> ! {
    loop {
        // SAFETY: plain calls without pointers; the default action of SIGABRT is
        // put back first by the kernel call below only if it is not blocked, else we exit.
        unsafe {
            let pid = sys::raw(abi::__NR_getpid as usize, [0; 6]) as usize;
            let tid = sys::raw(abi::__NR_gettid as usize, [0; 6]) as usize;
            sys::raw(abi::__NR_tgkill as usize, [pid, tid, 6, 0, 0, 0]);
            sys::raw(abi::__NR_exit_group as usize, [134, 0, 0, 0, 0, 0]);
        }
    }
}

/// A fortified call whose buffer is too small, as the program told libc: ends
/// the program as libc does.
pub fn overflow() -> ! {
    complain!("*** buffer overflow detected ***: terminated");
    abort()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    complain!("internal error: {info}");
    abort()
}

// Debug builds of `core` refer to it; nothing ever calls it, since panics abort.
core::arch::global_asm!(".hidden rust_eh_personality", ".weak rust_eh_personality", "rust_eh_personality:");
