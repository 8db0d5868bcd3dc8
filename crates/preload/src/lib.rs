//! Bypath: preload.
