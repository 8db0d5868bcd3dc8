//! What is mounted, by the kernel's table (proc_pid_mountinfo(5)).

use crate::runtime::contents::Contents;

/// Whether a mount with this `st_dev` has a kind and a source (NUL-terminated) that are right. No mount is asked.
pub fn source_of(device: u64, is_right: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    let Some(table) = Contents::of(c"/proc/self/mountinfo") else { return false };
    table.bytes().split(|&b| b == b'\n').any(|line| {
        let mut fields = line.split(|&b| b == b' ');
        let is_it = fields.nth(2).and_then(device_in) == Some(device);
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let mut source = [0u8; 4096];
        is_it
            && rest.next().zip(rest.next()).is_some_and(|(kind, field)| {
                let len = unescape(field, &mut source);
                is_right(kind, &source[..len + 1])
            })
    })
}

/// The `st_dev` that the table writes as two numbers.
fn device_in(field: &[u8]) -> Option<u64> {
    let (major, minor) = core::str::from_utf8(field).ok()?.split_once(':')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    Some((major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff)
}

/// Undoes the table's octal escapes, as far as there is room for a NUL behind; the length.
fn unescape(field: &[u8], out: &mut [u8; 4096]) -> usize {
    let (mut rest, mut len) = (field, 0);
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| core::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if len == out.len() - 1 {
            break;
        }
        out[len] = code.unwrap_or(*first);
        len += 1;
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    len
}
