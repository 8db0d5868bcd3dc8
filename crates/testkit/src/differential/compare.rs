//! What has to be equal, and what may differ.
//!
//! Not compared: device and inode numbers (but which names share an inode
//! is), access times unless set to a moment of the sequence's own, sizes of
//! blocks of what is not a regular file (tmpfs keeps long symlinks in a page).
//! Times of the run's own ("now") count as equal.

use super::op::Arg;
use super::side::Side;
use pm::sys::abi as nr;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ffi::CStr;

/// When the run began, to tell "now" from a time that was set; and what else to compare.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Seconds since the epoch.
    pub start: i64,
    /// Whether allocated space is compared.
    pub blocks: bool,
    /// Whether sizes of directories are.
    pub directories: bool,
}

impl Clock {
    /// Started now, with a margin for coarse clocks.
    pub fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Clock { start: now.map_or(0, |d| d.as_secs() as i64) - 2, blocks: true, directories: true }
    }

    fn size(self, mode: u32, size: i64) -> i64 {
        if self.directories || mode & libc::S_IFMT != libc::S_IFDIR { size } else { 0 }
    }

    fn shown(self, seconds: i64, nanoseconds: i64) -> String {
        if (self.start..self.start + 100_000).contains(&seconds) { "now".into() } else { format!("{seconds}.{nanoseconds:09}") }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

fn long(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, i64::from_ne_bytes)
}

/// A `struct stat`, read from its bytes.
pub fn parse_stat(bytes: &[u8]) -> libc::stat {
    assert!(bytes.len() >= size_of::<libc::stat>());
    // SAFETY: long enough, and every bit pattern is a `stat`.
    unsafe { bytes.as_ptr().cast::<libc::stat>().read_unaligned() }
}

/// `stat` as text, without what may differ.
pub fn show_stat(clock: Clock, bytes: &[u8]) -> String {
    let s = parse_stat(bytes);
    let regular = s.st_mode & libc::S_IFMT == libc::S_IFREG;
    format!(
        "mode {:o} nlink {} uid {} gid {} rdev {:x} size {} blocks {} blksize {} mtime {} ctime {}",
        s.st_mode,
        s.st_nlink,
        s.st_uid,
        s.st_gid,
        s.st_rdev,
        clock.size(s.st_mode, s.st_size),
        if regular && clock.blocks { s.st_blocks } else { 0 },
        s.st_blksize,
        clock.shown(s.st_mtime, s.st_mtime_nsec),
        clock.shown(s.st_ctime, s.st_ctime_nsec),
    )
}

/// `statx` as text, without what may differ.
pub fn show_statx(clock: Clock, bytes: &[u8]) -> String {
    assert!(bytes.len() >= size_of::<libc::statx>());
    // SAFETY: long enough, and every bit pattern is a `statx`.
    let s = unsafe { bytes.as_ptr().cast::<libc::statx>().read_unaligned() };
    let regular = s.stx_mode as u32 & libc::S_IFMT == libc::S_IFREG;
    format!(
        "mask {:x} mode {:o} nlink {} uid {} gid {} size {} blocks {} mtime {} ctime {}",
        s.stx_mask & 0x7ff & !0x20,
        s.stx_mode,
        s.stx_nlink,
        s.stx_uid,
        s.stx_gid,
        clock.size(s.stx_mode.into(), s.stx_size as i64),
        if regular && clock.blocks { s.stx_blocks } else { 0 },
        clock.shown(s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec as i64),
        clock.shown(s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec as i64),
    )
}

/// `lstat` of a path, or the error, as text.
pub fn look(side: &dyn Side, clock: Clock, dir: i64, path: &[u8]) -> String {
    let args = [Arg::Int(dir), Arg::Text(path.to_vec()), Arg::Stat, Arg::Int(libc::AT_SYMLINK_NOFOLLOW as i64)];
    let (result, out) = side.call(nr::__NR_newfstatat as usize, &args);
    if result < 0 { error(result) } else { show_stat(clock, &out[0]) }
}

/// `fstat`, or the error, as text.
pub fn look_fd(side: &dyn Side, clock: Clock, fd: i64) -> String {
    let (result, out) = side.call(nr::__NR_fstat as usize, &[Arg::Int(fd), Arg::Stat]);
    // A descriptor that nobody has.
    let result = if result == crate::world::NOBODYS { -9 } else { result };
    if result < 0 { error(result) } else { show_stat(clock, &out[0]) }
}

/// A result as text.
pub fn error(result: isize) -> String {
    if [-libc::ELOOP as isize, -libc::ENAMETOOLONG as isize].contains(&result) {
        // A symlink that leads to itself and grows with every turn is either.
        return "ELOOP or ENAMETOOLONG".into();
    }
    if (-4095..0).contains(&result) { pm::Errno(-result as i32).to_string() + &format!("({result})") } else { result.to_string() }
}

