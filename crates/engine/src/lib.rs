//! The native file system.
#![no_std]
