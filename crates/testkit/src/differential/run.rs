//! Runs one sequence on both sides.

use super::compare::{Clock, Tree, clear, difference, error, look, look_fd, parse_stat, read_dir, show_stat, show_statx};
use super::op::{Arg, Op, Step};
use super::side::{Kernel, Side};
use crate::world::NOBODYS;
use pm::sys::abi as nr;
use std::ffi::CStr;

/// What a backend can't do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// No shared mappings.
    pub no_shared_maps: bool,
    /// The parent of a removed directory is nowhere.
    pub no_parent_of_removed: bool,
    /// Open files may have more space than they need, and what is allocated past
    /// a file's end goes at its last close.
    pub space_ahead: bool,
    /// Of a call with two descriptors, of which one is nobody's or of another kind, which error comes first is not the kernel's order.
    pub order_of_two: bool,
    /// An open file, which is the kernel's, can't be given a name.
    pub no_link_of_open: bool,
    /// Open directories are paths: one that was removed is nothing, and each call needs the permission that opening needed (so there is one user).
    pub nodes_are_paths: bool,
    /// Who opens a file may be another user than who uses it then: what is not here is asked for with the rights that one has by then.
    pub one_user: bool,
    /// Sizes of directories are the lower file system's, since the last round.
    pub late_directory_sizes: bool,
    /// Holes may be data.
    pub holes_are_data: bool,
    /// No files without a name.
    pub no_tmpfile: bool,
    /// What was removed and is only a working directory or open with `O_PATH` is nothing: `ESTALE`.
    pub stale_when_gone: bool,
    /// Whether a lock is a process's or an open file's is known only from who asks.
    pub vague_lock_holders: bool,
    /// Nothing is copied but through the program.
    pub no_copy_range: bool,
    /// A path that begins with a mount point leads there by its text: nobody is asked for search permission above it.
    pub mounts_by_text: bool,
}

/// Calls with two names or descriptors.
const TWO: [usize; 6] = [
    nr::__NR_rename as usize,
    nr::__NR_renameat as usize,
    nr::__NR_renameat2 as usize,
    nr::__NR_link as usize,
    nr::__NR_linkat as usize,
    nr::__NR_copy_file_range as usize,
];

/// Calls about a descriptor's number, not what lies behind it.
const NUMBERS: [u32; 6] = [nr::__NR_close, nr::__NR_close_range, nr::__NR_dup, nr::__NR_dup2, nr::__NR_dup3, nr::__NR_fcntl];

/// The two sides.
pub struct Pair<'a> {
    /// The kernel, in a root directory of its own.
    pub kernel: &'a dyn Side,
    /// Ours.
    pub ours: &'a dyn Side,
    /// To tell "now".
    pub clock: Clock,
    /// What ours can't do.
    pub limits: Limits,
    /// The roots of the file systems: that of all, and where another is mounted inside.
    pub roots: &'a [&'a CStr],
    /// What else there is to do on our side.
    pub between: Option<&'a dyn Between>,
}

/// What is done on our side beside the calls of a sequence, where there is something behind it.
pub trait Between {
    /// At the start, with an empty tree: calls go past our side from now on.
    fn begin(&self) -> Result<(), String>;
    /// From now on calls go to our side.
    fn turn(&self) -> Result<(), String>;
    /// Before a call.
    fn before(&self, op: &Op) -> Result<(), String>;
    /// All that was done is behind it.
    fn drain(&self) -> Result<(), String>;
    /// How what is behind it differs from the kernel's tree.
    fn below(&self, kernel: &Tree, clock: Clock) -> Option<String>;
}

/// The share of a sequence that goes past our side, where something is behind it.
const PAST: usize = 4;

/// Where the two sides differed first.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Step number; the sequence's length if only the tree differed at the end.
    pub step: usize,
    /// How.
    pub text: String,
}

