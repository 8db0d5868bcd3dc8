//! How requests get into a FUSE daemon's process: through memory, by the library
//! that is loaded into it, or, where none can be loaded, over a socket.

use fuse_client::{DEFAULT_PERMISSIONS, READ_ONLY};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The way into a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Its calls on `/dev/fuse` are the channel's: `libbypath_daemon.so` is loaded into it.
    Memory,
    /// It has one end of a socket pair, which it takes for `/dev/fuse`; a proxy has the other.
    Socket,
}

impl Transport {
    /// As mount options name it.
    pub fn from_name(name: &str) -> Option<Transport> {
        match name {
            "memory" => Some(Transport::Memory),
            "socket" => Some(Transport::Socket),
            _ => None,
        }
    }

    /// What suits the program that a command's first word names. A script, or one that is not
    /// found, is taken for one that takes libraries.
    pub fn of_program(word: &OsStr) -> Transport {
        let takes = find(word).is_none_or(|path| {
            let file = File::open(&path);
            // What may be executed and not read can't be looked into; the loader can.
            !changes_rights(&path) && file.map_or(true, |file| examine(&file).is_none_or(Program::takes_libraries))
        });
        if takes { Transport::Memory } else { Transport::Socket }
    }
}

/// Whether Go's linker has made the program that a command's first word names.
pub fn is_go_program(word: &OsStr) -> bool {
    let file = find(word).and_then(|path| File::open(path).ok());
    file.and_then(|file| examine(&file)).is_some_and(|program| program.by_go)
}

/// Where `execvp` would find a program.
pub fn find(word: &OsStr) -> Option<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(word)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_program = |path: &PathBuf| path.metadata().is_ok_and(|about| about.is_file() && about.mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|dir| dir.join(word)).find(is_program)
}

/// Whether a program has other rights than who starts it: the loader then takes no library from them.
pub fn changes_rights(path: &Path) -> bool {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let by_mode = path.metadata().is_ok_and(|about| {
        about.mode() & 0o4000 != 0 && about.uid() != uid.as_raw() || about.mode() & 0o2000 != 0 && about.gid() != gid.as_raw()
    });
    by_mode || !uid.is_root() && rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok()
}

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// More program headers, and longer notes, no linker makes.
const HEADERS_MAX: u64 = 128;
const NOTE_MAX: usize = 4096;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

/// The little-endian number of `len` bytes at `at` (0 past the end).
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let part = bytes.get(at..at + len).unwrap_or(&[]);
    part.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// What a program's file tells of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Program {
    has_loader: bool,
    by_go: bool,
}

impl Program {
    /// Whether our library, loaded into it, would see its calls: it has a loader, and is not
    /// Go's, whose programs call the kernel themselves also where they have one.
    fn takes_libraries(self) -> bool {
        self.has_loader && !self.by_go
    }
}

/// `None` for what is no program.
fn examine(mut file: &File) -> Option<Program> {
    let mut head = [0u8; HEADER];
    file.read_exact(&mut head).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let mut program = Program::default();
    // 64 bits, little-endian: as our libraries are.
    if head[4] != 2 || head[5] != 1 || number(&head, 54, 2) != PROGRAM_HEADER as u64 {
        return Some(program);
    }
    let (start, count) = (number(&head, 32, 8), number(&head, 56, 2).min(HEADERS_MAX));
    for index in 0..count {
        let mut entry = [0u8; PROGRAM_HEADER];
        file.read_exact_at(&mut entry, start.checked_add(index * PROGRAM_HEADER as u64)?).ok()?;
        match number(&entry, 0, 4) {
            PT_INTERP => program.has_loader = true,
            PT_NOTE => {
                let mut notes = vec![0u8; (number(&entry, 32, 8) as usize).min(NOTE_MAX)];
                program.by_go |= file.read_exact_at(&mut notes, number(&entry, 8, 8)).is_ok() && is_by_go(&notes);
            }
            _ => {}
        }
    }
    Some(program)
}

