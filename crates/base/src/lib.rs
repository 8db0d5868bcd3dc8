//! What every layer speaks of: nodes, attributes, credentials, errors, the
//! context of a call, and path walks. No behaviour.
#![no_std]
#![forbid(unsafe_code)]

pub mod calls;
pub mod ids;
pub mod name;
pub mod stat;
pub mod types;
pub mod walk;

pub use calls::Calls;
pub use name::Name;
pub use types::*;
pub use walk::{Exit, Fast, Found, Last, PATH_MAX, SYMLINKS_MAX, Scratch, Sight, Walk};
