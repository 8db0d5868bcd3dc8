//! What every layer speaks of: nodes, attributes, credentials, errors, the
//! context of a call, path walks, and open file descriptions. No behaviour but
//! for how those are held, which two kinds of tables share.
#![no_std]
#![forbid(unsafe_code)]

pub mod calls;
pub mod description;
pub mod hold;
pub mod ids;
pub mod stat;
pub mod types;
pub mod walk;

use core::sync::atomic;

pub use calls::Calls;
pub use description::{Description, DescriptionId, Unclosed};
pub use types::*;
pub use walk::{Exit, Fast, Found, Last, PATH_MAX, SYMLINKS_MAX, Scratch, Sight, Walk};
