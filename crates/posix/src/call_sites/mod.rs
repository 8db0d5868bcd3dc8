//! What stands behind a `syscall` instruction, as far as one must know to put a jump over both; and where such jumps may lead.
//!
//! The preload library does so with calls that a program makes by itself, and often. x86-64 only.
//!
//! Only what does the same at another address is known here; all else says that the site stays as it is.

mod pool;

pub use pool::{POOL_BYTES, Pool, STUB_BYTES, TRAP};

/// The `syscall` instruction.
pub const CALL: [u8; 2] = [0x0f, 0x05];
/// A jump with a distance of 32 bits.
pub const JUMP_BYTES: usize = 5;
/// As much in front of a call as is looked at.
pub const BEFORE: usize = MUSLS.len();
/// The longest instruction.
pub const LONGEST: usize = 15;
const RETURN: u8 = 0xc3;
const BREAK: u8 = 0xcc;

/// musl's one place for all calls that can be cancelled, as far as the `syscall`: what is in front of that is as long as a jump.
/// Behind it are a return, and what is jumped to.
const MUSLS: [u8; 18] = [0x4d, 0x89, 0xca, 0x4c, 0x8b, 0x44, 0x24, 8, 0x4c, 0x8b, 0x4c, 0x24, 0x10, 0x4c, 0x89, 0x5c, 0x24, 8];

/// What is under the jump behind the call: how long it is, and whether nothing follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub len: usize,
    /// It returns.
    pub returns: bool,
}

/// Whether a jump may take the place of the [`JUMP_BYTES`] in front of a call, the last of `code`: an instruction that does the
/// same elsewhere.
pub fn has_room_before(code: &[u8]) -> bool {
    code.ends_with(&MUSLS)
}

/// What must move when a jump takes the place of the call at the beginning of `code`; `None`: there is no room for one that
/// only the two instructions would have, or the second means something else elsewhere.
pub fn moved(code: &[u8]) -> Option<Moved> {
    let behind = code.strip_prefix(&CALL)?;
    if behind.first() == Some(&RETURN) {
        // What fills up the room to the next function is never run.
        let mut at = 1;
        while at < JUMP_BYTES - CALL.len() {
            at += filling(behind.get(at..)?)?;
        }
        return (at <= behind.len()).then_some(Moved { len: 1, returns: true });
    }
    let len = movable(behind)?;
    let fits = len >= JUMP_BYTES - CALL.len() && len <= behind.len().min(LONGEST);
    fits.then_some(Moved { len, returns: false })
}

/// The length of an instruction that does nothing, as compilers put between functions.
fn filling(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    match code.get(prefixes..)? {
        [BREAK | 0x90, ..] => Some(prefixes + 1),
        [0x0f, 0x1f, rest @ ..] => Some(prefixes + 2 + operand(rest)?),
        _ => None,
    }
}

/// The length of an instruction that does the same at any address, and faults at most where it touches memory.
fn movable(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0xf2 | 0xf3)).count();
    let wide = code.get(prefixes).copied().filter(|byte| byte & 0xf0 == 0x40);
    let at = prefixes + usize::from(wide.is_some());
    let (&first, rest) = code.get(at..)?.split_first()?;
    // Which operation of a group it is.
    let group = rest.first().map_or(8, |byte| byte >> 3 & 7);
    let (opcode_bytes, behind, number_bytes) = match first {
        0x00..=0x3f if first & 7 < 4 => (1, rest, 0),
        0x00..=0x3f if first & 7 == 4 => return (prefixes == 0).then_some(at + 2),
        0x00..=0x3f if first & 7 == 5 => return (prefixes == 0).then_some(at + 5),
        0x63 | 0x84..=0x8b | 0x8d | 0xd1 | 0xd3 => (1, rest, 0),
        0x80 | 0x83 | 0xc0 | 0xc1 | 0x6b => (1, rest, 1),
        0xc6 if group == 0 => (1, rest, 1),
        0xf6 if group == 0 => (1, rest, 1),
        0xf6 | 0xf7 if matches!(group, 2 | 3) => (1, rest, 0),
        0xfe | 0xff if group < 2 => (1, rest, 0),
        0x81 | 0x69 if prefixes == 0 => (1, rest, 4),
        0xc7 | 0xf7 if prefixes == 0 && group == 0 => (1, rest, 4),
        0xb8..=0xbf if prefixes == 0 => return Some(at + if wide.is_some_and(|byte| byte & 8 != 0) { 9 } else { 5 }),
        0xa8 if prefixes == 0 => return Some(at + 2),
        0xa9 if prefixes == 0 => return Some(at + 5),
        0x0f => match rest {
            [0x10 | 0x11 | 0x1f | 0x28 | 0x29 | 0x40..=0x4f | 0x57 | 0x6e | 0x6f | 0x7e | 0x7f, behind @ ..]
            | [0x90..=0x9f | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf | 0xd6 | 0xef, behind @ ..] => (2, behind, 0),
            _ => return None,
        },
        _ => return None,
    };
    Some(at + opcode_bytes + operand(behind)? + number_bytes)
}

