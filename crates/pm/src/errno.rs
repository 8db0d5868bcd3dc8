//! Error numbers of the kernel, as a type.

use linux_raw_sys::errno as raw;

/// A positive Linux error number, such as `Errno::ENOENT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno(raw::$name as i32);)*

            /// The symbolic name, or `"E?"` for a number not in the table.
            pub fn name(self) -> &'static str {
                $(if self == Self::$name { return stringify!($name); })*
                "E?"
            }
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG ENOEXEC EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS
    EMLINK EPIPE ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EOVERFLOW
    EUCLEAN EOPNOTSUPP ENOTCONN ESRCH ETIMEDOUT ESTALE EDQUOT ECANCELED EOWNERDEAD EBADR ENOTRECOVERABLE EPROTO EILSEQ
    ECONNABORTED EHOSTDOWN EHOSTUNREACH
}

impl core::fmt::Debug for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
