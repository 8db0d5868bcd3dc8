//! See `bypath_fuzz::target::checker`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::checker::run(input));
