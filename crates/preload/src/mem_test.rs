//! Feature `mem-test`: a private in-memory file system at `/bp`.

#[cfg(not(feature = "mem-test"))]
pub(crate) fn mount(_state: &posix::ThreadState) -> bool {
    false
}

#[cfg(feature = "mem-test")]
pub(crate) use with::mount;

#[cfg(feature = "mem-test")]
mod with {
    extern crate alloc;
    use crate::door::PROCESS;
    use core::alloc::{GlobalAlloc, Layout};

    struct Own;
    #[global_allocator]
    static GLOBAL: Own = Own;

    // SAFETY: blocks are 16-byte aligned, distinct, and live until freed; larger
    // alignments get room to shift and keep the start in front.
    unsafe impl GlobalAlloc for Own {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.align() <= 16 {
                return crate::alloc::alloc(layout.size());
            }
            let start = crate::alloc::alloc(layout.size() + layout.align() + 8);
            if start.is_null() {
                return start;
            }
            let at = (start as usize + 8).next_multiple_of(layout.align());
            // SAFETY: at least 8 bytes lie between the block's start and `at`.
            unsafe { *((at - 8) as *mut usize) = start as usize };
            at as *mut u8
        }
        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
            let start = if layout.align() <= 16 {
                at
            } else {
                // SAFETY: written by `alloc`.
                unsafe { *((at as usize - 8) as *const usize) as *mut u8 }
            };
            // SAFETY: came from our allocator.
            unsafe { crate::alloc::free(start) };
        }
    }

    /// Mounts it; whether that worked.
    pub(crate) fn mount(state: &posix::ThreadState) -> bool {
        let backend: &'static vfs::mem::Mem = alloc::boxed::Box::leak(alloc::boxed::Box::new(vfs::mem::Mem::new(0, 0, 0o777)));
        PROCESS.mount(state, b"/bp", backend).is_ok()
    }
}