/// The length of what says which registers and memory are meant; `None`: memory at a distance from the instruction.
fn operand(code: &[u8]) -> Option<usize> {
    let (&first, rest) = code.split_first()?;
    let (kind, base) = (first >> 6, first & 7);
    let scaled = usize::from(kind != 3 && base == 4);
    let alone = scaled == 1 && kind == 0 && rest.first()? & 7 == 5;
    match kind {
        0 if base == 5 => None,
        0 => Some(1 + scaled + if alone { 4 } else { 0 }),
        1 => Some(1 + scaled + 1),
        2 => Some(1 + scaled + 4),
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(behind: &[u8]) -> Option<(usize, bool)> {
        // What comes next, which must not count.
        let code = [&CALL[..], behind, &[0x90; LONGEST]].concat();
        moved(&code).map(|moved| (moved.len, moved.returns))
    }

    /// Goal: what compilers and runtimes put behind their calls is known by its length.
    #[test]
    fn usual() {
        let usual: [(&[u8], usize); 16] = [
            (&[0x48, 0x3d, 1, 0xf0, 0xff, 0xff], 6),
            (&[0x3d, 0, 0xf0, 0xff, 0xff], 5),
            (&[0x48, 0x89, 0xc7], 3),
            (&[0x89, 0x44, 0x24, 0x20], 4),
            (&[0x48, 0x89, 0x44, 0x24, 8], 5),
            (&[0x89, 0x84, 0x24, 0, 1, 0, 0], 7),
            (&[0x48, 0x83, 0xc4, 0x10], 4),
            (&[0x48, 0x63, 0xf8], 3),
            (&[0x83, 0xf8, 0xda], 3),
            (&[0x48, 0x85, 0xc0], 3),
            (&[0xb8, 0xba, 0, 0, 0], 5),
            (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], 10),
            (&[0x0f, 0x1f, 0x80, 0, 0, 0, 0], 7),
            (&[0x66, 0x0f, 0xef, 0xc0], 4),
            (&[0xc6, 0x45, 0, 1], 4),
            (&[0x48, 0x8d, 0x74, 0x24, 8], 5),
        ];
        for (behind, len) in usual {
            assert_eq!(of(behind), Some((len, false)), "{behind:x?}");
        }
    }

    /// Goal: a return has the filling behind it, and nothing else.
    #[test]
    fn returns() {
        assert_eq!(of(&[0xc3, 0xcc, 0xcc]), Some((1, true)));
        assert_eq!(of(&[0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), Some((1, true)));
        assert_eq!(of(&[0xc3, 0x90, 0x48, 0x89, 0xf8]), None, "another function");
        assert_eq!(of(&[0xc3, 0x48, 0x83, 0xec, 8]), None, "another function");
    }

    /// Goal: what is short, leads elsewhere or is relative to its own address stays where it is.
    #[test]
    fn stays() {
        let stays: [&[u8]; 9] = [
            &[0x89, 0xc5],
            &[0x5b],
            &[0x76, 0x15],
            &[0xe8, 0, 0, 0, 0],
            &[0xe9, 0, 0, 0, 0],
            &[0x8b, 5, 1, 0, 0, 0],
            &[0x48, 0x8d, 5, 1, 0, 0, 0],
            &[0xff, 0x15, 0, 0, 0, 0],
            &[0x66, 0x3d, 1, 2],
        ];
        for behind in stays {
            assert_eq!(of(behind), None, "{behind:x?}");
        }
        assert_eq!(moved(&[0x90; 20]), None);
        for len in 0..CALL.len() + 6 {
            assert_eq!(moved(&[0x0f, 5, 0x48, 0x3d, 1, 0xf0, 0xff, 0xff][..len]), None, "{len}");
        }
    }
}
