//! See `bypath_fuzz::target::peer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::peer::run(input));
