//! How a program will get at the mounts of a session.

use crate::mounts::transport;
use posix::own_calls::{self, KNOWN};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Segment types: code and data, the loader's name.
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
/// Scripts may name scripts as their interpreters, as often.
const INTERPRETERS_MAX: usize = 4;
/// As much of a program as the library looks at.
const HEAD_BYTES: usize = 4096;

/// How it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The library is loaded into it.
    Library,
    /// So it is, but some of its calls go past it.
    LibraryInPart,
    /// The library maps it, and the kernel hands its calls to the library.
    Mapped,
    /// By a kernel mount alone.
    Kernel,
    /// Not at all.
    None,
}

/// How an object's calls come to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// It calls functions of libc, which the library has as well.
    Functions,
    /// Its own system calls are handed back; those that come often by a jump in their place.
    HandedBack,
    /// A filter hands them back, by where it lies.
    Filter,
    /// Its own system calls go past the library.
    Past,
}

/// The program, or a library that it needs.
#[derive(Debug, Serialize)]
pub struct Object {
    /// Where it is.
    pub path: PathBuf,
    /// How its calls come.
    pub by: By,
}

/// What was found out about a program.
#[derive(Debug, Serialize)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// What runs it, if it is a script.
    pub interpreter: Option<PathBuf>,
    /// The loader's path; nothing if it is static.
    pub loader: Option<String>,
    /// It needs no loader.
    pub is_static: bool,
    /// It runs with other rights than those of whoever starts it.
    pub is_set_id: bool,
    /// For musl.
    pub is_musl: bool,
    /// Go's compiler made it.
    pub is_go: bool,
    /// It makes system calls that take paths itself, not by the C library.
    pub own_calls: bool,
    /// The libraries that it needs that do so too.
    pub libraries_with_own_calls: Vec<PathBuf>,
    /// It, and what it needs, where the library can be loaded or map it.
    pub objects: Vec<Object>,
    /// How it is served.
    pub way: Way,
    /// Why so, in a sentence; and what to do.
    pub why: String,
}

/// Where the program of this name is, as a shell finds it.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') { Some(PathBuf::from(name)) } else { transport::find(name) }
}

/// Looks at the program at `path`.
pub fn look(path: &Path) -> std::io::Result<Program> {
    let mut program = Program {
        path: path.to_path_buf(),
        interpreter: None,
        loader: None,
        is_static: false,
        is_set_id: false,
        is_musl: false,
        is_go: false,
        own_calls: false,
        libraries_with_own_calls: Vec::new(),
        objects: Vec::new(),
        way: Way::Library,
        why: String::new(),
    };
    let mut real = path.to_path_buf();
    let mut text = read(&real)?;
    for _ in 0..INTERPRETERS_MAX {
        match interpreter(&text) {
            Some(next) => (text, real) = (read(&next)?, next),
            None => break,
        }
        program.interpreter = Some(real.clone());
    }
    program.judge(&real, &text);
    Ok(program)
}

impl Program {
    fn judge(&mut self, real: &Path, text: &[u8]) {
        self.is_set_id = transport::changes_rights(real);
        if !own_calls::is_elf(text) || text.get(18..20) != Some(&own_machine()[..]) {
            (self.way, self.why) = if text.starts_with(b"\x7fELF") {
                (Way::Kernel, "it is of 32 bits, or another processor's: the library can't be loaded into it".to_string())
            } else {
                (Way::None, "it is no program that the kernel can start".to_string())
            };
            return;
        }
        self.loader = own_calls::segments(text).find(|(kind, ..)| *kind == INTERPRETER).map(|(_, at, len, _)| {
            let name = text.get(at as usize..(at + len) as usize).unwrap_or(b"");
            String::from_utf8_lossy(name).trim_end_matches('\0').to_string()
        });
        self.is_static = self.loader.is_none() && !is_loader(real);
        self.is_musl = self.loader.as_deref().is_some_and(|loader| loader.contains("ld-musl"));
        self.is_go = own_calls::is_go(text);
        self.own_calls = makes_calls(text);
        if let Some(loader) = self.loader.as_ref().filter(|_| !self.is_set_id && !self.is_musl) {
            let own_calls = if is_handed_back() { By::HandedBack } else { By::Past };
            let by = |own: bool| if own { own_calls } else { By::Functions };
            self.objects.push(Object { path: real.to_path_buf(), by: by(self.own_calls) });
            for path in needed(Path::new(loader), real) {
                let own = read(&path).is_ok_and(|text| makes_calls(&text));
                self.objects.push(Object { path: path.clone(), by: by(own) });
                if own {
                    self.libraries_with_own_calls.push(path);
                }
            }
        }
        let head = &text[..text.len().min(HEAD_BYTES)];
        let can_be_mapped = own_calls::can_be_mapped(head)
            && (is_handed_back() || pm::dispatch::can_trap())
            && pm::dispatch::bases() != pm::dispatch::Bases::Never;
        (self.way, self.why) = self.way(can_be_mapped);
        if self.way == Way::Mapped {
            let by = if is_handed_back() { By::HandedBack } else { By::Filter };
            let paths = [Some(real.to_path_buf()), self.loader.as_ref().map(PathBuf::from)];
            self.objects = paths.into_iter().flatten().map(|path| Object { path, by }).collect();
        }
    }