/// Whether one of the notes is by Go's linker.
fn is_by_go(notes: &[u8]) -> bool {
    let mut rest = notes;
    while rest.len() >= 12 {
        let (name, text) = (number(rest, 0, 4) as usize, number(rest, 4, 4) as usize);
        if rest[12..].starts_with(b"Go\0\0") && name == 4 {
            return true;
        }
        rest = rest.get(12 + name.next_multiple_of(4) + text.next_multiple_of(4)..).unwrap_or(&[]);
    }
    false
}

/// What a daemon's `-o` options would have told the kernel at its mount, of which there is none over a socket.
pub fn mount_flags(words: &[OsString]) -> u32 {
    let mut flags = 0;
    let mut words = words.iter().map(|word| word.as_bytes());
    while let Some(word) = words.next() {
        let Some(rest) = word.strip_prefix(b"-o") else { continue };
        let options = if rest.is_empty() { words.next().unwrap_or(b"") } else { rest };
        for option in options.split(|&byte| byte == b',') {
            match option {
                b"default_permissions" => flags |= DEFAULT_PERMISSIONS,
                b"ro" => flags |= READ_ONLY,
                _ => {}
            }
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// An ELF file with these program headers (type, contents).
    fn program(parts: &[(u32, &[u8])]) -> File {
        let mut bytes = vec![0u8; HEADER + parts.len() * PROGRAM_HEADER];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = HEADER as u8;
        bytes[54] = PROGRAM_HEADER as u8;
        bytes[56] = parts.len() as u8;
        for (index, (kind, contents)) in parts.iter().enumerate() {
            let at = HEADER + index * PROGRAM_HEADER;
            let offset = bytes.len() as u64;
            bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            bytes[at + 32..at + 40].copy_from_slice(&(contents.len() as u64).to_le_bytes());
            bytes.extend(*contents);
        }
        file(&bytes)
    }

    fn file(bytes: &[u8]) -> File {
        let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(memory);
        file.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        file
    }

    /// Goal: programs without a loader, Go's and those of another word length are told from the others.
    #[test]
    fn programs() {
        let gnu = b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0....";
        let go = b"\x04\0\0\0\x03\0\0\0\x04\0\0\0Go\0\0abc\0";
        let both = [&gnu[..], go].concat();
        let found = |has_loader, by_go| Some(Program { has_loader, by_go });
        assert_eq!(examine(&program(&[(1, b""), (3, b"/lib/ld.so\0"), (4, gnu)])), found(true, false));
        assert_eq!(examine(&program(&[(1, b""), (4, gnu)])), found(false, false), "static");
        assert_eq!(examine(&program(&[(3, b"/lib/ld.so\0"), (4, &both)])), found(true, true), "Go's");
        assert_eq!(
            examine(&program(&[(3, b"/lib/ld.so\0"), (4, b"\xff\xff\xff\xff\xff\xff\xff\xffxxxxxxxx")])),
            found(true, false)
        );
        assert!(found(true, false).is_some_and(Program::takes_libraries));
        assert!(![found(true, true), found(false, false)].into_iter().flatten().any(Program::takes_libraries));
        let mut short = [0u8; 64];
        short[..6].copy_from_slice(b"\x7fELF\x01\x01");
        assert_eq!(examine(&file(&short)), found(false, false), "32 bits");
        assert_eq!(examine(&file(b"#!/bin/sh\n")), None);
        assert_eq!(Transport::of_program(OsStr::new("/nonexistent/daemon")), Transport::Memory);
    }

    /// Goal: options are found where libfuse's parser finds them.
    #[test]
    fn options() {
        let flags = |text: &str| mount_flags(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(flags("d -f @"), 0);
        assert_eq!(flags("d -o allow_other,default_permissions @"), DEFAULT_PERMISSIONS);
        assert_eq!(flags("d @ -oro -o x=default_permissions"), READ_ONLY);
        assert_eq!(flags("d @ ro -o"), 0);
    }
}
