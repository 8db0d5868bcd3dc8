//! The five programs of the paper's figures 1 and 4, by the calls that they make: what `find -name`, `du -s`, `ls -lR`,
//! `cp -r` and `rm -rf` ask of a tree (names below an open directory for those that walk by `fts`, whole paths for `ls` and
//! `cp`), and the look-ups among it, alone.

use super::place::{HERE, Place};
use libc::{O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_WRONLY};
use pm::sys::abi;
use std::ffi::{CStr, CString};
use std::path::Path;

/// The programs, in the paper's order.
pub const PROGRAMS: [&str; 5] = ["find", "du", "ls", "rm", "cp"];

/// Files longer than this are cut.
const LONGEST: u64 = 64 << 10;

/// A file or directory.
struct Entry {
    /// Below the tree, and in its directory.
    path: String,
    name: CString,
    bytes: Option<usize>,
}

/// A directory and what is in it.
struct Directory {
    path: String,
    entries: Vec<Entry>,
}

/// A tree, as a real one is.
pub struct Tree {
    directories: Vec<Directory>,
    bytes: Vec<u8>,
}

fn text(path: String) -> CString {
    CString::new(path).unwrap_or_default()
}

impl Tree {
    /// Like the directory `from`, up to so many entries. Symbolic links and others are left out.
    pub fn like(from: &Path, most: usize) -> Result<Tree, String> {
        let (mut directories, mut queue, mut count) = (Vec::new(), vec![String::new()], 0);
        while let Some(path) = queue.pop() {
            let dir = from.join(&path);
            let found = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            let mut entries = Vec::new();
            for found in found.flatten().take(most.saturating_sub(count)) {
                let (Ok(name), Ok(kind), Ok(meta)) = (found.file_name().into_string(), found.file_type(), found.metadata())
                else {
                    continue;
                };
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                if kind.is_dir() {
                    queue.push(path.clone());
                } else if !kind.is_file() {
                    continue;
                }
                let bytes = kind.is_file().then(|| meta.len().min(LONGEST) as usize);
                entries.push(Entry { path, name: text(name), bytes });
                count += 1;
            }
            directories.push(Directory { path, entries });
        }
        if count == 0 {
            return Err(format!("{}: nothing in it", from.display()));
        }
        Ok(Tree { directories, bytes: vec![0x61; LONGEST as usize] })
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.directories.iter().map(|directory| directory.entries.len()).sum()
    }

    fn at(&self, place: &Place, top: &str, path: &str) -> usize {
        let path = if path.is_empty() { top.to_string() } else { format!("{top}/{path}") };
        place.open(HERE, &text(path), O_RDONLY | O_DIRECTORY)
    }

    /// Runs a program on `top`, a copy of this tree; what it has seen.
    pub fn run(&self, place: &Place, program: &str, top: &CStr) -> u64 {
        match program {
            "cp" => self.copy(place, &top.to_string_lossy()),
            "ls" => list(place, &top.to_string_lossy()),
            _ => {
                let dir = place.open(HERE, top, O_RDONLY | O_DIRECTORY);
                let seen = walk(place, dir, program);
                place.close(dir);
                if program == "rm" {
                    place.unlink(HERE, top, libc::AT_REMOVEDIR);
                }
                seen
            }
        }
    }

    /// `cp -r`: asks for each name, makes it, writes it.
    fn copy(&self, place: &Place, top: &str) -> u64 {
        place.mkdir(&text(top.to_string()));
        for directory in &self.directories {
            for entry in &directory.entries {
                let path = text(format!("{top}/{}", entry.path));
                assert_eq!(place.stat(HERE, &path), -(libc::ENOENT as isize), "{path:?}");
                let Some(bytes) = entry.bytes else {
                    place.mkdir(&path);
                    continue;
                };
                let fd = place.open(HERE, &path, O_WRONLY | O_CREAT | O_EXCL);
                if bytes > 0 {
                    place.write(fd, &self.bytes[..bytes]);
                }
                place.close(fd);
            }
        }
        self.len() as u64
    }

