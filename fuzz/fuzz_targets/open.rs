//! See `bypath_fuzz::target::open`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::open::run(input));
