//! FIFOs, sockets and devices inside an image: the kernel serves them.
//!
//! The image holds the name, owner and mode; behind it stands a kernel object
//! in a private directory, named after the node, which all processes of one
//! user share: `<private directory>/bypath-<uid>/<device>-<node>-<type>`.

mod behind;

use super::err;
use crate::path::Spot;
use crate::{Process, ThreadState};
use base::{Attr, Cx, Error, Kind, Node, PATH_MAX};
use pm::Errno;
use pm::sys::abi;

/// Character devices that every program may open, by number.
const KNOWN: [(u64, &[u8]); 6] = [
    (0x103, b"/dev/null"),
    (0x105, b"/dev/zero"),
    (0x107, b"/dev/full"),
    (0x108, b"/dev/random"),
    (0x109, b"/dev/urandom"),
    (0x500, b"/dev/tty"),
];

/// A text under construction.
struct Text<'a> {
    out: &'a mut [u8; PATH_MAX],
    len: usize,
}

impl Text<'_> {
    fn put(&mut self, bytes: &[u8]) -> base::Result<()> {
        let end = self.len + bytes.len();
        if end >= PATH_MAX {
            return err(Errno::ENAMETOOLONG);
        }
        self.out[self.len..end].copy_from_slice(bytes);
        self.out[end] = 0;
        self.len = end;
        Ok(())
    }

    fn hex(&mut self, value: u64) -> base::Result<()> {
        let mut digits = [0u8; 16];
        for (index, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(value >> (60 - 4 * index)) as usize & 15];
        }
        let skip = digits.iter().take_while(|&&d| d == b'0').count().min(15);
        self.put(&digits[skip..])
    }
}

impl Process {
    /// The kernel path of the object behind a node, NUL-terminated, in this
    /// thread's first text. The private directory is made if need be.
    pub(crate) fn private_path<'a>(
        &self,
        thread: &'a ThreadState,
        device: u64,
        node: Node,
        kind: Kind,
    ) -> base::Result<&'a [u8]> {
        self.object_text(thread, device, node, kind, true)
    }

    /// [`Process::private_path`]; `ENOENT` if there is no private directory and none is to be made.
    fn object_text<'a>(
        &self,
        thread: &'a ThreadState,
        device: u64,
        node: Node,
        kind: Kind,
        makes: bool,
    ) -> base::Result<&'a [u8]> {
        if !self.door.has_kernel() {
            return err(Errno::EOPNOTSUPP);
        }
        // SAFETY: the paths of this call are resolved: nobody uses the text.
        let out = unsafe { &mut *thread.room().text[0].get() };
        out.fill(0);
        let mut text = Text { out, len: 0 };
        text.put(self.door.private_directory())?;
        text.put(b"/bypath-")?;
        let uid = self.credentials.effective().uid;
        text.hex(uid as u64)?;
        self.private_directory(text.out, uid, makes)?;
        text.put(b"/")?;
        text.hex(device)?;
        text.put(b"-")?;
        text.hex(node.id)?;
        text.put(b"-")?;
        text.hex(kind as u64)?;
        let len = text.len;
        Ok(&text.out[..len + 1])
    }

    /// Makes the directory, or makes sure that it is ours alone.
    fn private_directory(&self, path: &[u8; PATH_MAX], uid: u32, makes: bool) -> base::Result<()> {
        if makes {
            let args = [crate::path::CWD, path.as_ptr() as usize, 0o700, 0, 0, 0];
            // SAFETY: a NUL-terminated path.
            match pm::sys::check(unsafe { self.door.kernel(abi::__NR_mkdirat as usize, args) }) {
                Ok(_) => return Ok(()),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(Error::Posix(errno)),
            }
        }
        // SAFETY: all fields are integers, for which zero is a value.
        let mut stat: abi::stat = unsafe { core::mem::zeroed() };
        let nofollow = abi::AT_SYMLINK_NOFOLLOW as usize;
        // SAFETY: a NUL-terminated path and a `struct stat`.
        unsafe { pm::call!(abi::__NR_newfstatat, crate::path::CWD, path.as_ptr(), &raw mut stat, nofollow) }?;
        if stat.st_mode & 0o170077 != 0o040000 || stat.st_uid != base::ids::shown_user(uid) {
            return err(Errno::EACCES);
        }
        Ok(())
    }

    /// The kernel text to open instead of a FIFO, socket or device of ours.
    /// Permission on the node was checked.
    #[cold]
    pub(crate) fn open_special(
        &self,
        cx: &Cx,
        thread: &ThreadState,
        spot: &Spot,
        node: Node,
        attr: &Attr,
    ) -> base::Result<usize> {
        if attr.kind != Kind::Socket
            && let Some(path) = self.kernel_text(cx, thread, spot, attr)
        {
            return Ok(path.as_ptr() as usize);
        }
        let (mode, rdev) = match attr.kind {
            Kind::Fifo => (0o010600, 0),
            Kind::CharDevice | Kind::BlockDevice => {
                let known = KNOWN.iter().find(|k| k.0 == attr.rdev && attr.kind == Kind::CharDevice);
                if let Some((_, path)) = known
                    && self.door.has_kernel()
                {
                    // SAFETY: the paths of this call are resolved: nobody uses the text.
                    return Ok(unsafe { thread.compose(0, b"", *path) }?.as_ptr() as usize);
                }
                (attr.kind.type_bits() as usize | 0o600, attr.rdev as usize)
            }
            _ => return err(Errno::ENXIO),
        };
        let path = self.private_path(thread, spot.mount.backend.identity(), node, attr.kind)?;
        // SAFETY: a NUL-terminated path.
        let made =
            unsafe { self.door.kernel(abi::__NR_mknodat as usize, [crate::path::CWD, path.as_ptr() as usize, mode, rdev, 0, 0]) };
        match pm::sys::check(made) {
            Ok(_) | Err(Errno::EEXIST) => {
                if spot.is_name() {
                    self.name_opened(cx, thread, spot, path);
                }
                Ok(path.as_ptr() as usize)
            }
            Err(_) if attr.kind != Kind::Fifo => err(Errno::ENXIO),
            Err(errno) => Err(Error::Posix(errno)),
        }
    }
}
