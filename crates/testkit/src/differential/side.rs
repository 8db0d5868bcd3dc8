//! The two sides of a comparison, and how a step is made on one of them.

use super::op::Arg;
use super::sandbox;
use crate::world::World;
use pm::sys::abi as nr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something that answers system calls.
pub trait Side {
    /// Makes a call; the result as the kernel gives it.
    ///
    /// # Safety
    /// As for the system call.
    unsafe fn raw(&self, nr: usize, args: [usize; 6]) -> isize;

    /// Becomes an ordinary user, or root again; this thread is that user already.
    fn become_user(&self, user: u32) {
        set_user(&|nr, args| self.plain(nr, args), user);
    }

    /// Makes a call with arguments that are filled in here; returns its result
    /// and what it left in each buffer.
    fn call(&self, nr: usize, args: &[Arg]) -> (isize, Vec<Vec<u8>>) {
        let mut filled = Filled::default();
        let mut raw = [0usize; 6];
        for (slot, arg) in raw.iter_mut().zip(args) {
            *slot = filled.add(arg);
        }
        // SAFETY: every pointer is null, low, or leads to a buffer in `filled`
        // that is as long as the call's other arguments say.
        let result = unsafe { self.raw(nr, raw) };
        (result, filled.outputs(result))
    }

    /// A call without buffers.
    fn plain(&self, nr: u32, args: &[i64]) -> isize {
        let args: Vec<Arg> = args.iter().map(|&a| Arg::Int(a)).collect();
        self.call(nr as usize, &args).0
    }
}

/// Buffers of one call.
#[derive(Default)]
struct Filled {
    buffers: Vec<(Vec<u8>, Shown)>,
}

/// How much of a buffer is a result.
#[derive(Clone, Copy)]
enum Shown {
    Nothing,
    Returned,
    Whole,
}

fn counted(first: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add((at / 7) as u8)).collect()
}

impl Filled {
    fn keep(&mut self, bytes: Vec<u8>, shown: Shown) -> usize {
        // The heap block does not move when the list of blocks grows.
        let mut bytes = bytes;
        bytes.reserve(1);
        self.buffers.push((bytes, shown));
        self.buffers.last_mut().map_or(0, |(b, _)| b.as_mut_ptr() as usize)
    }

    fn add(&mut self, arg: &Arg) -> usize {
        match arg {
            Arg::Int(n) => *n as usize,
            Arg::Text(text) => {
                let mut text = text.clone();
                text.push(0);
                self.keep(text, Shown::Nothing)
            }
            Arg::Fill(first, len) => self.keep(counted(*first, *len), Shown::Nothing),
            Arg::Out(len) => self.keep(vec![0xee; *len], Shown::Returned),
            Arg::Stat => self.keep(vec![0; size_of::<libc::stat>()], Shown::Whole),
            Arg::Statx => self.keep(vec![0; size_of::<libc::statx>()], Shown::Whole),
            Arg::Words(words) => self.keep(words.iter().flat_map(|w| w.to_ne_bytes()).collect(), Shown::Whole),
            Arg::Flock(kind, whence, start, len) => {
                let mut bytes = vec![0u8; 32];
                bytes[0..2].copy_from_slice(&kind.to_ne_bytes());
                bytes[2..4].copy_from_slice(&whence.to_ne_bytes());
                bytes[8..16].copy_from_slice(&start.to_ne_bytes());
                bytes[16..24].copy_from_slice(&len.to_ne_bytes());
                self.keep(bytes, Shown::Whole)
            }
            Arg::IovFill(first, lens) => {
                let parts = lens.iter().map(|&len| (self.keep(counted(*first, len), Shown::Nothing), len)).collect();
                self.vector(parts)
            }
            Arg::IovOut(lens) => {
                let parts = lens.iter().map(|&len| (self.keep(vec![0xee; len], Shown::Whole), len)).collect();
                self.vector(parts)
            }
        }
    }

