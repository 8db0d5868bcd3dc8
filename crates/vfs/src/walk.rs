//! The generic path walk, for backends without a direct way of their own.
//!
//! It goes a component at a time by `lookup`, `parent`, `readlink`, `attr` and
//! `access`, and is the statement of what a walk means: a native backend that
//! resolves whole paths itself must give the same answers.

use crate::{Backend, Cx, Errno, Error, Exit, Found, Kind, Last, Node, PATH_MAX, Result, SYMLINKS_MAX, Scratch, Walk, X};
use pm::UserSlice;

/// Longest name of one component, in bytes.
const NAME_MAX: usize = 255;

/// Where the text still to be walked lies: in the program's path, or in one of
/// the scratch buffers (positions, because the buffers take turns).
#[derive(Clone, Copy)]
enum Text {
    Path { at: usize },
    Buffer { index: usize, at: usize, end: usize },
}

impl Text {
    fn bytes<'t>(self, path: &'t [u8], scratch: &'t Scratch) -> &'t [u8] {
        match self {
            Text::Path { at } => &path[at..],
            Text::Buffer { index, at, end } => &scratch.text[index][at..end],
        }
    }

    fn skip(self, bytes: usize) -> Self {
        match self {
            Text::Path { at } => Text::Path { at: at + bytes },
            Text::Buffer { index, at, end } => Text::Buffer { index, at: at + bytes, end },
        }
    }
}

/// One component at the head of a text.
struct Head {
    /// Slashes before it.
    lead: usize,
    /// Its length.
    len: usize,
    /// Slashes behind it.
    slashes: usize,
    /// Nothing follows.
    last: bool,
}

fn head(text: &[u8]) -> Head {
    let lead = text.iter().take_while(|&&b| b == b'/').count();
    let len = text[lead..].iter().take_while(|&&b| b != b'/').count();
    let slashes = text[lead + len..].iter().take_while(|&&b| b == b'/').count();
    Head { lead, len, slashes, last: lead + len + slashes == text.len() }
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
    let mut text = Text::Path { at: 0 };
    loop {
        let bytes = text.bytes(path, scratch);
        let head = head(bytes);
        let name = &bytes[head.lead..head.lead + head.len];
        let name_text = text.skip(head.lead);
        let after = text.skip(head.lead + head.len + head.slashes);
        let slash = head.slashes > 0;
        let found = |node| (name_text, head.len, node, slash);

        let (name_text, len, node, slash) = if name.is_empty() {
            found(Some(dir))
        } else if name == b"." || name == b".." {
            backend.access(cx, dir, X)?;
            // Where only the parent is wanted, a final `..` is refused by the
            // caller whatever it leads to.
            if name == b".." && !(head.last && last == Last::Parent) {
                if dir == backend.root() {
                    let rest = after.bytes(path, scratch);
                    return Ok(Walk::Exit(Exit::Above { rest }));
                }
                dir = backend.parent(cx, dir)?;
            }
            if !head.last {
                text = after;
                continue;
            }
            found(Some(dir))
        } else if head.last && last == Last::Parent {
            backend.access(cx, dir, X)?;
            found(None)
        } else {
            match lookup(backend, cx, dir, name) {
                Ok(node) => {
                    let kind = backend.kind(cx, node)?;
                    if kind == Kind::Symlink && (!head.last || slash || last == Last::Follow) {
                        match follow(backend, cx, node, name_text.skip(head.len), path, links, scratch)? {
                            Target::Relative(next) => text = next,
                            Target::Absolute(next) => {
                                let path = next.bytes(path, scratch);
                                return Ok(Walk::Exit(Exit::Absolute { path }));
                            }
                        }
                        continue;
                    }
                    if covered.is_some_and(|is_covered| is_covered(node)) {
                        let rest = after.bytes(path, scratch);
                        return Ok(Walk::Exit(Exit::Mountpoint { node, rest }));
                    }
                    if !head.last {
                        if kind != Kind::Directory {
                            return Err(Error::Posix(Errno::ENOTDIR));
                        }
                        dir = node;
                        text = after;
                        continue;
                    }
                    found(Some(node))
                }
                Err(Error::Posix(Errno::ENOENT)) if head.last => found(None),
                Err(error) => return Err(error),
            }
        };
        let name = &name_text.bytes(path, scratch)[..len];
        return Ok(Walk::Found(Found { parent: dir, name, node, slash }));
    }
}

fn lookup<B: Backend + ?Sized>(backend: &B, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
    if name.len() > NAME_MAX {
        backend.access(cx, dir, X)?;
        return Err(Error::Posix(Errno::ENAMETOOLONG));
    }
    backend.lookup(cx, dir, name)
}

enum Target {
    Relative(Text),
    Absolute(Text),
}

/// The text to go on with after symlink `node`: its target, then `rest` (from
/// the slash behind the link's name).
fn follow<B: Backend + ?Sized>(
    backend: &B,
    cx: &Cx,
    node: Node,
    rest: Text,
    path: &[u8],
    links: &mut u32,
    scratch: &mut Scratch,
) -> Result<Target> {
    *links += 1;
    if *links > SYMLINKS_MAX {
        return Err(Error::Posix(Errno::ELOOP));
    }
    let (low, high) = scratch.text.split_at_mut(1);
    let (rest, index, buffer): (&[u8], usize, &mut [u8; PATH_MAX]) = match rest {
        Text::Path { at } => (&path[at..], 0, &mut low[0]),
        Text::Buffer { index: 0, at, end } => (&low[0][at..end], 1, &mut high[0]),
        Text::Buffer { at, end, .. } => (&high[0][at..end], 0, &mut low[0]),
    };
    let len = backend.readlink(cx, node, UserSlice::from_mut(buffer))?;
    if len == 0 {
        return Err(Error::Posix(Errno::ENOENT));
    }
    let end = len + rest.len();
    if end >= PATH_MAX {
        // A text that grows with every turn is a loop, as the kernel finds later.
        return Err(Error::Posix(Errno::ELOOP));
    }
    buffer[len..end].copy_from_slice(rest);
    let next = Text::Buffer { index, at: 0, end };
    Ok(if buffer[0] == b'/' { Target::Absolute(next) } else { Target::Relative(next) })
}
