//! Programs that make system calls with instructions of their own (Rust's rustix, Go with cgo): no door sees those.
//!
//! Found by a look at the program's text: a `syscall` instruction with the number of a call that takes paths put into
//! `eax` shortly before. Bytes that only look like one stand in displacements, mostly, and are followed by zeros. Of 829
//! programs and 463 libraries none was taken for what it is not (decision 0187); a program that computes the number,
//! or that keeps such calls in a library, is not found. x86-64 only.

/// How far before the instruction its number is looked for, bytes: pieces of a text must overlap by so many.
pub const BEFORE: usize = 32;
/// What stands in programs whose calls of their own are about other files: the sanitizers', and `bypath`.
pub const KNOWN: [&[u8]; 2] = [b"__sanitizer_", b"__bypath_own_calls_"];

/// libc's own libraries, some of which make such calls in older versions. They know what they do.
const OF_LIBC: [&[u8]; 11] = [
    b"libc",
    b"ld-linux",
    b"libpthread",
    b"librt",
    b"libdl",
    b"libresolv",
    b"libnsl",
    b"libanl",
    b"libutil",
    b"libnss_",
    b"libthread_db",
];

/// Whether a library is one of libc's own, by its path.
pub fn is_of_libc(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
    let ends = |rest: &[u8]| !rest.first().is_some_and(u8::is_ascii_alphanumeric);
    OF_LIBC.iter().any(|begin| name.strip_prefix(*begin).is_some_and(|rest| ends(rest) || begin.ends_with(b"_")))
}

/// What stands before the version of Go's compiler; then come the size of a pointer and two flags.
const GO: &[u8] = b"\xff Go buildinf:";

/// Whether Go's compiler made a program that has this in it. What it is known by stands in programs that look for it, too,
/// without what comes next.
pub fn is_go(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = find(rest, GO) {
        rest = &rest[at + GO.len()..];
        if matches!(rest, [8, 0..=3, ..]) {
            return true;
        }
    }
    false
}

/// Whether that is the beginning of an ELF program of 64 bits and this byte order.
pub fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF\x02\x01")
}

/// Type, offset in the file and length there of each segment of an ELF program, and whether it is executable.
pub fn segments(head: &[u8]) -> impl Iterator<Item = (u32, u64, u64, bool)> + '_ {
    let half = |at: usize| head.get(at..at + 2).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let word = |at: usize| head.get(at..at.saturating_add(4)).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let long = move |at: usize| u64::from(word(at)) | u64::from(word(at.saturating_add(4))) << 32;
    let (table, size, count) = (long(32) as usize, half(54), half(56));
    (0..count).map(move |index| {
        let at = table.saturating_add(index * size);
        let field = |offset| long(at.saturating_add(offset));
        (word(at), field(8), field(32), word(at.saturating_add(4)) & 1 != 0)
    })
}

/// Whether an ELF program names musl's loader, which can't load what is made for glibc.
pub fn is_musls(head: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let name = segments(head).find(|(kind, ..)| *kind == INTERPRETER).and_then(|(_, at, len, _)| {
        let at = usize::try_from(at).ok()?;
        head.get(at..at.checked_add(usize::try_from(len).ok()?)?)
    });
    name.and_then(|name| name.rsplit(|&byte| byte == b'/').next()).is_some_and(|name| name.starts_with(b"ld-musl"))
}

/// Whether an ELF program is one that the preload library can map itself, by its head: of x86-64, at an address of its own or
/// at any, with its table of segments there.
pub fn can_be_mapped(head: &[u8]) -> bool {
    const SEGMENT_BYTES: u16 = 56;
    let half = |at: usize| head.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let table = head.get(32..40).map_or(u64::MAX, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or([0xff; 8])));
    let end = table.saturating_add(u64::from(half(56)) * u64::from(SEGMENT_BYTES));
    is_elf(head) && matches!(half(16), 2 | 3) && half(18) == 62 && half(54) == SEGMENT_BYTES && end <= head.len() as u64
}

/// The first place of `what` in `text`.
pub fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let (&first, rest) = what.split_first()?;
    let mut from = 0;
    loop {
        let at = from + position(text.get(from..)?, first)?;
        if text[at + 1..].starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The first place of a byte, eight at a time.
fn position(text: &[u8], byte: u8) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let wanted = ONES * u64::from(byte);
    let (words, rest) = text.as_chunks::<8>();
    let holds = |word: &[u8; 8]| {
        let differs = u64::from_le_bytes(*word) ^ wanted;
        differs.wrapping_sub(ONES) & !differs & (ONES << 7) != 0
    };
    match words.iter().position(holds) {
        Some(index) => words[index].iter().position(|it| *it == byte).map(|at| index * 8 + at),
        None => rest.iter().position(|it| *it == byte).map(|at| words.len() * 8 + at),
    }
}

