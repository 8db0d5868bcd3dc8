//! See `bypath_fuzz::target::operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::operations::run(input));
