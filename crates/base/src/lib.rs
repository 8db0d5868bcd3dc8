//! What every layer speaks of: nodes, attributes, credentials, errors, the
//! context of a call, path walks, and open file descriptions. No behaviour.
#![no_std]
#![forbid(unsafe_code)]

pub mod calls;
pub mod description;
pub mod stat;
pub mod types;
pub mod walk;

pub use calls::Calls;
pub use description::{Description, DescriptionId};
pub use types::*;
pub use walk::{Exit, Found, Glance, Last, PATH_MAX, SYMLINKS_MAX, Scratch, Sight, Walk};
