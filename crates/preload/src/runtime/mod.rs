//! What everything else stands on: the words of each thread, memory, signals and faults, placeholders, and the path of every
//! call.

#[macro_use]
mod export;

pub mod alloc;
mod bases;
pub mod call;
pub mod child;
pub mod contents;
pub mod count;
pub mod dispatch;
mod ending;
pub mod environ;
pub mod errno;
pub mod faults;
pub mod front_end;
pub mod hook;
pub mod identity;
pub mod imports;
pub mod kernel;
pub mod kernel_path;
pub mod kernel_root;
pub mod masks;
pub mod mount_table;
pub mod objects;
pub mod operation;
pub mod panic;
pub mod phase;
pub mod placeholders;
pub mod sanitizers;
pub mod saved;
pub mod session;
pub mod signals;
pub mod stores;
pub mod swap;
pub mod thread;
pub mod tls;
pub mod vfork_child;
