//! See `bypath_fuzz::target::journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::journal::run(input));
