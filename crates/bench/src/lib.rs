//! Bypath: bench.
