//! See `bypath_fuzz::target::requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::requests::run(input));
