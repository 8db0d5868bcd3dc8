//! POSIX semantics over the namespace.
#![no_std]
