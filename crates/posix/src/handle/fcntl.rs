//! `fcntl` and `ioctl`.

use super::clone::{FICLONE, FICLONERANGE, Range};
use super::open::CREATED;
use super::runs::FS_IOC_FIEMAP;
use super::same::FIDEDUPERANGE;
use super::{done, err, fail};
use crate::path::OpenFile;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Kind};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use pm::{Errno, faults};

const FD_CLOEXEC: usize = 1;
/// What `F_SETFL` can change.
const SETTABLE: u32 = abi::O_APPEND | abi::O_NONBLOCK | abi::FASYNC | abi::O_DIRECT | abi::O_NOATIME;
const F_DUPFD_QUERY: u32 = 1027;
const F_SETLEASE: u32 = 1024;
const F_GETLEASE: u32 = 1025;
const F_CREATED_QUERY: u32 = 1028;
const F_ADD_SEALS: u32 = 1033;
const F_GET_SEALS: u32 = 1034;
/// What a file of tmpfs has, which may not be sealed: `F_SEAL_SEAL`.
const SEALED: usize = 1;
const F_SETPIPE_SZ: u32 = 1031;
const F_GETPIPE_SZ: u32 = 1032;
const F_GET_RW_HINT: u32 = 1035;
const F_SET_FILE_RW_HINT: u32 = 1038;
/// `RWH_WRITE_LIFE_EXTREME`.
const HINT_LAST: u64 = 5;
const F_UNLCK: usize = 2;

