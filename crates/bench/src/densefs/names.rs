//! Functions by address: of this program, with those that were inlined, and of a kernel.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::rc::Rc;

/// Names of a program's functions.
pub enum Names {
    /// Of this program: its file, and what was asked before.
    Program(Box<addr2line::Loader>),
    /// Of a kernel: by address, in order.
    Kernel(Vec<(u64, Rc<str>)>),
}

/// The functions an address is in, outermost first: more than one where some were inlined.
pub type Frames = Rc<[Rc<str>]>;

impl Names {
    /// Of this program.
    pub fn of_self() -> Result<Names, String> {
        let path = std::env::current_exe().map_err(|e| e.to_string())?;
        addr2line::Loader::new(&path)
            .map(|loader| Names::Program(Box::new(loader)))
            .map_err(|e| format!("{}: {e}", path.display()))
    }

    /// As `/proc/kallsyms` has them: address, kind, name, module.
    pub fn of_kernel(file: File) -> Result<Names, String> {
        let mut all = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|e| e.to_string())?;
            let mut words = line.split_whitespace();
            if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
                && let Ok(address) = u64::from_str_radix(address, 16)
            {
                let name = words.next().map_or(name.to_string(), |module| format!("{name} {module}"));
                all.push((address, Rc::from(name)));
            }
        }
        all.sort_by_key(|(address, _)| *address);
        Ok(Names::Kernel(all))
    }

    fn find(&self, address: u64) -> Frames {
        match self {
            Names::Program(loader) => {
                let mut frames = Vec::new();
                if let Ok(mut found) = loader.find_frames(address) {
                    while let Ok(Some(frame)) = found.next() {
                        let file = frame.location.as_ref().and_then(|location| location.file).unwrap_or("");
                        let name = frame.function.as_ref().and_then(|f| f.demangle().ok().map(|name| short(&name)));
                        frames.extend(name.map(|name| placed(&name, file)));
                    }
                }
                frames.reverse();
                if frames.is_empty() {
                    let known = loader.find_symbol(address).map(|name| addr2line::demangle_auto(name.into(), None));
                    frames.push(known.map_or("outside the program".into(), |name| short(&name)));
                }
                frames.into_iter().map(Rc::from).collect()
            }
            Names::Kernel(all) => match all.partition_point(|(at, _)| *at <= address) {
                0 => [Rc::from("?")].into(),
                after => [all[after - 1].1.clone()].into(),
            },
        }
    }
}

/// Without the hash, generic arguments and the crates' common beginning.
fn short(name: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0);
    let name = name.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16).map_or(name, |(name, _)| name);
    let inner = if let Some(rest) = name.strip_prefix('<') { rest.split(" as ").next().unwrap_or(rest) } else { "" };
    let tail = if inner.is_empty() { name } else { name.split_once(">::").map_or(name, |(_, tail)| tail) };
    let whole = if inner.is_empty() { name.to_string() } else { format!("{}::{tail}", inner.trim_start_matches('&')) };
    for c in whole.chars() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.replace("bypath_", "").replace(";", ",").replace("::::", "::")
}

/// With crate and module, as its file says them: inlined functions have their bare names.
fn placed(name: &str, file: &str) -> String {
    let inner = |before: &str, after: &str| {
        let (_, rest) = file.split_once(before)?;
        let (crate_name, path) = rest.split_once(after)?;
        let module = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        Some(format!("{}::{module}::{name}", crate_name.rsplit('/').next().unwrap_or(crate_name)))
    };
    if name.contains("::") {
        return name.into();
    }
    inner("crates/", "/src/").or_else(|| inner("library/", "/src/")).unwrap_or_else(|| name.into())
}

/// The same with a memory.
pub struct Known<'a> {
    names: &'a Names,
    bias: u64,
    known: HashMap<u64, Frames>,
}

impl<'a> Known<'a> {
    /// Of a program that lies `bias` above its file's addresses.
    pub fn new(names: &'a Names, bias: u64) -> Known<'a> {
        Known { names, bias, known: HashMap::new() }
    }

    /// The functions that an address is in.
    pub fn frames(&mut self, address: u64) -> Frames {
        let (names, bias) = (self.names, self.bias);
        self.known.entry(address).or_insert_with(|| names.find(address.wrapping_sub(bias))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a bare name gets its module. Method: files of this project's, the standard library's, and none.
    #[test]
    fn files_say_modules() {
        assert_eq!(placed("create", "crates/engine/src/dir/create.rs"), "engine::dir::create");
        assert_eq!(placed("swap", "/rustc/0/library/core/src/mem.rs"), "core::mem::swap");
        assert_eq!((placed("main", ""), placed("a::b", "crates/x/src/y.rs")), ("main".into(), "a::b".into()));
    }

    /// Goal: names are read by people. Method: some as compilers make them.
    #[test]
    fn names_are_short() {
        assert_eq!(short("bypath_engine::dir::find::h0123456789abcdef"), "engine::dir::find");
        assert_eq!(short("<bypath_vfs::native::Native as bypath_vfs::Backend>::stat"), "vfs::native::Native::stat");
        assert_eq!(short("core::slice::sort::<u64, F>"), "core::slice::sort::");
    }
}
