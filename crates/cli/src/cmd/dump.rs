//! `bypath dump IMG`

use crate::failure::{Failure, Result};
use std::io::Write;
use std::path::Path;

/// Prints the structures of an image; it may be damaged.
pub fn dump(image: &Path) -> Result<u8> {
    let mut out = Out { inner: std::io::BufWriter::new(std::io::stdout().lock()), failed: None };
    let dumped = crate::check::dump(image, &mut out);
    if let Err(error) = out.inner.flush() {
        out.failed.get_or_insert(error);
    }
    match out.failed {
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(141),
        Some(error) => Err(Failure::io("standard output", &error)),
        None => dumped.map(|()| 0),
    }
}

/// Standard output as the engine writes to it.
struct Out<'a> {
    inner: std::io::BufWriter<std::io::StdoutLock<'a>>,
    failed: Option<std::io::Error>,
}

impl std::fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.inner.write_all(text.as_bytes()).map_err(|error| {
            self.failed = Some(error);
            std::fmt::Error
        })
    }
}