    fn vector(&mut self, parts: Vec<(usize, usize)>) -> usize {
        let words = parts.into_iter().flat_map(|(at, len)| [at.to_ne_bytes(), len.to_ne_bytes()]);
        self.keep(words.flatten().collect(), Shown::Nothing)
    }

    fn outputs(self, result: isize) -> Vec<Vec<u8>> {
        let shown = |(mut bytes, shown): (Vec<u8>, Shown)| match shown {
            Shown::Nothing => None,
            Shown::Whole => Some(bytes),
            Shown::Returned => {
                bytes.truncate(result.max(0) as usize);
                Some(bytes)
            }
        };
        self.buffers.into_iter().filter_map(shown).collect()
    }
}

/// The kernel, as this thread sees it.
pub struct Kernel;

impl Side for Kernel {
    unsafe fn raw(&self, nr: usize, args: [usize; 6]) -> isize {
        // SAFETY: the caller's promise.
        unsafe { pm::sys::raw(nr, args) }
    }
}

/// The kernel, as a thread sees it that has a root directory, descriptors and a
/// user of its own: for when our side needs the kernel as well, or is the kernel's.
pub struct KernelElsewhere {
    calls: Sender<(usize, [usize; 6])>,
    results: Receiver<Result<isize, String>>,
}

impl KernelElsewhere {
    /// Starts the thread, in a fresh root directory.
    ///
    /// # Errors
    /// As [`sandbox::own_root`].
    pub fn start() -> Result<KernelElsewhere, String> {
        KernelElsewhere::behind(|| sandbox::own_root(None))
    }

    /// Starts the thread with an existing directory, a kernel mount's, as its root.
    ///
    /// # Errors
    /// If there is no such directory, or only root may do that.
    pub fn inside(directory: &Path) -> Result<KernelElsewhere, String> {
        let directory = directory.to_owned();
        KernelElsewhere::behind(move || sandbox::enter_root(&directory))
    }

    /// Starts the thread, which first gives itself a root directory.
    fn behind(root: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<KernelElsewhere, String> {
        let (calls, asked) = channel::<(usize, [usize; 6])>();
        let (answer, results) = channel();
        std::thread::spawn(move || {
            // SAFETY: flags only.
            let alone = unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_FILES) };
            let begun = if alone == 0 { root() } else { Err("unshare".into()) };
            let _ = answer.send(begun.map(|()| 0));
            for (nr, args) in asked {
                // SAFETY: whoever asks has promised it and waits.
                let _ = answer.send(Ok(unsafe { pm::sys::raw(nr, args) }));
            }
        });
        results.recv().map_err(|e| e.to_string())??;
        Ok(KernelElsewhere { calls, results })
    }
}

impl Side for KernelElsewhere {
    unsafe fn raw(&self, nr: usize, args: [usize; 6]) -> isize {
        // Should the thread be gone, every call differs.
        let _ = self.calls.send((nr, args));
        self.results.recv().ok().and_then(Result::ok).unwrap_or(-(libc::ESRCH as isize))
    }
}

impl Side for World {
    unsafe fn raw(&self, nr: usize, args: [usize; 6]) -> isize {
        // SAFETY: the caller's promise.
        unsafe { self.serve(nr, args) }
    }

    fn become_user(&self, _user: u32) {
        self.process.credentials_changed();
    }
}

/// Makes a thread an ordinary user, or root again.
fn set_user(call: &dyn Fn(u32, &[i64]) -> isize, user: u32) {
    let (user, group) = (user as i64, user as i64);
    call(nr::__NR_setresuid, &[0, 0, 0]);
    call(nr::__NR_setresgid, &[group, group, 0]);
    // 1001 is also in group 1000.
    let groups = [1000u32];
    let count = (user == 1001) as i64;
    call(nr::__NR_setgroups, &[count, groups.as_ptr() as i64]);
    call(nr::__NR_setresuid, &[user, user, 0]);
}
