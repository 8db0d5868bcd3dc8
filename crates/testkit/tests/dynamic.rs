//! What the preload library reads of other libraries, whose bytes anybody may have written. It is tested here since a
//! library without `std` cannot have tests of its own.

#[path = "../../preload/src/process/libraries/dynamic.rs"]
mod dynamic;

use dynamic::{Dynamic, give_name};

fn own() -> Vec<u8> {
    std::fs::read("/proc/self/exe").expect("this program")
}

fn long(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().expect("eight"))
}

/// Where the program headers are.
fn sections(file: &[u8]) -> Vec<usize> {
    (0..usize::from(file[56])).map(|number| long(file, 32) as usize + 56 * number).collect()
}

/// What this program needs is read as it is.
#[test]
fn needs_libc() {
    let file = own();
    let dynamic = Dynamic::of(&file).expect("a dynamic section");
    assert!(dynamic.needed().any(|name| name == b"libc.so.6"));
    assert_eq!(dynamic.folders(), (&b""[..], &b""[..]));
    assert_eq!(dynamic.name(), None);
    assert!(Dynamic::of(b"#!/bin/sh").is_none());
}

/// A library's own name is what others need it by.
#[test]
fn libc_has_a_name() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
    let file = std::fs::read(path.expect("libc is loaded")).expect("libc");
    assert_eq!(Dynamic::of(&file).expect("a dynamic section").name(), Some(&b"libc.so.6"[..]));
}

/// A library without a name is given one, once, and nothing else changes.
#[test]
fn a_name_is_given_once() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("what is mapped");
    let path = maps.lines().filter_map(|line| line.split(' ').next_back()).find(|path| path.ends_with("/libc.so.6"));
    let mut file = std::fs::read(path.expect("a C library")).expect("its bytes");
    let before = file.clone();
    assert_eq!(give_name(&mut file, b"libown.so"), None, "it has one");
    assert_eq!(file, before);
    // Takes it away: the tag of its name (14) becomes that of nothing (DT_DEBUG).
    let dynamic = sections(&file).into_iter().find(|&at| file[at] == 2).expect("a dynamic section");
    let entries = long(&file, dynamic + 8) as usize;
    let name = (entries..).step_by(16).find(|&at| long(&file, at) == 14).expect("its name");
    file[name] = 21;
    let before = file.clone();
    assert_eq!(give_name(&mut file, &[b'x'; 40]), None, "too long");
    assert_eq!(file, before);
    give_name(&mut file, b"libown.so").expect("room for a name");
    assert!(file.windows(10).any(|part| part == b"libown.so\0"));
    assert!(file.iter().zip(&before).filter(|(now, then)| now != then).count() <= 40 + 16);
    let needed = |file: &[u8]| Dynamic::of(file).expect("one").needed().map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(needed(&file), needed(&before));
    assert_eq!(give_name(&mut file, b"libother.so"), None, "it has one now");
}

/// Any bytes are read without a panic, to an end: numbers of the headers and of the dynamic section replaced, and files
/// cut short.
#[test]
fn damaged() {
    let whole = own();
    let headers = sections(&whole);
    let dynamic = *headers.iter().find(|&&at| whole[at] == 2).expect("a dynamic section");
    let entries = long(&whole, dynamic + 8) as usize;
    let places = (32..64).chain(headers[0]..headers[0] + 56 * headers.len()).chain(entries..entries + 512);
    let mut file = whole.clone();
    for at in places {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let before = file[at..at + 8].to_vec();
            file[at] = value;
            file[at + 7] = value;
            if let Some(dynamic) = Dynamic::of(&file) {
                assert!(dynamic.needed().map(<[u8]>::len).sum::<usize>() <= 64 * file.len());
                let _ = dynamic.folders();
            }
            let mut named = file[..entries + 1024].to_vec();
            let _ = give_name(&mut named, b"libown.so");
            file[at..at + 8].copy_from_slice(&before);
        }
    }
    for len in (0..2048).chain(entries..entries + 600) {
        assert!(Dynamic::of(&whole[..len]).is_none_or(|dynamic| dynamic.needed().count() < 100));
    }
}