/// All entries of an open directory, name to type, or the error.
pub fn read_dir(side: &dyn Side, fd: i64) -> Result<BTreeMap<Vec<u8>, (u8, u64)>, isize> {
    let rewound = match side.plain(nr::__NR_lseek, &[fd, 0, 0]) {
        crate::world::NOBODYS => -9,
        result => result,
    };
    if rewound < 0 {
        return Err(rewound);
    }
    let mut entries = BTreeMap::new();
    loop {
        let (got, out) = side.call(nr::__NR_getdents64 as usize, &[Arg::Int(fd), Arg::Out(700), Arg::Int(700)]);
        if got <= 0 {
            return if got == 0 { Ok(entries) } else { Err(got) };
        }
        let mut rest = &out[0][..];
        while rest.len() > 19 {
            let len = u16::from_ne_bytes([rest[16], rest[17]]) as usize;
            let name = rest[19..len].split(|&b| b == 0).next().unwrap_or_default();
            let before = entries.insert(name.to_vec(), (rest[18], long(rest, 0) as u64));
            if before.is_some() {
                // Reported as an impossible error, so that it differs from the kernel.
                return Err(-4000);
            }
            rest = &rest[len..];
        }
    }
}

/// A whole tree as text lines: attributes, contents, attributes' values.
pub struct Tree {
    /// One line or more a node.
    pub lines: Vec<String>,
    clock: Clock,
    /// Device and inode number → first path seen.
    seen: HashMap<(u64, u64), String>,
}

impl Tree {
    /// Reads all there is under `/`.
    pub fn read(side: &dyn Side, clock: Clock) -> Tree {
        let mut tree = Tree { lines: Vec::new(), clock, seen: HashMap::new() };
        let_in(side, libc::AT_FDCWD as i64, b"/");
        let (root, _) = side.call(
            nr::__NR_openat as usize,
            &[
                Arg::Int(libc::AT_FDCWD as i64),
                Arg::Text(b"/".to_vec()),
                Arg::Int((libc::O_RDONLY | libc::O_DIRECTORY) as i64),
                Arg::Int(0),
            ],
        );
        tree.directory(side, root as i64, "");
        side.plain(nr::__NR_close, &[root as i64]);
        tree
    }

    fn directory(&mut self, side: &dyn Side, fd: i64, at: &str) {
        self.lines.push(format!("{at}/ {}", look_fd(side, self.clock, fd)));
        let entries = match read_dir(side, fd) {
            Ok(entries) => entries,
            Err(code) => return self.lines.push(format!("{at}/ unreadable: {}", error(code))),
        };
        for (name, (kind, ino)) in entries {
            if name != b"." && name != b".." {
                self.entry(side, fd, at, &name, (kind, ino));
            }
        }
    }

    fn entry(&mut self, side: &dyn Side, dir: i64, at: &str, name: &[u8], (kind, ino): (u8, u64)) {
        let path = format!("{at}/{}", name.escape_ascii());
        let args = [Arg::Int(dir), Arg::Text(name.to_vec()), Arg::Stat, Arg::Int(libc::AT_SYMLINK_NOFOLLOW as i64)];
        let (result, out) = side.call(nr::__NR_newfstatat as usize, &args);
        if result < 0 {
            return self.lines.push(format!("{path}: listed, but {}", error(result)));
        }
        let stat = parse_stat(&out[0]);
        let mut line = format!("{path} d_type {kind} {}", show_stat(self.clock, &out[0]));
        if stat.st_ino != ino {
            // As where something is mounted on it.
            line += " d_ino is not st_ino";
        }
        let node = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.seen.get(&node) {
            line += &format!(" same as {first}");
        } else {
            self.seen.insert(node, path.clone());
        }
        self.lines.push(line);
        let open = |flags: i32| {
            let_in(side, dir, name);
            let args = [Arg::Int(dir), Arg::Text(name.to_vec()), Arg::Int((flags | libc::O_NOFOLLOW) as i64), Arg::Int(0)];
            side.call(nr::__NR_openat as usize, &args).0 as i64
        };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                let fd = open(libc::O_RDONLY | libc::O_DIRECTORY);
                self.directory(side, fd, &path);
                self.attributes(side, fd, &path);
                side.plain(nr::__NR_close, &[fd]);
            }
            libc::S_IFREG => {
                let fd = open(libc::O_RDONLY);
                self.contents(side, fd, &path);
                self.attributes(side, fd, &path);
                side.plain(nr::__NR_close, &[fd]);
            }
            libc::S_IFLNK => {
                let args = [Arg::Int(dir), Arg::Text(name.to_vec()), Arg::Out(4096), Arg::Int(4096)];
                let (result, out) = side.call(nr::__NR_readlinkat as usize, &args);
                self.lines.push(format!("{path} -> {result} {}", out[0].escape_ascii()));
            }
            _ => {}
        }
    }

    /// Length and checksum of the data.
    fn contents(&mut self, side: &dyn Side, fd: i64, path: &str) {
        let mut sum = 0xcbf2_9ce4_8422_2325u64;
        let mut offset = 0i64;
        let end = loop {
            // Big holes hold nothing to see.
            let data = side.plain(nr::__NR_lseek, &[fd, offset, libc::SEEK_DATA as i64]);
            if data < 0 {
                break error(data);
            }
            offset = offset.max(data as i64);
            let args = [Arg::Int(fd), Arg::Out(1 << 16), Arg::Int(1 << 16), Arg::Int(offset)];
            let (got, out) = side.call(nr::__NR_pread64 as usize, &args);
            if got <= 0 {
                break format!("read at {offset}: {}", error(got));
            }
            // Zeroes may be a hole on one side and data on the other.
            let bytes = out[0].iter().enumerate().filter(|(_, b)| **b != 0);
            sum = bytes.fold(sum, |sum, (at, &b)| {
                sum.wrapping_add((b as u64 + 1).wrapping_mul((offset as u64 + at as u64).wrapping_mul(0x100_0000_01b3) | 1))
            });
            offset += got as i64;
        };
        self.lines.push(format!("{path} data {end} sum {sum:x}"));
    }

    fn attributes(&mut self, side: &dyn Side, fd: i64, path: &str) {
        let (got, out) = side.call(nr::__NR_flistxattr as usize, &[Arg::Int(fd), Arg::Out(4096), Arg::Int(4096)]);
        if got < 0 {
            return self.lines.push(format!("{path} attributes: {}", error(got)));
        }
        let mut names: Vec<&[u8]> = out[0].split(|&b| b == 0).filter(|n| !n.is_empty()).collect();
        names.sort();
        for name in names {
            let args = [Arg::Int(fd), Arg::Text(name.to_vec()), Arg::Out(4096), Arg::Int(4096)];
            let (got, out) = side.call(nr::__NR_fgetxattr as usize, &args);
            self.lines.push(format!("{path} {} = {got} {:x?}", name.escape_ascii(), &out[0].iter().take(8).collect::<Vec<_>>()));
        }
    }
}