    /// The look-ups of a program and nothing else, as `access` of each path that it resolves, on `top`, which is there; `timed` is
    /// given each portion of them. What `cp` asks for before it makes it is there by then.
    pub fn look_up(&self, place: &Place, program: &str, top: &str, timed: &mut dyn FnMut(&mut dyn FnMut())) {
        let whole = matches!(program, "ls" | "cp");
        for directory in &self.directories {
            let of_program = |entry: &&Entry| program != "find" || entry.bytes.is_none();
            let entries: Vec<&Entry> = directory.entries.iter().filter(of_program).collect();
            let paths: Vec<CString> = entries.iter().map(|entry| text(format!("{top}/{}", entry.path))).collect();
            let fd = self.at(place, top, &directory.path);
            // `ls`: attributes and two extended ones of each, and the directory; `cp`: asked for, made.
            let times = match program {
                "ls" => 3,
                "cp" => 2,
                _ => 1,
            };
            timed(&mut || {
                for (entry, path) in entries.iter().zip(&paths) {
                    for _ in 0..times {
                        let found = if whole { place.access(HERE, path) } else { place.access(fd, &entry.name) };
                        assert_eq!(found, 0, "{path:?}");
                    }
                    // Directories are opened, and by `rm` removed, by their names again.
                    if entry.bytes.is_none() && !whole {
                        assert_eq!(place.access(fd, &entry.name), 0, "{path:?}");
                    }
                }
            });
            place.close(fd);
        }
    }
}

/// Calls `each` with the names in an open directory, and whether they are directories.
fn entries(place: &Place, dir: usize, mut each: impl FnMut(&CStr, bool)) {
    let mut buffer = vec![0u64; 4096];
    loop {
        let got = place.good(abi::__NR_getdents64, [dir, buffer.as_mut_ptr() as usize, buffer.len() * 8, 0]);
        if got == 0 {
            return;
        }
        // SAFETY: so many bytes of the buffer were filled in.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), got) };
        let mut at = 0;
        while at < got {
            let record = usize::from(u16::from_le_bytes([bytes[at + 16], bytes[at + 17]]));
            let kind = bytes[at + 18];
            if let Ok(name) = CStr::from_bytes_until_nul(&bytes[at + 19..at + record])
                && !matches!(name.to_bytes(), b"." | b"..")
            {
                each(name, kind == libc::DT_DIR);
            }
            at += record;
        }
    }
}

/// `find`, `du` and `rm`: by names below an open directory.
fn walk(place: &Place, dir: usize, program: &str) -> u64 {
    let (mut seen, mut inner) = (0, Vec::new());
    let mut names = Vec::new();
    entries(place, dir, |name, is_dir| {
        seen += 1;
        match is_dir {
            true => inner.push(name.to_owned()),
            false => names.push(name.to_owned()),
        }
    });
    for name in &names {
        match program {
            "du" => assert_eq!(place.stat(dir, name), 0, "{name:?}"),
            "rm" => place.unlink(dir, name, 0),
            _ => {}
        }
    }
    for name in &inner {
        if program != "rm" {
            assert_eq!(place.stat(dir, name), 0, "{name:?}");
        }
        let fd = place.open(dir, name, O_RDONLY | O_DIRECTORY);
        seen += walk(place, fd, program);
        place.close(fd);
        if program == "rm" {
            place.unlink(dir, name, libc::AT_REMOVEDIR);
        }
    }
    seen
}

/// `ls -lR`: by whole paths, attributes and two extended attributes of each.
fn list(place: &Place, path: &str) -> u64 {
    let fd = place.open(HERE, &text(path.to_string()), O_RDONLY | O_DIRECTORY);
    let mut found = Vec::new();
    entries(place, fd, |name, is_dir| found.push((format!("{path}/{}", name.to_string_lossy()), is_dir)));
    place.close(fd);
    for (path, _) in &found {
        let path = text(path.clone());
        assert_eq!(place.stat(HERE, &path), 0, "{path:?}");
        for name in [c"security.selinux", c"system.posix_acl_access"] {
            let mut value = [0u8; 64];
            let args = [path.as_ptr() as usize, name.as_ptr() as usize, value.as_mut_ptr() as usize, value.len()];
            place.call(abi::__NR_lgetxattr, args);
        }
    }
    found.iter().map(|(path, is_dir)| 1 + if *is_dir { list(place, path) } else { 0 }).sum()
}
