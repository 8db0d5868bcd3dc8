//! Lines that are brought to this processor before they are read.

/// Has all lines of `object` brought near, to be read here soon. Nothing is read, and nothing waits.
#[inline(always)]
pub fn fetch<T>(object: &T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(64) {
        let line = core::ptr::from_ref(object).cast::<i8>().wrapping_add(at);
        // SAFETY: it changes nothing, whatever the address.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = object;
}
