//! See `bypath_fuzz::target::resolver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::resolver::run(input));
