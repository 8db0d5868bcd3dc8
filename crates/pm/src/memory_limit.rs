//! How much memory the control groups of this process leave it.
//!
//! Pages of a file on tmpfs count in the group of who touches them first, as its own memory does: a container, a batch
//! job. Past the group's limit the kernel kills somebody. So whoever is about to take much asks before.

use crate::Errno;
use crate::file::File;
use crate::sys::abi;

/// A limit from here on is none.
const NONE: u64 = 1 << 60;
/// Most groups above one another.
const LEVELS_MAX: usize = 32;
/// The longest line, and the longest path, that are looked at, bytes: threads with small stacks ask, too.
const LINE_MAX: usize = 512;

/// The two kinds of control groups: where they are mounted, and what their files are called.
struct Names {
    mount: &'static [u8],
    limit: &'static [u8],
    usage: &'static [u8],
    /// Lines of `memory.stat` that count what the kernel takes back before it kills.
    returned: [&'static [u8]; 3],
}

const FIRST: Names = Names {
    mount: b"/sys/fs/cgroup/memory",
    limit: b"memory.limit_in_bytes",
    usage: b"memory.usage_in_bytes",
    returned: [b"total_inactive_file", b"total_active_file", b""],
};

const SECOND: Names = Names {
    mount: b"/sys/fs/cgroup",
    limit: b"memory.max",
    usage: b"memory.current",
    returned: [b"inactive_file", b"active_file", b"slab_reclaimable"],
};

/// What a group may have, and what it may still get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// All of it, bytes.
    pub limit: u64,
    /// What is neither taken nor could be given back, bytes.
    pub room: u64,
}

/// The group with the least room, of those that this process is in; `None` where none has a limit, or none can be seen.
pub fn look() -> Option<MemoryLimit> {
    let mut found: Option<MemoryLimit> = None;
    let mut each = |line: &[u8]| found = found.into_iter().chain(of_line(line)).min_by_key(|found| found.room);
    each_line(b"/proc/self/cgroup\0", &mut each).ok()?;
    found
}

/// Of a line `NUMBER:CONTROLLERS:PATH`.
fn of_line(line: &[u8]) -> Option<MemoryLimit> {
    let mut parts = line.splitn(3, |&byte| byte == b':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let names = match controllers {
        b"" => &SECOND,
        list if list.split(|&byte| byte == b',').any(|one| one == b"memory") => &FIRST,
        _ => return None,
    };
    // A container sees its own group as the top, whatever its path is called outside.
    let ends = path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0).map(|(at, _)| at);
    let levels = [0].into_iter().chain(ends).chain([path.len()]).take(LEVELS_MAX);
    levels.filter_map(|end| of_group(names, &path[..end])).min_by_key(|found| found.room)
}

fn of_group(names: &Names, group: &[u8]) -> Option<MemoryLimit> {
    let limit = first_number(names, group, names.limit).filter(|limit| *limit < NONE)?;
    let used = first_number(names, group, names.usage)?;
    let mut returned = 0u64;
    let mut each = |line: &[u8]| {
        let Some(at) = line.iter().position(|&byte| byte == b' ') else { return };
        if names.returned.contains(&&line[..at]) {
            returned = returned.saturating_add(number(&line[at + 1..]).unwrap_or(0));
        }
    };
    each_line_of(names, group, b"memory.stat", &mut each)?;
    Some(MemoryLimit { limit, room: limit.saturating_sub(used.saturating_sub(returned)) })
}

/// A decimal number; `max` is none.
fn number(text: &[u8]) -> Option<u64> {
    core::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// What a file of a group with one number says.
fn first_number(names: &Names, group: &[u8], name: &[u8]) -> Option<u64> {
    let mut found = None;
    each_line_of(names, group, name, &mut |line| found = found.or_else(|| number(line)))?;
    found
}

fn each_line_of(names: &Names, group: &[u8], name: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<()> {
    let mut path = [0u8; LINE_MAX];
    let mut len = 0;
    for part in [names.mount, group, b"/", name, b"\0"] {
        path.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    each_line(&path[..len], each).ok()
}

/// Calls `each` with each line of a file that is not too long.
#[inline(never)]
fn each_line(path: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
    let file = File::open(path, abi::O_RDONLY | abi::O_CLOEXEC, 0)?;
    let (mut text, mut len, mut is_whole) = ([0u8; LINE_MAX], 0, true);
    loop {
        let came = file.read_on(&mut text[len..])?;
        len += came;
        let mut begin = 0;
        while let Some(end) = text[begin..len].iter().position(|&byte| byte == b'\n') {
            if is_whole {
                each(&text[begin..begin + end]);
            }
            (begin, is_whole) = (begin + end + 1, true);
        }
        if begin == 0 && len == text.len() {
            (begin, is_whole) = (len, false);
        }
        text.copy_within(begin..len, 0);
        len -= begin;
        if came == 0 {
            if len > 0 && is_whole {
                each(&text[..len]);
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a line of `/proc/self/cgroup` is about is told, and nonsense is not believed. Method: groups that are
    /// not there, and lines that are none.
    #[test]
    fn nonsense_has_no_limit() {
        let no_group: &[u8] = b"0::/no/such/group/anywhere";
        for line in [&b""[..], b"0", b"0:", b"3:cpu:/", b"x:y:z", b"7:memory:"] {
            let _ = of_line(line);
        }
        assert_eq!(of_line(b"3:cpu,cpuset:/"), None);
        // Whatever groups above it say, it has no more room than they.
        let top = of_line(b"0::/");
        assert!(of_line(no_group) == top);
        assert_eq!((number(b"max\n"), number(b"12\n"), number(b"-1\n")), (None, Some(12), None));
    }

    /// Goal: lines are told whole, and those too long are not. Method: a file with lines around the length of the buffer.
    #[test]
    fn lines_are_whole() {
        let path = std::format!("/tmp/bypath-lines-{}", std::process::id());
        let lines =
            [3, 0, LINE_MAX - 1, LINE_MAX + 5, 700, 8].map(|len| std::string::String::from_utf8(std::vec![b'x'; len]).unwrap());
        std::fs::write(&path, lines.join("\n")).unwrap();
        let mut found = std::vec::Vec::new();
        each_line(std::format!("{path}\0").as_bytes(), &mut |line| found.push(line.len())).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, [3, 0, LINE_MAX - 1, 8]);
    }

    /// Goal: what is looked at is the group's. Method: no more room than the limit.
    #[test]
    fn room_is_within_the_limit() {
        assert!(look().is_none_or(|found| found.room <= found.limit));
    }
}
