//! What `bypath run` tells the programs it starts, in environment variables.
//! Pure text, so that every door and the command line agree.
//!
//! ```text
//! BYPATH_MOUNTS = IMAGE:/point[:options];…      in the order they are mounted
//! BYPATH_STATE  = what Process::exec_prepare wrote, for the next program only
//! ```
//! `%`, `:` and `;` in an image path or mount point are written `%25`, `%3a`, `%3b`.

/// Variable that lists the mounts.
pub const MOUNTS: &[u8] = b"BYPATH_MOUNTS";
/// Variable that hands descriptors and working directory over `exec`.
pub const STATE: &[u8] = b"BYPATH_STATE";

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
}
