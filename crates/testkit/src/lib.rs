//! Bypath: testkit.