/// Whether a `syscall` instruction with the number of a call that takes paths stands in a piece of a program's text.
pub fn calls_with_paths(text: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| find(rest, b"\x0f\x05")).map(|at| from + at) {
        from = at + 2;
        let is_number = matches!(text.get(from..from + 2), Some(b"\0\0" | b"\xff\xff"));
        if !is_number && number_before(&text[at.saturating_sub(BEFORE)..at]).is_some_and(takes_path) {
            return true;
        }
    }
    false
}

/// What the last `mov eax, number` of these instructions has put there.
fn number_before(text: &[u8]) -> Option<u32> {
    let last = text.windows(5).rposition(|code| matches!(code, [0xb8, _, 0 | 1, 0, 0]))?;
    Some(u32::from_le_bytes([text[last + 1], text[last + 2], 0, 0]))
}

/// Whether an x86-64 call takes a path, or changes a file by a descriptor.
fn takes_path(number: u32) -> bool {
    matches!(number, 76 | 77 | 80..=95 | 132 | 133 | 188..=199 | 235 | 257..=269 | 280 | 316 | 326 | 332 | 437 | 439 | 452)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a call with a path is found wherever it stands; other calls, and what only looks like one, are not.
    #[test]
    fn instructions() {
        let rename = b"\xb8\x3c\x01\x00\x00\x4c\x89\xf7\x0f\x05\x48\x85\xc0";
        for before in 0..40 {
            let text = [&std::vec![0x90; before][..], rename, &[0x90; 9]].concat();
            assert!(calls_with_paths(&text), "{before}");
            assert_eq!(find(&text, b"\x0f\x05"), Some(before + 8));
        }
        assert!(!calls_with_paths(b"\xb8\xca\x00\x00\x00\x0f\x05\x48\x85\xc0"), "futex");
        assert!(!calls_with_paths(b"\xb8\x01\x01\x00\x00\xeb\xe6\x0f\x87\x0f\x05\x00\x00\x85"), "a jump");
        assert!(!calls_with_paths(&[&b"\xb8\x01\x01\x00\x00"[..], &[0x90; BEFORE], b"\x0f\x05\xc3"].concat()), "too far");
        assert!(!calls_with_paths(b"\x0f\x05") && !calls_with_paths(b"\x0f") && !calls_with_paths(b""));
    }

    /// Goal: programs that can be mapped are told from others, and musl's from glibc's, by heads of any length. Method: one head
    /// with one segment, changed a word at a time, and cut short.
    #[test]
    fn heads() {
        let head = |loader: &[u8]| {
            let mut head = std::vec![0u8; 120];
            head[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (head[16], head[18], head[32], head[54], head[56]) = (2, 62, 64, 56, 1);
            (head[64], head[72], head[96]) = (3, 120, loader.len() as u8);
            [&head[..], loader].concat()
        };
        let musl = head(b"/lib/ld-musl-x86_64.so.1\0");
        assert!(is_musls(&musl) && can_be_mapped(&musl));
        assert!(!is_musls(&head(b"/lib64/ld-linux-x86-64.so.2\0")) && !is_musls(&head(b"/ld-musl/ld.so\0")));
        for (at, other) in [(4, 1), (16, 1), (18, 183), (54, 32), (39, 1)] {
            let mut changed = musl.clone();
            changed[at] = other;
            assert!(!can_be_mapped(&changed), "{at}");
        }
        for len in 0..musl.len() {
            assert!(!is_musls(&musl[..len]) && can_be_mapped(&musl[..len]) == (len >= 120), "{len}");
        }
    }

    /// Goal: libc's own libraries are told from others whose names begin alike.
    #[test]
    fn of_libc() {
        let own = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "libpthread.so.0",
            "/lib/librt-2.31.so",
            "libnss_files.so.2",
            "ld-linux-x86-64.so.2",
        ];
        assert!(own.iter().all(|path| is_of_libc(path.as_bytes())));
        let others = ["", "/usr/lib/libcrypto.so.3", "libc++.so.1.0x", "librtmp.so.1", "libdlt.so", "/opt/libc/own.so"];
        let taken: std::vec::Vec<_> = others.iter().filter(|path| is_of_libc(path.as_bytes())).collect();
        assert_eq!(taken, [&"libc++.so.1.0x"], "which is C++'s, and makes none");
    }

    /// Goal: the segments of a program are those that it has; of what is none nothing is made.
    #[test]
    fn programs() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(is_elf(&own) && segments(&own).filter(|(kind, .., executable)| *kind == 1 && *executable).count() == 1);
        assert_eq!(segments(&[0xff; 70]).filter(|(kind, ..)| *kind == 1).count(), 0);
        assert_eq!(segments(b"").count(), 0);
    }
}
