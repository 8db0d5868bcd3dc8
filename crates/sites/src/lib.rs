//! Finds the system-call sites of a C library (x86-64), once per library: the
//! preload library redirects them by this table instead of disassembling at
//! every start.
//!
//! ```text
//! window:  [ before … | syscall | after … ]        5 to 16 bytes of whole instructions
//! ```
//! A window is chosen so that a jump of five bytes fits and its instructions
//! work elsewhere as they are: none is relative to its own address, none but the
//! first is where a branch leads. The bytes themselves are in the table, and
//! whoever patches compares them first.
//!
//! Table: [`MAGIC`], the build id (its length, then 20 bytes), the number of
//! sites, then a [`Site`] each ([`SITE_BYTES`]); little-endian.
#![forbid(unsafe_code)]

mod find;

pub use find::{build_id, find};

/// Tables that the preload library has in it.
const SHIPPED: &[&[u8]] = &[include_bytes!("../tables/debian-12.sites"), include_bytes!("../tables/debian-13.sites")];

/// Whether the preload library knows the library with this build id.
pub fn is_shipped(build_id: &[u8]) -> bool {
    SHIPPED.iter().any(|table| table.get(12..12 + build_id.len()) == Some(build_id))
}

/// A table begins with this.
pub const MAGIC: &[u8; 8] = b"BPSITES1";
/// Longest build id that is kept (SHA-1).
pub const ID_BYTES: usize = 20;
/// Longest window.
pub const WINDOW_MAX: usize = 16;
/// A site in the table: offset (4), number (2), length (1), place of the `syscall` (1), bytes (16).
pub const SITE_BYTES: usize = 24;

/// A place where the library enters the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the window begins, from the library's base.
    pub offset: u32,
    /// The system call's number.
    pub number: u16,
    /// Where in the window the `syscall` instruction is.
    pub at: u8,
    /// The window.
    pub bytes: Vec<u8>,
}

/// All that is known of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// Its build id.
    pub build_id: Vec<u8>,
    /// By offset.
    pub sites: Vec<Site>,
    /// `syscall` instructions that have no window, or whose number is not known.
    pub left_out: usize,
}

impl Sites {
    /// The table as it is stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend((self.build_id.len() as u32).to_le_bytes());
        let mut id = [0; ID_BYTES];
        id[..self.build_id.len()].copy_from_slice(&self.build_id);
        out.extend(id);
        out.extend((self.sites.len() as u32).to_le_bytes());
        for site in &self.sites {
            out.extend(site.offset.to_le_bytes());
            out.extend(site.number.to_le_bytes());
            out.extend([site.bytes.len() as u8, site.at]);
            let mut bytes = [0; WINDOW_MAX];
            bytes[..site.bytes.len()].copy_from_slice(&site.bytes);
            out.extend(bytes);
        }
        out
    }
}