const FIOCLEX: u32 = 0x5451;
const FIONCLEX: u32 = 0x5450;
const FIONREAD: u32 = 0x541b;
const FIONBIO: u32 = 0x5421;
const FIBMAP: u32 = 1;
const FIGETBSZ: u32 = 2;
const FIOASYNC: u32 = 0x5452;
const FIOQSIZE: u32 = 0x5460;
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `fcntl(fd, command, argument)`.
    pub unsafe fn fcntl(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let Some(file) = self.file(args[0]) else { return Outcome::Kernel };
        let (fd, command, argument) = (args[0] as u32, args[1] as u32, args[2]);
        let result = match command {
            abi::F_DUPFD => self.dup_above(file.entry, args[0], argument as u32, false),
            abi::F_DUPFD_CLOEXEC => self.dup_above(file.entry, args[0], argument as u32, true),
            abi::F_GETFD => Ok(if file.entry.cloexec() { FD_CLOEXEC } else { 0 }),
            abi::F_SETFD => {
                self.descriptors.set_cloexec(fd, argument & FD_CLOEXEC != 0);
                Ok(0)
            }
            abi::F_GETFL => Ok((file.flags() & !CREATED) as usize),
            F_CREATED_QUERY => Ok(usize::from(file.flags() & CREATED != 0)),
            F_DUPFD_QUERY => {
                Ok(self.file(argument).is_some_and(|other| core::ptr::eq(other.description, file.description)) as usize)
            }
            _ if file.entry.path_only() => err(Errno::EBADF),
            abi::F_SETFL => set_flags(&self.cx(thread), &file, argument as u32),
            abi::F_GETLK | abi::F_SETLK | abi::F_SETLKW | abi::F_OFD_GETLK | abi::F_OFD_SETLK | abi::F_OFD_SETLKW => {
                // SAFETY: the caller's promise.
                unsafe { self.record_lock(&self.cx(thread), &file, command, argument) }
            }
            abi::F_GETOWN | abi::F_SETOWN | abi::F_GETSIG | abi::F_SETSIG => Ok(0),
            F_GETLEASE => Ok(F_UNLCK),
            // As where somebody else has the file open: who does later could not be told to wait.
            F_SETLEASE if argument <= F_UNLCK => err(Errno::EAGAIN),
            F_GET_SEALS if file.entry.kind() == Kind::Regular => Ok(SEALED),
            F_ADD_SEALS if file.entry.kind() == Kind::Regular => err(Errno::EPERM),
            F_SETPIPE_SZ | F_GETPIPE_SZ => err(Errno::EBADF),
            F_GET_RW_HINT..=F_SET_FILE_RW_HINT => {
                if bad(argument) {
                    err(Errno::EFAULT)
                } else {
                    if command % 2 == 1 {
                        // SAFETY: the caller's promise; no hint is set.
                        unsafe { faults::write(argument as *mut u64, &0) }.map_or_else(err, |()| Ok(0))
                    } else {
                        // SAFETY: the caller's promise.
                        let hint = unsafe { faults::read(argument as *const u64) };
                        hint.map_or_else(err, |hint| if hint > HINT_LAST { err(Errno::EINVAL) } else { Ok(0) })
                    }
                }
            }
            _ => err(Errno::EINVAL),
        };
        done(result)
    }

    /// `ioctl(fd, request, argument)`.
    pub unsafe fn ioctl(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let (request, argument) = (args[1] as u32, args[2]);
        let Some(file) = self.file(args[0]) else {
            // The kernel can't clone from a file of ours.
            // SAFETY: the caller's promise.
            let range = || unsafe { Range::of(request, argument) };
            if matches!(request, FICLONE | FICLONERANGE) && range().is_ok_and(|asked| self.file(asked.source()).is_some()) {
                return fail(Errno::EXDEV);
            }
            return Outcome::Kernel;
        };
        if file.entry.path_only() {
            return fail(Errno::EBADF);
        }
        /// # Safety
        /// As for [`Process::handle`].
        unsafe fn put_at<T: Copy>(argument: usize, value: T) -> base::Result<usize> {
            if bad(argument) {
                return err(Errno::EFAULT);
            }
            // SAFETY: the caller's promise.
            unsafe { faults::write(argument as *mut T, &value) }?;
            Ok(0)
        }
        // SAFETY: the caller's promise.
        let put = |value: u32| unsafe { put_at(argument, value) };
        // SAFETY: the caller's promise.
        let put_long = |value: i64| unsafe { put_at(argument, value) };
        done(match request {
            FIOCLEX | FIONCLEX => {
                self.descriptors.set_cloexec(args[0] as u32, request == FIOCLEX);
                Ok(0)
            }
            FIONREAD if file.entry.kind() == Kind::Regular => {
                let size = file.mount.backend.attr(&self.cx(thread), file.node).map(|a| a.size);
                size.and_then(|size| put(size.wrapping_sub(file.description.offset.load(Relaxed)) as u32))
            }
            FIGETBSZ => put(4096),
            FIBMAP if file.entry.kind() == Kind::Regular => err(Errno::EINVAL),
            FIOQSIZE => {
                let attr = file.mount.backend.attr(&self.cx(thread), file.node);
                attr.and_then(|attr| put_long(attr.blocks as i64 * 512))
            }
            // No file has any of them.
            FS_IOC_GETFLAGS => put(0),
            FS_IOC_SETFLAGS => err(Errno::EOPNOTSUPP),
            // SAFETY: the caller's promise.
            FS_IOC_FIEMAP => unsafe { self.runs(thread, &file, argument) },
            // SAFETY: the caller's promise.
            FIDEDUPERANGE => unsafe { self.dedupe(thread, &file, argument) },
            FIONBIO | FIOASYNC if bad(argument) => err(Errno::EFAULT),
            FIOASYNC => {
                // SAFETY: the caller's promise.
                let Ok(on) = (unsafe { faults::read(argument as *const u32) }) else { return fail(Errno::EFAULT) };
                if (on != 0) == (file.flags() & abi::FASYNC != 0) { Ok(0) } else { err(Errno::ENOTTY) }
            }
            FIONBIO => {
                // SAFETY: the caller's promise.
                let Ok(on) = (unsafe { faults::read(argument as *const u32) }) else { return fail(Errno::EFAULT) };
                let flags = file.flags() & !abi::O_NONBLOCK;
                file.description.flags.store(if on != 0 { flags | abi::O_NONBLOCK } else { flags }, Relaxed);
                Ok(0)
            }
            FICLONE | FICLONERANGE => {
                // SAFETY: the caller's promise.
                unsafe { Range::of(request, argument) }.and_then(|asked| self.clone_range(thread, &file, &asked))
            }
            _ => err(Errno::ENOTTY),
        })
    }
}

fn set_flags(cx: &Cx, file: &OpenFile, flags: u32) -> base::Result<usize> {
    let old = file.flags();
    if flags & abi::O_NOATIME != 0 && old & abi::O_NOATIME == 0 && !cx.cred.privileged {
        let attr = file.mount.backend.attr(cx, file.node)?;
        if attr.uid != cx.cred.uid && !cx.cred.is_privileged_over(attr.uid, attr.gid) {
            return err(Errno::EPERM);
        }
    }
    file.description.flags.store(old & !SETTABLE | flags & SETTABLE, Relaxed);
    Ok(0)
}
