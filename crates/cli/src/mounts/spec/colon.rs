//! Colons in a mount point.

use super::Source;
use crate::failure::{Failure, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Refuses a mount point with a colon that stands for something else: a directory inside the source (`IMG:/inside:/point`),
/// or options as other tools write them (`IMG:/point:ro`). A directory with a colon in its name can be a mount point if it exists.
pub fn refuse(source: &Source, point: &[u8], shown: &str) -> Result<()> {
    let Some(colon) = point.iter().position(|&byte| byte == b':') else { return Ok(()) };
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let source = source.shown();
    if let Some(cut) = point.windows(2).position(|pair| pair == b":/") {
        let (inside, point) = (text(&point[..cut]), text(&point[cut + 1..]));
        return Err(Failure::new(format!(
            "--mount '{shown}': a directory inside the source cannot be mounted alone; write {source}:{point} and use {}{inside}",
            point.trim_end_matches('/')
        )));
    }
    if Path::new(OsStr::from_bytes(point)).is_dir() {
        return Ok(());
    }
    let (before, after) = (text(&point[..colon]), text(&point[colon + 1..]));
    Err(Failure::new(format!(
        "--mount '{shown}': mount point {} does not exist and has a colon; options follow a comma: write {source}:{before},{after}, \
         or make the directory first",
        text(point)
    )))
}

#[cfg(test)]
mod tests {
    use crate::mounts::spec::Mount;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// Goal: a path inside an image is not taken for a part of the mount point, nor are options; the message says what to write.
    #[test]
    fn colons() {
        let said = |text: &str| Mount::parse(OsStr::new(text)).expect_err(text).to_string();
        let inside = said("/i.img:/agents/7:/work,ro");
        assert!(inside.contains("write /i.img:/work and use /work/agents/7"), "{inside}");
        let options = said("/i.img:/work:ro");
        assert!(options.contains("write /i.img:/work,ro, or make"), "{options}");
        let made = std::env::temp_dir().join(format!("bypath-colon:{}", std::process::id()));
        std::fs::create_dir(&made).unwrap();
        let mount = Mount::parse(OsStr::new(&format!("/i.img:{}", made.display())));
        std::fs::remove_dir(&made).unwrap();
        assert_eq!(mount.unwrap().point, made.as_os_str().as_bytes());
    }
}
