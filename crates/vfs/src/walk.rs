//! The slow path from a path to a node: a component at a time, by `lookup_kind`, `parent`, `readlink` and `access`.
//! The one for every backend; where a symlink leads, the text goes on in the caller's scratch.

use crate::{Backend, Cx, Errno, Error, Exit, Found, Kind, Last, Node, PATH_MAX, Result, SYMLINKS_MAX, Scratch, Walk, X};
use pm::UserSlice;

/// Longest name of one component, in bytes.
const NAME_MAX: usize = 255;

/// Where a pass over a text has stopped; positions are bytes from its start.
enum Stop {
    /// At the last component, `at..end`.
    Found { at: usize, end: usize, node: Option<Node>, slash: bool },
    /// `..` at the root.
    Above { rest: usize },
    /// A node that something is mounted on.
    Mountpoint { node: Node, at: usize, end: usize, rest: usize },
    /// A symlink to be followed.
    Link { node: Node, rest: usize },
}

/// See [`Backend::walk`].
#[allow(clippy::too_many_arguments)]
pub fn walk<'a, B: Backend + ?Sized>(
    backend: &B,
    cx: &Cx,
    base: Node,
    path: &'a [u8],
    last: Last,
    links: &mut u32,
    covered: Option<&dyn Fn(Node) -> bool>,
    scratch: &'a mut Scratch,
) -> Result<Walk<'a>> {
    let mut dir = base;
    let [mut now, mut other] = scratch.text.each_mut();
    let mut len = match pass(backend, cx, &mut dir, path, last, covered)? {
        Stop::Link { node, rest } => expand(backend, cx, node, &path[rest..], links, now)?,
        stop => return Ok(answer(stop, dir, path)),
    };
    loop {
        if now[0] == b'/' {
            return Ok(Walk::Exit(Exit::Absolute { path: &now[..len] }));
        }
        match pass(backend, cx, &mut dir, &now[..len], last, covered)? {
            Stop::Link { node, rest } => {
                len = expand(backend, cx, node, &now[rest..len], links, other)?;
                (now, other) = (other, now);
            }
            stop => return Ok(answer(stop, dir, &now[..len])),
        }
    }
}

/// Goes through a text; `dir` is where it starts and, at the end, the directory of the last component.
fn pass<B: Backend + ?Sized>(
    backend: &B,
    cx: &Cx,
    dir: &mut Node,
    text: &[u8],
    last: Last,
    covered: Option<&dyn Fn(Node) -> bool>,
) -> Result<Stop> {
    let mut at = 0;
    loop {
        at += count(&text[at..], |byte| byte == b'/');
        let end = at + count(&text[at..], |byte| byte != b'/');
        let next = end + count(&text[end..], |byte| byte == b'/');
        let (name, slash, is_last) = (&text[at..end], next > end, next == text.len());
        if name.is_empty() {
            return Ok(Stop::Found { at, end, node: Some(*dir), slash });
        }
        if name == b"." || name == b".." {
            backend.permits(cx, *dir, X)?;
            // Where only the parent is wanted, a final `..` is refused by the caller whatever it leads to.
            if name == b".." && !(is_last && last == Last::Parent) {
                if *dir == backend.root() {
                    return Ok(Stop::Above { rest: next });
                }
                *dir = backend.parent(cx, *dir)?;
            }
            if is_last {
                return Ok(Stop::Found { at, end, node: Some(*dir), slash });
            }
            at = next;
            continue;
        }
        if is_last && last == Last::Parent {
            backend.permits(cx, *dir, X)?;
            return Ok(Stop::Found { at, end, node: None, slash });
        }
        let (node, kind) = match lookup(backend, cx, *dir, name) {
            Ok(found) => found,
            Err(Error::Posix(Errno::ENOENT)) if is_last => return Ok(Stop::Found { at, end, node: None, slash }),
            Err(error) => return Err(error),
        };
        if kind == Kind::Symlink && (!is_last || slash || last == Last::Follow) {
            return Ok(Stop::Link { node, rest: end });
        }
        if covered.is_some_and(|is_covered| is_covered(node)) {
            return Ok(Stop::Mountpoint { node, at, end, rest: next });
        }
        if is_last {
            return Ok(Stop::Found { at, end, node: Some(node), slash });
        }
        if kind != Kind::Directory {
            return Err(Error::Posix(Errno::ENOTDIR));
        }
        (*dir, at) = (node, next);
    }
}

/// How many bytes at the start of a text are so.
fn count(text: &[u8], is_so: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|byte| !is_so(*byte)).unwrap_or(text.len())
}

fn lookup<B: Backend + ?Sized>(backend: &B, cx: &Cx, dir: Node, name: &[u8]) -> Result<(Node, Kind)> {
    if name.len() > NAME_MAX {
        backend.permits(cx, dir, X)?;
        return Err(Error::Posix(Errno::ENAMETOOLONG));
    }
    backend.lookup_kind(cx, dir, name)
}

/// The target of a symlink with what follows it (from the slash behind the link's name), into `into`; its length.
fn expand<B: Backend + ?Sized>(
    backend: &B,
    cx: &Cx,
    node: Node,
    rest: &[u8],
    links: &mut u32,
    into: &mut [u8; PATH_MAX],
) -> Result<usize> {
    *links += 1;
    if *links > SYMLINKS_MAX {
        return Err(Error::Posix(Errno::ELOOP));
    }
    let len = backend.readlink(cx, node, UserSlice::from_mut(into))?;
    if len == 0 {
        return Err(Error::Posix(Errno::ENOENT));
    }
    let end = len + rest.len();
    if end >= PATH_MAX {
        // A text that grows with every turn is a loop, as the kernel finds later.
        return Err(Error::Posix(Errno::ELOOP));
    }
    into[len..end].copy_from_slice(rest);
    Ok(end)
}

fn answer(stop: Stop, parent: Node, text: &[u8]) -> Walk<'_> {
    match stop {
        Stop::Found { at, end, node, slash } => Walk::Found(Found { parent, name: &text[at..end], node, slash }),
        Stop::Above { rest } => Walk::Exit(Exit::Above { rest: &text[rest..] }),
        Stop::Mountpoint { node, at, end, rest } => {
            Walk::Exit(Exit::Mountpoint { node, parent, name: &text[at..end], rest: &text[rest..] })
        }
        // The caller follows links itself.
        Stop::Link { node, rest } => Walk::Exit(Exit::Mountpoint { node, parent, name: b"", rest: &text[rest..] }),
    }
}
