//! One call of a sequence: a template that each side fills in for itself.

use std::fmt;

/// An argument. Buffers are made anew for each side.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A number, also a descriptor.
    Int(i64),
    /// A NUL-terminated text.
    Text(Vec<u8>),
    /// A source of that many bytes, counted up from the first.
    Fill(u8, usize),
    /// A destination; as many bytes as the call returns are compared.
    Out(usize),
    /// A `struct stat`, compared.
    Stat,
    /// A `struct statx`, compared.
    Statx,
    /// Numbers read and perhaps written by the call, compared.
    Words(Vec<i64>),
    /// A `struct flock` {type, whence, start, len}, compared.
    Flock(i16, i16, i64, i64),
    /// A vector of sources.
    IovFill(u8, Vec<usize>),
    /// A vector of destinations.
    IovOut(Vec<usize>),
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The system call with this number.
    Call(usize, Vec<Arg>),
    /// Reads a directory from its start to its end; the sets of entries are compared.
    ReadDir(i64),
    /// Becomes another user: 0 is root.
    User(u32),
    /// Maps `len` bytes of a descriptor at an offset, shared or private, and
    /// reads and (if told) writes what lies inside the file.
    #[allow(missing_docs)]
    Map { fd: i64, offset: u64, len: usize, shared: bool, write: Option<u8> },
}

/// A step with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// For reports.
    pub name: &'static str,
    /// What it does.
    pub step: Step,
}

impl Op {
    /// A system call.
    pub fn call(name: &'static str, nr: u32, args: impl Into<Vec<Arg>>) -> Op {
        Op { name, step: Step::Call(nr as usize, args.into()) }
    }

    /// Paths in it, each with the directory it is relative to.
    pub fn paths(&self) -> Vec<(i64, &[u8])> {
        let Step::Call(_, args) = &self.step else { return Vec::new() };
        let mut found = Vec::new();
        for (at, arg) in args.iter().enumerate() {
            if let Arg::Text(text) = arg {
                if self.name.contains("xattr") && at == 1 || self.name.starts_with("symlink") && at == 0 {
                    continue;
                }
                let dir = match at.checked_sub(1).map(|before| &args[before]) {
                    Some(Arg::Int(dir)) if self.name.ends_with("at") || self.name.contains("at2") || self.name == "statx" => *dir,
                    _ => libc::AT_FDCWD as i64,
                };
                found.push((dir, text.as_slice()));
            }
        }
        found
    }

    /// The descriptor it is about.
    pub fn descriptor(&self) -> Option<i64> {
        match &self.step {
            Step::Call(_, args) => match args.first() {
                Some(Arg::Int(fd)) if *fd >= 0 => Some(*fd),
                _ => None,
            },
            Step::ReadDir(fd) | Step::Map { fd, .. } => Some(*fd),
            Step::User(_) => None,
        }
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Int(n) if *n == libc::AT_FDCWD as i64 => write!(f, "AT_FDCWD"),
            Arg::Int(n) if *n > 9 => write!(f, "{n:#o}"),
            Arg::Int(n) => write!(f, "{n}"),
            Arg::Text(text) if text.len() > 60 => write!(f, "\"{}…\"[{}]", text[..20].escape_ascii(), text.len()),
            Arg::Text(text) => write!(f, "\"{}\"", text.escape_ascii()),
            Arg::Fill(byte, len) => write!(f, "<{byte:#x}… {len}>"),
            Arg::Out(len) => write!(f, "out[{len}]"),
            Arg::Stat | Arg::Statx => write!(f, "&stat"),
            Arg::Words(words) => write!(f, "{words:?}"),
            Arg::Flock(kind, whence, start, len) => write!(f, "flock({kind},{whence},{start},{len})"),
            Arg::IovFill(byte, lens) => write!(f, "<{byte:#x}… {lens:?}>"),
            Arg::IovOut(lens) => write!(f, "out{lens:?}"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Step::Call(_, args) => {
                write!(f, "{}(", self.name)?;
                for (at, arg) in args.iter().enumerate() {
                    write!(f, "{}{arg}", if at > 0 { ", " } else { "" })?;
                }
                write!(f, ")")
            }
            other => write!(f, "{other:?}"),
        }
    }
}
