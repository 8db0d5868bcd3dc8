//! Bypath: capi.
