//! What `bypath run` tells the programs it starts, in environment variables.
//! Pure text, so that every door and the command line agree.
//!
//! ```text
//! BYPATH_MOUNTS = IMAGE:/point[:options];…      in the order they are mounted
//!                 options, separated by commas: ro; id=DEVICE.INODE of the image's file; same (the kernel has the same
//!                 files at the point); sync=none (nothing waits for the medium)
//!                 An image that is a cache: cache:LENGTH:IMAGE:/dir in IMAGE's place.
//! BYPATH_SESSION = DEVICE.INODE;/path     of the session's root directory; where is noted what was said
//! BYPATH_PASSIVE = 1     the next program only: everything is the kernel's
//! BYPATH_PRELOADED = …   the next program only: its LD_PRELOAD, which has copies of libraries that lie in a mount
//! BYPATH_HIDDEN = 1      the next program only: it was given none of these variables, and does not see them
//! BYPATH_STATE  = what Process::exec_prepare wrote, for the next program only
//! ```
//! `%`, `:` and `;` in an image path or mount point are written `%25`, `%3a`, `%3b`.

/// Variable that lists the mounts.
pub const MOUNTS: &[u8] = b"BYPATH_MOUNTS";
/// Variable that hands descriptors and working directory over `exec`.
pub const STATE: &[u8] = b"BYPATH_STATE";
/// In another user namespace than the initial one: who the program is, by the numbers of that one.
pub const IDS: &[u8] = b"BYPATH_IDS";

/// Variable that tells programs of a session about it.
pub const SESSION: &[u8] = b"BYPATH_SESSION";

/// Variable with which a program leaves everything to the kernel, and only its children use the mounts.
pub const PASSIVE: &[u8] = b"BYPATH_PASSIVE";
/// Variable with the `LD_PRELOAD` of the next program, as its text, where copies of what lies in a mount stand in that list.
pub const PRELOADED: &[u8] = b"BYPATH_PRELOADED";
/// For a program that was given none of these variables by the one before: it shall not see them.
pub const HIDDEN: &[u8] = b"BYPATH_HIDDEN";

/// The value of option `name` of a mount; empty for one that is a word alone.
pub fn option<'a>(options: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    options.split(|&b| b == b',').find_map(|word| match word.strip_prefix(name)? {
        b"" => Some(&b""[..]),
        rest => rest.strip_prefix(b"="),
    })
}

/// What begins the source of an image that is a cache.
const CACHE: &[u8] = b"cache:";

/// Kind, shared cache and what follows of a source that is no image: `KIND:SHARED:REST`.
pub fn parts(source: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut parts = source.splitn(3, |&b| b == b':');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

/// The image and what is behind it of `cache:LENGTH:IMAGE:/dir` or `cache:LENGTH:IMAGE:wire:…`, where the length is the
/// image's path's.
pub fn cached(source: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = source.strip_prefix(CACHE)?;
    let colon = rest.iter().position(|&byte| byte == b':')?;
    let len: usize = core::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
    let (image, lower) = rest[colon + 1..].split_at_checked(len)?;
    Some((image, lower.strip_prefix(b":")?))
}

/// A file's device and inode, as the options and [`SESSION`] have them.
pub fn identity(text: &[u8]) -> Option<(u64, u64)> {
    let mut parts = core::str::from_utf8(text).ok()?.splitn(2, '.').map(str::parse::<u64>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// One mount of [`MOUNTS`], still escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MountSpec<'a> {
    /// Path of the image.
    pub image: &'a [u8],
    /// Mount point.
    pub point: &'a [u8],
    /// Options, separated by commas; may be empty.
    pub options: &'a [u8],
}

/// The mounts that the value of [`MOUNTS`] lists; entries that are not of the
/// form are left out.
pub fn parse(value: &[u8]) -> impl Iterator<Item = MountSpec<'_>> {
    value.split(|&b| b == b';').filter_map(|entry| {
        let mut parts = entry.splitn(3, |&b| b == b':');
        let (image, point) = (parts.next()?, parts.next()?);
        let options = parts.next().unwrap_or(b"");
        (!image.is_empty() && !point.is_empty()).then_some(MountSpec { image, point, options })
    })
}

/// Undoes the escapes of one part into `out`; its length, or `None` if it does not fit.
#[inline]
pub fn unescape(part: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut at, mut len) = (0, 0);
    while at < part.len() {
        let digits = |d: &[u8]| u8::from_str_radix(core::str::from_utf8(d).ok()?, 16).ok();
        let escaped = if part[at] == b'%' { part.get(at + 1..at + 3).and_then(digits) } else { None };
        let byte = match (part[at], escaped) {
            (_, Some(byte)) => {
                at += 3;
                byte
            }
            (byte, _) => {
                at += 1;
                byte
            }
        };
        *out.get_mut(len)? = byte;
        len += 1;
    }
    Some(len)
}

/// Writes one mount for [`MOUNTS`], byte by byte, `;` first unless it is the first.
pub fn format(first: bool, image: &[u8], point: &[u8], options: &[u8], put: &mut dyn FnMut(u8)) {
    if !first {
        put(b';');
    }
    escape(image, put);
    put(b':');
    escape(point, put);
    if !options.is_empty() {
        put(b':');
        options.iter().for_each(|&b| put(b));
    }
}

fn escape(part: &[u8], put: &mut dyn FnMut(u8)) {
    for &byte in part {
        match byte {
            b'%' | b':' | b';' => {
                put(b'%');
                put(b"0123456789abcdef"[(byte >> 4) as usize]);
                put(b"0123456789abcdef"[(byte & 15) as usize]);
            }
            _ => put(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is formatted is parsed back, whatever bytes the paths hold.
    #[test]
    fn round_trip() {
        let mut text = std::vec::Vec::new();
        format(true, b"/a:b;c%d", b"/bp", b"", &mut |b| text.push(b));
        format(false, b"x", b"/q;", b"ro,y", &mut |b| text.push(b));
        let specs: std::vec::Vec<_> = parse(&text).collect();
        assert_eq!(specs.len(), 2);
        let mut out = [0; 64];
        let len = unescape(specs[0].image, &mut out).unwrap();
        assert_eq!(&out[..len], b"/a:b;c%d");
        assert_eq!((specs[0].point, specs[0].options), (&b"/bp"[..], &b""[..]));
        let len = unescape(specs[1].point, &mut out).unwrap();
        assert_eq!((&out[..len], specs[1].options), (&b"/q;"[..], &b"ro,y"[..]));
        assert_eq!(parse(b"junk;;a:").count(), 0);
    }

    /// Goal: options are found by their whole names, identities are two numbers.
    #[test]
    fn options() {
        let options = b"ro,id=25.317,same";
        assert_eq!((option(options, b"ro"), option(options, b"same")), (Some(&b""[..]), Some(&b""[..])));
        assert_eq!(option(options, b"id").and_then(identity), Some((25, 317)));
        assert_eq!((option(options, b"i"), option(options, b"r"), option(b"", b"ro")), (None, None, None));
        assert_eq!((identity(b"25"), identity(b"25.x"), identity(b"")), (None, None, None));
    }
}
