//! Everything that can be read of an attached image: names, attributes, texts, data.

use base::{Cx, Error, Kind, Node, Result};
use engine::Fs;
use pm::UserSlice;

/// What a visit saw.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Names, the root's own not counted.
    pub names: u64,
    /// Of them, directories.
    pub directories: u64,
    /// The first error, if there was one.
    pub error: Option<(Error, u64)>,
    /// The visit stopped at its limit.
    pub stopped: bool,
}

/// Names that a visit looks at: a damaged tree may have no end.
const NAMES_MAX: u64 = 1500;

/// Reads what the root leads to.
pub fn visit(fs: &Fs, cx: &Cx) -> Seen {
    let mut seen = Seen::default();
    let mut waiting = vec![fs.root_node()];
    while let Some(dir) = waiting.pop() {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut room = NAMES_MAX.saturating_sub(seen.names);
        note(
            &mut seen,
            dir.id,
            fs.readdir(cx, dir, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name.to_vec());
                    room = room.saturating_sub(1);
                }
                room > 0
            }),
        );
        for name in names {
            seen.names += 1;
            let found = fs.lookup(cx, dir, &name);
            note(&mut seen, dir.id, found.map(drop));
            let Ok(node) = found else { continue };
            let kind = fs.attr(cx, node).map(|attr| attr.kind);
            note(&mut seen, node.id, kind.map(drop).and_then(|()| contents(fs, cx, node)));
            if kind == Ok(Kind::Directory) {
                seen.directories += 1;
                waiting.push(node);
            }
        }
        if room == 0 || waiting.len() > 1000 {
            seen.stopped = true;
            break;
        }
    }
    note(&mut seen, 0, fs.statfs().map(drop));
    seen
}

fn note(seen: &mut Seen, id: u64, result: Result<()>) {
    if let (Err(error), None) = (result, seen.error) {
        seen.error = Some((error, id));
    }
}

/// Reads all that a node has beside its attributes.
pub fn contents(fs: &Fs, cx: &Cx, node: Node) -> Result<()> {
    let attr = fs.attr(cx, node)?;
    let mut buffer = [0u8; 9000];
    match attr.kind {
        Kind::Symlink => drop(fs.readlink(cx, node, UserSlice::from_mut(&mut buffer[..4096]))?),
        Kind::Directory => {
            let mut name = [0; 255];
            fs.name_of(cx, node, &mut name)?;
            fs.parent_of(cx, node)?;
        }
        Kind::Regular => {
            for at in [0, attr.size / 2, attr.size.saturating_sub(100)] {
                fs.read(cx, node, at, &[UserSlice::from_mut(&mut buffer)])?;
            }
            for (data, at) in [(true, 0), (false, 0), (true, attr.size / 2), (false, attr.size / 2)] {
                match fs.seek(cx, node, at, data) {
                    Ok(_) | Err(Error::Posix(pm::Errno::ENXIO)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        _ => {}
    }
    if matches!(attr.kind, Kind::Regular | Kind::Directory) {
        let mut list = vec![0; 66_000];
        let len = fs.list_xattr(cx, node, UserSlice::from_mut(&mut list))?;
        let mut value = vec![0; 66_000];
        for name in list[..len.min(66_000)].split(|byte| *byte == 0).filter(|name| !name.is_empty()).take(20) {
            fs.get_xattr(cx, node, name, UserSlice::from_mut(&mut value))?;
        }
    }
    Ok(())
}