/// The first line in which two trees differ.
pub fn difference(kernel: &Tree, ours: &Tree) -> Option<String> {
    for at in 0..kernel.lines.len().max(ours.lines.len()) {
        let (k, o) = (kernel.lines.get(at), ours.lines.get(at));
        if k != o {
            let shown = |line: Option<&String>| line.cloned().unwrap_or_else(|| "(nothing)".into());
            return Some(format!("tree:\n    kernel {}\n    bypath {}", shown(k), shown(o)));
        }
    }
    None
}

/// Removes all there is under `/`, but for those of the file systems' `roots` that are there.
pub fn clear(side: &dyn Side, roots: &[&CStr]) -> Result<(), String> {
    let_in(side, libc::AT_FDCWD as i64, b"/");
    let (root, _) = side.call(
        nr::__NR_openat as usize,
        &[
            Arg::Int(libc::AT_FDCWD as i64),
            Arg::Text(b"/".to_vec()),
            Arg::Int((libc::O_RDONLY | libc::O_DIRECTORY) as i64),
            Arg::Int(0),
        ],
    );
    let is_root = |name: &[u8]| roots.iter().any(|root| root.to_bytes().strip_prefix(b"/") == Some(name));
    let result = clear_directory(side, root as i64, &is_root);
    side.plain(nr::__NR_close, &[root as i64]);
    result
}

/// Gives whoever is not root the permission to open what is his.
fn let_in(side: &dyn Side, dir: i64, name: &[u8]) {
    // SAFETY: takes no arguments.
    if unsafe { libc::getuid() } != 0 {
        side.call(nr::__NR_fchmodat as usize, &[Arg::Int(dir), Arg::Text(name.to_vec()), Arg::Int(0o700)]);
    }
}

/// Removes all there is in a directory; what `is_kept` is emptied only.
fn clear_directory(side: &dyn Side, fd: i64, is_kept: &dyn Fn(&[u8]) -> bool) -> Result<(), String> {
    let entries = read_dir(side, fd).map_err(|code| format!("clearing: readdir {}", error(code)))?;
    for (name, (kind, _)) in entries {
        if name == b"." || name == b".." {
            continue;
        }
        let mut flags = 0;
        if kind == libc::DT_DIR {
            let_in(side, fd, &name);
            let args =
                [Arg::Int(fd), Arg::Text(name.clone()), Arg::Int((libc::O_RDONLY | libc::O_DIRECTORY) as i64), Arg::Int(0)];
            let below = side.call(nr::__NR_openat as usize, &args).0 as i64;
            clear_directory(side, below, &|_| false)?;
            side.plain(nr::__NR_close, &[below]);
            flags = libc::AT_REMOVEDIR;
        }
        let args = [Arg::Int(fd), Arg::Text(name.clone()), Arg::Int(flags as i64)];
        let (result, _) = side.call(nr::__NR_unlinkat as usize, &args);
        if result < 0 && !(is_kept(&name) && result == -(libc::EBUSY as isize)) {
            return Err(format!("clearing: unlink {}: {}", name.escape_ascii(), error(result)));
        }
    }
    Ok(())
}
