//! The exported symbols, one file a call family.
