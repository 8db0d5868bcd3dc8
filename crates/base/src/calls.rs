//! How many calls came which way.

/// Calls served, by the way they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    /// Through libc's symbols.
    pub symbols: u64,
    /// From libc's patched call sites.
    pub patched: u64,
    /// Requests of the kernel, through its mount.
    pub mount: u64,
    /// Of these, those of programs that have the library: what passed it by, or
    /// was done with a descriptor that had become the kernel's.
    pub passed: u64,
}
