//! Tables of sites: those shipped, a file of the user's, and how to read one.
//! The bytes are untrusted: every length and offset is checked here or in
//! [`super::stubs`].

use core::ffi::CStr;
use pm::file::{File, Stat};
use pm::sys::abi::*;

/// Longest build id (SHA-1).
pub use crate::runtime::objects::ID_BYTES;
const MAGIC: &[u8; 8] = b"BPSITES1";
const HEAD_BYTES: usize = 36;
const SITE_BYTES: usize = 24;
const WINDOW_MAX: usize = 16;
/// Largest file that is taken for a table.
const FILE_MAX: usize = 1 << 20;

/// Tables of C libraries that we met.
pub const SHIPPED: &[&[u8]] = &[
    // Debian 12, glibc 2.36-9+deb12u14
    include_bytes!("../../../sites/tables/debian-12.sites"),
    // Debian 13, glibc 2.41-12+deb13u4
    include_bytes!("../../../sites/tables/debian-13.sites"),
];

/// Where libc enters the kernel.
pub struct Site<'a> {
    /// Of the window, from the library's base.
    pub offset: u32,
    /// The call's number.
    pub number: u16,
    /// Where in the window the `syscall` is.
    pub at: usize,
    /// The window: 5 to 16 bytes.
    pub bytes: &'a [u8],
}

/// The sites of one library.
pub struct Table<'a> {
    /// Whose they are.
    pub build_id: &'a [u8],
    sites: &'a [u8],
}

impl<'a> Table<'a> {
    /// Reads a table's head; `None` if it is not one.
    pub fn parse(bytes: &'a [u8]) -> Option<Table<'a>> {
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let id_len = word(&head[8..])? as usize;
        let count = word(&head[32..])? as usize;
        let sites = rest.get(..count.checked_mul(SITE_BYTES)?)?;
        (head.starts_with(MAGIC) && id_len <= ID_BYTES).then(|| Table { build_id: &head[12..12 + id_len], sites })
    }

    /// Its sites, without malformed ones.
    pub fn sites(&self) -> impl Iterator<Item = Site<'a>> {
        self.sites.as_chunks::<SITE_BYTES>().0.iter().filter_map(|site| {
            let (len, at) = (site[6] as usize, site[7] as usize);
            let bytes = site[8..8 + WINDOW_MAX].get(..len)?;
            let is_call = bytes.get(at..at + 2) == Some(&[0x0f, 0x05]);
            let number = u16::from_le_bytes([site[4], site[5]]);
            (is_call && len >= 5).then(|| Site { offset: word(site).unwrap_or(0), number, at, bytes })
        })
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Maps a file for good; `None` if that can't be, or if others could have written it: libc is changed by it.
pub fn read(path: &CStr) -> Option<&'static [u8]> {
    let own = pm::file::own_user();
    let is_ours = |stat: &Stat| (stat.uid == own || stat.uid == 0) && stat.mode & 0o022 == 0;
    let (file, stat) = File::open_checked(path.to_bytes_with_nul(), O_RDONLY, is_ours).ok()?;
    let bytes = stat.size as usize;
    // A private mapping that is written to at once would be a copy; whoever
    // shortens the file meanwhile is the user who runs this program.
    let at = match bytes {
        // SAFETY: a new mapping.
        1..FILE_MAX => unsafe { pm::call!(__NR_mmap, 0, bytes, PROT_READ, MAP_PRIVATE, file.number(), 0) }.ok(),
        _ => None,
    };
    // SAFETY: mapped above, never unmapped.
    at.map(|at| unsafe { core::slice::from_raw_parts(at as *const u8, bytes) })
}
