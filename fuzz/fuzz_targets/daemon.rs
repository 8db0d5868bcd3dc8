//! See `bypath_fuzz::target::daemon`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::daemon::run(input));
