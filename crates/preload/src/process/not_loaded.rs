//! Programs that the library can't be loaded into (static, set-uid, another architecture's), where a mount is not the
//! kernel's too: they would take what lies at its point for what is in it.

use crate::complain;
use crate::runtime::call;
use crate::runtime::front_end::PROCESS;
use crate::runtime::imports::{bytes, strings};
use crate::runtime::session::is_first_of;
use core::ffi::c_char;

const HERE: i32 = -100;
/// Longer arguments are no paths.
const PATH_MAX: usize = 4096;

/// Whether a program of this name is not to be started: it is told a path in such a mount, or would stand in one. Else
/// a line, once a session, says what it does not see. To be asked where nothing is executed yet.
///
/// # Safety
/// The strings of `argv` are NUL-terminated.
#[cold]
pub unsafe fn is_refused(name: &[u8], argv: *const *mut c_char) -> bool {
    let Some(first) = PROCESS.hidden().next() else { return false };
    let name = core::str::from_utf8(name).unwrap_or("a program");
    let shown = |point| core::str::from_utf8(point).unwrap_or("the mount");
    // SAFETY: by contract.
    let told = unsafe { told(argv) };
    if let Some(point) = told {
        complain!(
            "{name} is not run: it cannot be preloaded (static, set-uid or another architecture's) and would access the directory \
             under {} instead of the mount; bypath run --help says how to have a kernel mount there",
            shown(point)
        );
        return true;
    }
    if is_first_of(format_args!("past")) {
        complain!(
            "{name} does not see what is in {}: it cannot be preloaded (static, set-uid or another architecture's), and there is \
             no kernel mount; this is said once",
            shown(first.prefix())
        );
    }
    false
}

/// Says, once a session, that a program makes system calls of its own where they do not find what is in the mounts.
#[cold]
pub fn note_own_calls(name: &[u8]) {
    let Some(first) = PROCESS.hidden().next() else { return };
    if is_first_of(format_args!("own")) {
        complain!(
            "{} makes some system calls without the C library: these do not see what is in {}, as there is no kernel mount; \
             this is said once",
            core::str::from_utf8(name).unwrap_or("a program"),
            core::str::from_utf8(first.prefix()).unwrap_or("the mount")
        );
    }
}

/// The mount point that a program is told of, or stands below.
///
/// # Safety
/// As for [`is_refused`].
unsafe fn told(argv: *const *mut c_char) -> Option<&'static [u8]> {
    let hidden = || PROCESS.hidden().map(|mount| mount.prefix());
    if PROCESS.is_in_hidden() {
        return hidden().next();
    }
    // SAFETY: by contract.
    for argument in unsafe { strings(argv) }.skip(1) {
        // SAFETY: by contract.
        let text = unsafe { bytes(argument) };
        if let Some(point) = hidden().find(|point| names(text, point)) {
            return Some(point);
        }
        // SAFETY: by contract.
        if text.len() < PATH_MAX && text.first() != Some(&b'-') && unsafe { call::path_is_ours(HERE, argument.cast()) } {
            return hidden().next();
        }
    }
    None
}

/// Whether a path at or below `point` stands in `text`, alone or among other words: `-I/bp/x`, `cat >/bp/x`, not `/srv/bp`.
fn names(text: &[u8], point: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') || *byte >= 0x80;
    text.windows(point.len()).enumerate().any(|(at, part)| {
        let begins = text[..at].iter().rposition(|byte| *byte != b'/' && !is_name(byte)).map_or(0, |before| before + 1);
        let before = &text[begins..at];
        let is_whole = before.is_empty() || before.first() == Some(&b'-') && !before.contains(&b'/');
        part == point && is_whole && !text.get(at + point.len()).is_some_and(is_name)
    })
}
