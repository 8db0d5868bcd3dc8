//! See `bypath_fuzz::target::mutator`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_fuzz::target::mutator::run(input));
