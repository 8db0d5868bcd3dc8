//! Bypath: cli.