impl Pair<'_> {
    /// Runs a sequence from an empty tree and leaves an empty tree; `at` is told each step's number.
    pub fn run(&self, ops: &[Op], at: &dyn Fn(usize)) -> Result<(), Divergence> {
        let failed = |step| move |text| Divergence { step, text };
        self.between.map_or(Ok(()), |between| between.begin()).map_err(failed(0))?;
        for (step, op) in ops.iter().enumerate() {
            at(step);
            if let Some(between) = self.between {
                if step == ops.len() / PAST {
                    self.close_all();
                    between.turn().map_err(failed(step))?;
                }
                between.before(op).map_err(failed(step))?;
            }
            self.step(op).map_err(|text| Divergence { step, text: format!("{op}: {text}") })?;
        }
        at(ops.len());
        let allocates = ops.iter().any(|op| op.name == "fallocate");
        self.finish(!(self.limits.space_ahead && allocates)).map_err(|text| Divergence { step: ops.len(), text })
    }

    /// Compares the trees, then clears them.
    fn finish(&self, blocks: bool) -> Result<(), String> {
        self.close_all();
        let clock = Clock { blocks: blocks && self.between.is_none(), ..self.clock };
        let kernel = Tree::read(self.kernel, clock);
        let ours = Tree::read(self.ours, clock);
        if let Some(text) = difference(&kernel, &ours) {
            return Err(text);
        }
        if let Some(between) = self.between {
            between.turn()?;
            between.drain()?;
            if let Some(text) = between.below(&kernel, clock) {
                return Err(text);
            }
        }
        for (name, side) in [("kernel", self.kernel), ("bypath", self.ours)] {
            clear(side, self.roots).map_err(|text| format!("{name}: {text}"))?;
            self.plain_roots(side);
        }
        let (kernel, ours) = (Tree::read(self.kernel, self.clock), Tree::read(self.ours, self.clock));
        difference(&kernel, &ours).map_or(Ok(()), Err)
    }

    /// Both sides as at the start of a sequence, but for the tree.
    fn close_all(&self) {
        self.become_user(0);
        for side in [self.kernel, self.ours] {
            side.plain(nr::__NR_close_range, &[3, 800, 0]);
            side.plain(nr::__NR_umask, &[0o22]);
            side.call(nr::__NR_chdir as usize, &[Arg::Text(b"/".to_vec())]);
        }
    }

    /// Gives the roots the attributes that a sequence begins with, the innermost first.
    pub fn plain_roots(&self, side: &dyn Side) {
        for root in self.roots.iter().rev() {
            plain_root(side, root);
        }
    }

    fn become_user(&self, user: u32) {
        // This thread too, where the kernel's side is another's.
        for side in [self.kernel, &Kernel, self.ours] {
            side.become_user(user);
        }
    }

    fn step(&self, op: &Op) -> Result<(), String> {
        if self.is_about_stale(op) {
            return Ok(());
        }
        match &op.step {
            Step::User(user) => {
                // An ordinary user stays who he is.
                // SAFETY: takes no arguments.
                if unsafe { libc::getuid() } == 0 && !self.limits.nodes_are_paths && !self.limits.one_user {
                    self.become_user(*user);
                }
                Ok(())
            }
            Step::ReadDir(fd) if self.limits.nodes_are_paths && self.is_gone(&Arg::Int(*fd)) => Ok(()),
            Step::ReadDir(fd) => {
                let names = |side: &dyn Side| {
                    let entries = read_dir(side, *fd).map_err(error)?;
                    Ok::<_, String>(
                        entries.into_iter().map(|(name, (kind, _))| (name.escape_ascii().to_string(), kind)).collect::<Vec<_>>(),
                    )
                };
                same(&names(self.kernel), &names(self.ours))
            }
            Step::Map { fd, offset, len, shared, write } => self.map(*fd, *offset, *len, *shared, *write),
            Step::Call(number, args) => {
                if self.left_out(op, *number, args) {
                    return Ok(());
                }
                let (kernel, ours) = (self.kernel.call(*number, args), self.ours.call(*number, args));
                self.compare(*number, args, &kernel, &ours)?;
                self.look_after(op)
            }
        }
    }

    /// The attributes of everything the step spoke of.
    fn look_after(&self, op: &Op) -> Result<(), String> {
        for (dir, path) in op.paths().into_iter().filter(|(dir, path)| !self.lost(*dir, path) && !self.is_stale(*dir)) {
            let (k, o) = (look(self.kernel, self.clock, dir, path), look(self.ours, self.clock, dir, path));
            same(&k, &o).map_err(|text| format!("stat of \"{}\" after it: {text}", path.escape_ascii()))?;
        }
        let is_shown = |fd: &i64| {
            (3..1000).contains(fd) && !(self.limits.nodes_are_paths && self.is_gone(&Arg::Int(*fd))) && !self.is_stale(*fd)
        };
        if let Some(fd) = op.descriptor().filter(is_shown) {
            let (k, o) = (look_fd(self.kernel, self.clock, fd), look_fd(self.ours, self.clock, fd));
            same(&k, &o).map_err(|text| format!("fstat after it: {text}"))?;
        }
        Ok(())
    }

    /// Whether a step is about something that only tmpfs still has.
    fn is_about_stale(&self, op: &Op) -> bool {
        let relative = |(_, path): &(i64, &[u8])| !path.starts_with(b"/");
        let is_stale_there = || op.paths().into_iter().filter(relative).any(|(dir, _)| self.is_stale(dir));
        match &op.step {
            _ if !self.limits.stale_when_gone => false,
            Step::Call(number, _) if NUMBERS.contains(&(*number as u32)) => false,
            Step::Call(_, args) => {
                args.iter().any(|arg| matches!(arg, Arg::Int(fd) if *fd >= 0 && self.is_stale(*fd))) || is_stale_there()
            }
            Step::ReadDir(fd) | Step::Map { fd, .. } => self.is_stale(*fd),
            Step::User(_) => false,
        }
    }

    /// Whether a descriptor or the working directory is stale on our side, and may be.
    fn is_stale(&self, fd: i64) -> bool {
        let is_here = fd == libc::AT_FDCWD as i64;
        if !self.limits.stale_when_gone || !is_here && !(3..1000).contains(&fd) {
            return false;
        }
        let look = [Arg::Int(fd), Arg::Text(Vec::new()), Arg::Stat, Arg::Int(libc::AT_EMPTY_PATH as i64)];
        if self.ours.call(nr::__NR_newfstatat as usize, &look).0 != -(libc::ESTALE as isize) {
            return false;
        }
        let (result, out) = self.kernel.call(nr::__NR_newfstatat as usize, &look);
        let is_held = || self.kernel.plain(nr::__NR_fcntl, &[fd, libc::F_GETFL as i64]) & libc::O_PATH as isize == 0;
        result == 0 && parse_stat(&out[0]).st_nlink == 0 && (is_here || !is_held())
    }

    /// Calls whose result is not the same by right: opening a FIFO or device
    /// (the kernel's business), positions of directories.
    fn left_out(&self, op: &Op, number: usize, args: &[Arg]) -> bool {
        if matches!(op.name, "truncate" | "ftruncate") && self.limits.space_ahead && args[1] == Arg::Int(i64::MAX) {
            // Files of an image end earlier than the kernel's.
            return true;
        }
        if op.paths().iter().any(|(dir, path)| self.lost(*dir, path)) {
            return true;
        }
        if self.limits.mounts_by_text && !op.paths().is_empty() && (self.is_shut() || TWO.contains(&number) && ends_above(op)) {
            return true;
        }
        if op.name == "truncate" && self.keeps_length(args) {
            return true;
        }
        if self.limits.nodes_are_paths && args.iter().any(|arg| self.is_gone(arg)) {
            return true;
        }
        if self.limits.holes_are_data && number == nr::__NR_lseek as usize && matches!(args[2], Arg::Int(3 | 4)) {
            // `SEEK_DATA`, `SEEK_HOLE`.
            return true;
        }
        if self.limits.no_copy_range && number == nr::__NR_copy_file_range as usize {
            return true;
        }
        // SAFETY: takes no arguments.
        if matches!(op.name, "fchown" | "fchownat") && unsafe { libc::getuid() } != 0 {
            // In an ordinary user's namespace nobody else exists.
            return true;
        }
        if matches!(op.name, "open" | "openat" | "creat") {
            let (dir, at) = if op.name == "openat" { (args[0].clone(), 1) } else { (Arg::Int(libc::AT_FDCWD as i64), 0) };
            let flags = match args[at + 1] {
                Arg::Int(flags) if op.name != "creat" => flags as i32,
                _ => libc::O_CREAT | libc::O_WRONLY,
            };
            if self.limits.no_tmpfile && flags & libc::O_TMPFILE == libc::O_TMPFILE {
                return true;
            }
            let follow = if flags & libc::O_NOFOLLOW != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
            let look = [dir, args[at].clone(), Arg::Stat, Arg::Int(follow as i64)];
            let (result, out) = self.kernel.call(nr::__NR_newfstatat as usize, &look);
            let special = result == 0
                && !matches!(parse_stat(&out[0]).st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK);
            return special && flags & libc::O_PATH == 0;
        }
        if matches!(op.name, "link" | "linkat") {
            if matches!(args.get(4), Some(Arg::Int(f)) if *f == libc::AT_EMPTY_PATH as i64) {
                if self.limits.no_link_of_open {
                    return true;
                }
                // Allowed for as long as the credentials are those of the open; older kernels ask for more.
                // SAFETY: takes no arguments.
                return unsafe { libc::geteuid() } != 0;
            }
            // `fs.protected_hardlinks` is a setting of the machine's.
            let follow = matches!(args.get(4), Some(Arg::Int(f)) if *f == libc::AT_SYMLINK_FOLLOW as i64);
            let Some(&(dir, path)) = op.paths().first() else { return false };
            let flags = if path.is_empty() {
                libc::AT_EMPTY_PATH
            } else if follow {
                0
            } else {
                libc::AT_SYMLINK_NOFOLLOW
            };
            let look = [Arg::Int(dir), Arg::Text(path.to_vec()), Arg::Stat, Arg::Int(flags as i64)];
            let (result, out) = self.kernel.call(nr::__NR_newfstatat as usize, &look);
            // SAFETY: takes no arguments.
            let user = unsafe { libc::geteuid() };
            return result == 0 && user != 0 && parse_stat(&out[0]).st_uid != user;
        }
        if let [Arg::Int(_), Arg::Int(command), Arg::Flock(kind, whence, ..)] = args {
            // A question about one's own locks, which newer kernels answer; positions of directories.
            return *command == libc::F_OFD_GETLK as i64 && *kind == libc::F_UNLCK as i16
                || *whence == 1 && self.kind_of(&args[0]) == Some(libc::S_IFDIR);
        }
        if number == nr::__NR_lseek as usize && args[1..] != [Arg::Int(0), Arg::Int(0)] {
            return self.kind_of(&args[0]) == Some(libc::S_IFDIR);
        }
        false
    }

    /// Whether the caller may not search the root directory.
    fn is_shut(&self) -> bool {
        let ask = [
            Arg::Int(libc::AT_FDCWD as i64),
            Arg::Text(b"/.".to_vec()),
            Arg::Int(libc::X_OK as i64),
            Arg::Int(libc::AT_EACCESS as i64),
        ];
        self.kernel.call(nr::__NR_faccessat2 as usize, &ask).0 < 0
    }

    /// Whether truncating by name leaves a file as long as it is: the times stay,
    /// but in tmpfs, should the file have pages.
    fn keeps_length(&self, args: &[Arg]) -> bool {
        let look = [Arg::Int(libc::AT_FDCWD as i64), args[0].clone(), Arg::Stat, Arg::Int(0)];
        let (result, out) = self.kernel.call(nr::__NR_newfstatat as usize, &look);
        let stat = parse_stat(&out[0]);
        result == 0 && stat.st_blocks > 0 && args[1] == Arg::Int(stat.st_size)
    }

    /// Whether a path goes up from a directory that is gone; or looks in one for
    /// a name that is too long, for which there are two right errors.
    fn lost(&self, dir: i64, path: &[u8]) -> bool {
        let up = |part: &[u8]| part == b".." && self.limits.no_parent_of_removed;
        let is_doubtful = |part: &[u8]| self.limits.nodes_are_paths || up(part) || part.len() > 255;
        if path.starts_with(b"/") || !path.split(|&b| b == b'/').any(is_doubtful) {
            return false;
        }
        let look = [Arg::Int(dir), Arg::Text(b".".to_vec()), Arg::Stat, Arg::Int(0)];
        let (result, out) = self.kernel.call(nr::__NR_newfstatat as usize, &look);
        result == 0 && parse_stat(&out[0]).st_nlink == 0
    }

    /// Whether a descriptor is a directory's that was removed.
    fn is_gone(&self, fd: &Arg) -> bool {
        if !matches!(fd, Arg::Int(number) if (3..1000).contains(number)) {
            return false;
        }
        let (result, out) = self.kernel.call(nr::__NR_fstat as usize, &[fd.clone(), Arg::Stat]);
        result == 0 && {
            let stat = parse_stat(&out[0]);
            stat.st_mode & libc::S_IFMT == libc::S_IFDIR && stat.st_nlink == 0
        }
    }

    fn kind_of(&self, fd: &Arg) -> Option<u32> {
        let (result, out) = self.kernel.call(nr::__NR_fstat as usize, &[fd.clone(), Arg::Stat]);
        (result == 0).then(|| parse_stat(&out[0]).st_mode & libc::S_IFMT)
    }

    fn compare(
        &self,
        number: usize,
        args: &[Arg],
        kernel: &(isize, Vec<Vec<u8>>),
        ours: &(isize, Vec<Vec<u8>>),
    ) -> Result<(), String> {
        // Whether there is more to read at a position is each one's own order.
        let read = |result: isize| result >= 0 || result == -libc::EINVAL as isize;
        if number == nr::__NR_getdents64 as usize && read(kernel.0) && read(ours.0) {
            return Ok(());
        }
        if ours.0 == NOBODYS && kernel.0 < 0 {
            return Ok(());
        }
        if self.limits.order_of_two && TWO.contains(&number) && kernel.0 < 0 && ours.0 < 0 {
            return Ok(());
        }
        same(&error(kernel.0), &error(ours.0))?;
        let buffers = args.iter().filter(|arg| !matches!(arg, Arg::Int(_) | Arg::Text(_) | Arg::Fill(..) | Arg::IovFill(..)));
        if kernel.0 < 0 {
            return Ok(());
        }
        let mut at = 0;
        for arg in buffers {
            if let Arg::IovOut(lens) = arg {
                // One buffer each; the vector itself is not shown.
                let end = at + lens.len();
                if kernel.1[at..end] != ours.1[at..end] {
                    return Err("data differ".into());
                }
                at = end;
                continue;
            }
            let (k, o) = (&kernel.1[at], &ours.1[at]);
            at += 1;
            match arg {
                Arg::Stat => same(&show_stat(self.clock, k), &show_stat(self.clock, o))?,
                Arg::Statx => same(&show_statx(self.clock, k), &show_statx(self.clock, o))?,
                Arg::Out(_) => {
                    if k != o {
                        let place = k.iter().zip(o).position(|(a, b)| a != b);
                        return Err(format!(
                            "data differ at {place:?}: {:x?} {:x?}",
                            &k[..k.len().min(16)],
                            &o[..o.len().min(16)]
                        ));
                    }
                }
                // All but the holder.
                Arg::Flock(..) if self.limits.vague_lock_holders && is_nobody(k) | is_nobody(o) => same(&&k[..24], &&o[..24])?,
                _ => same(k, o)?,
            }
        }
        Ok(())
    }

    fn map(&self, fd: i64, offset: u64, len: usize, shared: bool, write: Option<u8>) -> Result<(), String> {
        if shared && self.limits.no_shared_maps {
            return Ok(());
        }
        let (result, out) = self.kernel.call(nr::__NR_fstat as usize, &[Arg::Int(fd), Arg::Stat]);
        let stat = parse_stat(&out[0]);
        if result < 0 || stat.st_mode & libc::S_IFMT != libc::S_IFREG || (stat.st_blocks * 512) < stat.st_size {
            // Reading a hole through a mapping allocates a page in tmpfs, and not here.
            return Ok(());
        }
        let prot = libc::PROT_READ | if write.is_some() { libc::PROT_WRITE } else { 0 };
        let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let args = [0, len as i64, prot as i64, flags as i64, fd, offset as i64];
        let (k, o) = (self.kernel.plain(nr::__NR_mmap, &args), self.ours.plain(nr::__NR_mmap, &args));
        let failed = |r: isize| (-4095..0).contains(&r);
        if failed(k) || failed(o) {
            let shown = |r: isize| if failed(r) { error(r) } else { "mapped".into() };
            if !failed(o) {
                self.ours.plain(nr::__NR_munmap, &[o as i64, len as i64]);
            }
            if !failed(k) {
                self.kernel.plain(nr::__NR_munmap, &[k as i64, len as i64]);
            }
            return if o == NOBODYS { Ok(()) } else { same(&shown(k), &shown(o)) };
        }
        let inside = (stat.st_size as u64).saturating_sub(offset).min(len as u64) as usize;
        // SAFETY: `inside` bytes of the mapping lie in the file.
        let data = |at: isize| unsafe { std::slice::from_raw_parts(at as *const u8, inside) }.to_vec();
        let mut result = if data(k) == data(o) { Ok(()) } else { Err("mapped data differ".to_string()) };
        if let Some(byte) = write {
            for at in [k, o] {
                // SAFETY: as above, and the mapping is writable.
                unsafe { std::ptr::write_bytes(at as *mut u8, byte, inside) };
            }
            if data(k) != data(o) {
                result = Err("mapped data differ after writing".into());
            }
        }
        let (k, o) = (
            self.kernel.plain(nr::__NR_munmap, &[k as i64, len as i64]),
            self.ours.plain(nr::__NR_munmap, &[o as i64, len as i64]),
        );
        result.and(same(&error(k), &error(o)))
    }
}

