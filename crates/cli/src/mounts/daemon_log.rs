//! What a daemon prints: kept aside, so that one that aborts does not dump its memory over the user's terminal.
//!
//! Until it serves, what it says is why it does not, and is shown. Afterwards it lies in a file without a name, which gets
//! one when the daemon has ended though nobody asked it to; or in the file that the user has named.

use crate::failure::{Failure, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// So much of what it said before it served is shown, bytes from the end.
const SHOWN: u64 = 16 << 10;

/// Where a daemon's output goes.
pub struct DaemonLog {
    file: File,
    named: Option<PathBuf>,
}

impl DaemonLog {
    /// The file at `path`, to the end of which is added, or one without a name.
    pub fn open(path: Option<&Path>) -> Result<DaemonLog> {
        let file = match path {
            Some(path) => File::options().read(true).append(true).create(true).mode(0o600).open(path),
            None => unnamed(&std::env::temp_dir()),
        };
        let shown = path.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let file = file.map_err(|error| Failure::io(shown.display(), &error))?;
        Ok(DaemonLog { file, named: path.map(Path::to_path_buf) })
    }

    /// Whether the user has named it.
    pub fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// For a process that is about to be started.
    pub fn output(&self) -> Result<Stdio> {
        self.file.try_clone().map(Stdio::from).map_err(|error| Failure::io("a daemon's output", &error))
    }

    /// How much was printed so far.
    pub fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len())
    }

    /// Shows what was printed since then.
    pub fn show_since(&self, begun: u64) {
        let end = self.len();
        let mut text = vec![0; end.saturating_sub(begun).min(SHOWN) as usize];
        let from = end - text.len() as u64;
        if self.file.read_exact_at(&mut text, from).is_ok() {
            let _ = std::io::stderr().write_all(&text);
        }
    }

    /// The daemon has ended though nobody asked it to: the file's name, if there is anything in it.
    pub fn keep(&self) -> Option<PathBuf> {
        if self.len() == 0 {
            return None;
        }
        self.named.clone().or_else(|| self.copy_to_name(&std::env::temp_dir()).ok().flatten())
    }

    fn copy_to_name(&self, directory: &Path) -> std::io::Result<Option<PathBuf>> {
        for count in 0..100u32 {
            let path = directory.join(format!("bypath-daemon-{}-{count}.log", std::process::id()));
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut named) => {
                    let mut from = self.file.try_clone()?;
                    from.seek(SeekFrom::Start(0))?;
                    std::io::copy(&mut from.take(self.len()), &mut named)?;
                    return Ok(Some(path));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// A file without a name, each write to which goes to its end: the daemon and what it has started share it.
fn unnamed(directory: &Path) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file.into());
    }
    let file = rustix::fs::memfd_create("bypath-daemon-log", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a process prints is had by name once it is asked for, and nothing without; a file of the user's is kept.
    #[test]
    fn named_when_it_is_wanted() {
        let log = DaemonLog::open(None).unwrap();
        assert_eq!(log.keep(), None);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "echo one; echo two >&2"]);
        assert!(command.stdout(log.output().unwrap()).stderr(log.output().unwrap()).status().unwrap().success());
        let path = log.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let again = DaemonLog::open(Some(&path)).unwrap();
        writeln!(&again.file, "three").unwrap();
        assert_eq!(again.keep(), Some(path.clone()));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nthree\n");
        std::fs::remove_file(path).unwrap();
    }
}