    fn way(&self, can_be_mapped: bool) -> (Way, String) {
        let kernel = "mkdir the mount point, and have /dev/fuse, so that there is one";
        let what = if self.is_go { "Go's" } else { "static" };
        let (way, why) = match () {
            () if self.is_set_id => (Way::Kernel, format!("set-id programs are not given libraries; they see a kernel mount: {kernel}")),
            () if can_be_mapped && self.is_static => (
                Way::Mapped,
                format!("it is {what}: the library maps it, and the kernel hands its system calls to the library; a kernel mount serves it too"),
            ),
            () if can_be_mapped && self.is_musl => (
                Way::Mapped,
                "it is for musl: the library maps it and its loader, and the kernel hands its system calls to the library; a kernel mount serves it too".to_string(),
            ),
            () if self.is_static => (Way::Kernel, format!("it is {what}, and loads no libraries; it sees a kernel mount: {kernel}")),
            () if self.is_musl => (Way::Kernel, format!("it is for musl, and the library for glibc; it sees a kernel mount: {kernel}")),
            () if self.own_calls && is_handed_back() => (
                Way::Library,
                "it makes system calls of its own; the kernel hands them to the library".to_string(),
            ),
            () if self.own_calls => (
                Way::LibraryInPart,
                format!("it makes system calls of its own, which go past the library; with a kernel mount it sees all: {kernel}"),
            ),
            () if self.libraries_with_own_calls.is_empty() => (Way::Library, "its calls come through the library".to_string()),
            () if is_handed_back() => {
                (Way::Library, "its calls come through the library, or the kernel hands them to it".to_string())
            }
            () => (Way::LibraryInPart, format!("libraries make system calls of their own, which go past ours; a kernel mount has all: {kernel}")),
        };
        (way, why)
    }
}

/// The programs that only a kernel mount serves on this machine.
pub fn past_library() -> &'static str {
    match is_handed_back() || pm::dispatch::can_trap() {
        true => "set-uid programs",
        false => "static and set-uid programs",
    }
}

/// Whether the kernel hands calls back by itself.
fn is_handed_back() -> bool {
    pm::dispatch::how() != pm::dispatch::How::Never
}

/// Whether a program or library makes such calls about the session's files.
fn makes_calls(text: &[u8]) -> bool {
    let mut code = own_calls::segments(text).filter(|(kind, _, _, runs)| *kind == LOAD && *runs);
    let mut makes =
        || code.any(|(_, at, len, _)| text.get(at as usize..(at + len) as usize).is_some_and(own_calls::calls_with_paths));
    cfg!(target_arch = "x86_64") && makes() && !KNOWN.iter().any(|name| own_calls::find(text, name).is_some())
}

/// The libraries that a program needs, as its loader finds them; those of libc's own are left out.
fn needed(loader: &Path, program: &Path) -> Vec<PathBuf> {
    let Ok(program) = std::path::absolute(program) else { return Vec::new() };
    let Ok(said) = Command::new(loader).arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::null()).output() else {
        return Vec::new();
    };
    let words = said.stdout.split(|byte| b" \t\n".contains(byte)).filter(|word| word.starts_with(b"/"));
    let paths = words.filter(|word| !own_calls::is_of_libc(word)).map(|word| PathBuf::from(OsStr::from_bytes(word)));
    paths.filter(|path| !path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libbypath_"))).collect()
}

/// Whether that is a loader itself, which takes our library though it has no loader.
fn is_loader(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux") || name.as_bytes() == b"ld.so")
}

/// What stands in the header of programs for this processor.
fn own_machine() -> [u8; 2] {
    if cfg!(target_arch = "aarch64") { [183, 0] } else { [62, 0] }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Of a script's first line; what `env` is given is what runs it.
fn interpreter(text: &[u8]) -> Option<PathBuf> {
    let line = text.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let mut words = line.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty());
    let first = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    match named {
        Some(name) if first.ends_with("env") => transport::find(OsStr::from_bytes(name)).or(Some(first)),
        _ => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: this program, which depends on the C library, and a script that it could run are known for what they are.
    #[test]
    fn programs() {
        let own = std::env::current_exe().unwrap();
        let found = look(&own).unwrap();
        assert!(!found.is_static && !found.is_musl && !found.is_go && found.loader.is_some(), "{found:?}");
        let own_calls: Vec<_> =
            found.objects.iter().skip(1).filter(|object| object.by != By::Functions).map(|object| &object.path).collect();
        assert_eq!(found.objects[0].path, own);
        assert_eq!(own_calls, found.libraries_with_own_calls.iter().collect::<Vec<_>>());
        let script = std::env::temp_dir().join(format!("bypath-doctor-{}", std::process::id()));
        std::fs::write(&script, format!("#!{} x\n", own.display())).unwrap();
        let by = look(&script).unwrap();
        assert_eq!((by.interpreter.as_deref(), by.way), (Some(own.as_path()), found.way));
        std::fs::write(&script, "just text\n").unwrap();
        assert_eq!(look(&script).unwrap().way, Way::None);
        std::fs::write(&script, b"\x7fELF\x01\x01").unwrap();
        assert_eq!(look(&script).unwrap().way, Way::Kernel);
        std::fs::remove_file(&script).unwrap();
        assert!(look(&script).is_err());
    }
}
