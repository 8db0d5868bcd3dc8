//! What the kernel tells of itself.

use pm::file::File;
use pm::sys::abi;

/// The kernel's boot id; `None` where there is no `/proc`.
pub(super) fn boot_id() -> Option<[u64; 2]> {
    let mut text = [0u8; 64];
    let len = read(b"/proc/sys/kernel/random/boot_id\0", &mut text)?;
    hexadecimal(&text[..len])
}

/// The first 32 hexadecimal digits of a text; `None` if they are all 0.
fn hexadecimal(text: &[u8]) -> Option<[u64; 2]> {
    let mut words = [0u64; 2];
    let digits = text.iter().filter_map(|byte| char::from(*byte).to_digit(16));
    for (i, digit) in digits.take(32).enumerate() {
        words[i / 16] = words[i / 16] << 4 | u64::from(digit);
    }
    (words != [0; 2]).then_some(words)
}

/// The id of `/etc/machine-id`; 0 where there is none.
pub(super) fn machine_id() -> [u64; 2] {
    let mut text = [0u8; 33];
    let len = read(b"/etc/machine-id\0", &mut text).unwrap_or(0);
    hexadecimal(&text[..len]).unwrap_or([0; 2])
}

/// The host's name, filled up with zeros; of the UTS namespace that we are in.
pub(super) fn host_name() -> [u8; 64] {
    // Six texts of 65 bytes; the second is the name.
    const TEXT: usize = 65;
    let mut names = [0u8; 6 * TEXT];
    let mut name = [0u8; 64];
    // SAFETY: the buffer is a `struct utsname`.
    if unsafe { pm::call!(abi::__NR_uname, names.as_mut_ptr()) }.is_ok() {
        name.copy_from_slice(&names[TEXT..TEXT + 64]);
    }
    name
}

/// Reads a small file of the kernel's.
fn read(path: &[u8], into: &mut [u8]) -> Option<usize> {
    let file = File::open(path, abi::O_RDONLY, 0).ok()?;
    file.read_at(into, 0).ok().filter(|len| *len > 0)
}

/// The kernel's working directory, without a NUL; its length. `None` if it is
/// unreachable or too long.
pub(super) fn working_directory(into: &mut [u8; 4096]) -> Option<usize> {
    // SAFETY: the buffer is writable for its length.
    let len = unsafe { pm::call!(abi::__NR_getcwd, into.as_mut_ptr(), into.len()) }.ok()?;
    (into[0] == b'/').then_some(len.checked_sub(1)?)
}
