//! See `bypath_fuzz::target::cached`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::cached::run(input));
