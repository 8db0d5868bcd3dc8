//! The image format.
#![no_std]
#![forbid(unsafe_code)]
