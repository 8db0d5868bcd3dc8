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
    use crate::runtime::front_end::PROCESS;

    /// Mounts it; whether that worked.
    pub(crate) fn mount(state: &posix::ThreadState) -> bool {
        let backend: &'static vfs::mem::Mem = alloc::boxed::Box::leak(alloc::boxed::Box::new(vfs::mem::Mem::new(0, 0, 0o777)));
        PROCESS.mount(state, b"/bp", backend).is_ok()
    }
}