/// Gives a root directory the attributes that a sequence begins with.
fn plain_root(side: &dyn Side, root: &CStr) {
    let root = || Arg::Text(root.to_bytes().to_vec());
    let here = || Arg::Int(libc::AT_FDCWD as i64);
    side.call(nr::__NR_fchmodat as usize, &[here(), root(), Arg::Int(0o777)]);
    side.call(nr::__NR_fchownat as usize, &[here(), root(), Arg::Int(0), Arg::Int(0), Arg::Int(0)]);
    for xattr in [&b"user.a"[..], b"user.b", b"user.long-name-of-an-attribute", b"trusted.t"] {
        side.call(nr::__NR_removexattr as usize, &[root(), Arg::Text(xattr.to_vec())]);
    }
    side.call(nr::__NR_utimensat as usize, &[here(), root(), Arg::Int(0), Arg::Int(0)]);
}

/// Whether one of the paths ends in `..`, which may be another mount's: it is in the way of moving either way, as one or as the other.
fn ends_above(op: &Op) -> bool {
    op.paths().iter().any(|(_, path)| path.rsplit(|&b| b == b'/').find(|part| !part.is_empty()) == Some(b".."))
}

/// Whether a lock found is an open file's: its holder is no process.
fn is_nobody(flock: &[u8]) -> bool {
    flock[24..28] == [0xff; 4]
}

fn same<T: PartialEq + std::fmt::Debug>(kernel: &T, ours: &T) -> Result<(), String> {
    if kernel == ours { Ok(()) } else { Err(format!("\n    kernel {kernel:?}\n    bypath {ours:?}")) }
}
