//! What a FUSE daemon that has a socket finds in its `PATH` as `fusermount`.
//!
//! libfuse 3 and many of Go's daemons take a mount point `/dev/fd/3` for what it says. Others
//! know only the kernel's way for ordinary users: they start `fusermount -o … POINT`, and get the device
//! back over the socket that `_FUSE_COMMFD` names. So a directory with links of that name to this program leads
//! their `PATH`. Its only news is for the point `/dev/fd/3`: the device is then the daemon's end of the
//! pair, which it holds under a second number, since a child's descriptor 3 may be another. All else is for the
//! system's own `fusermount`.

use super::daemon::{SOCKET, temporary_directory};
use crate::failure::{Failure, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const NAMES: [&str; 2] = ["fusermount", "fusermount3"];
/// Says where the links are.
const VARIABLE: &str = "BYPATH_HELPERS";
/// The daemon's second number for its end of the pair. A shell's redirections reach no higher.
pub const SPARE: i32 = 9;

/// The directory with the links; dropping it takes it away.
pub struct Helpers {
    directory: PathBuf,
}

impl Helpers {
    /// Makes it.
    pub fn make() -> Result<Helpers> {
        let program = std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", &error))?;
        let helpers = Helpers { directory: temporary_directory()? };
        for name in NAMES {
            let link = helpers.directory.join(name);
            std::os::unix::fs::symlink(&program, &link).map_err(|error| Failure::io(link.display(), &error))?;
        }
        Ok(helpers)
    }

    /// A command that is started will find them.
    pub fn lead(&self, command: &mut Command) {
        let mut path = self.directory.clone().into_os_string();
        let rest = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        path.push(":");
        path.push(rest);
        command.env("PATH", path).env(VARIABLE, &self.directory);
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What is asked of `fusermount`.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Mount,
    Unmount,
    /// Something that is not ours.
    Other,
}

fn asked(arguments: &[OsString]) -> Asked {
    let is_short = |word: &str| word.starts_with('-') && !word.starts_with("--");
    let unmounts =
        |word: &OsString| word.to_str().is_some_and(|word| word == "--unmount" || is_short(word) && word.contains('u'));
    match arguments.iter().any(|word| word == SOCKET) {
        false => Asked::Other,
        true if arguments.iter().any(unmounts) => Asked::Unmount,
        true => Asked::Mount,
    }
}

/// If this process was started by one of the links: does what is asked; its exit code.
pub fn serve() -> Option<ExitCode> {
    let links = PathBuf::from(std::env::var_os(VARIABLE)?);
    let mut words = std::env::args_os();
    let name = Path::new(&words.next()?).file_name()?.to_os_string();
    if !NAMES.iter().any(|known| name == *known) {
        return None;
    }
    let arguments: Vec<OsString> = words.collect();
    let said = match asked(&arguments) {
        Asked::Mount => hand_over().err(),
        // It goes with the daemon.
        Asked::Unmount => None,
        Asked::Other => Some(pass_on(&links, &name, &arguments)),
    };
    Some(match said {
        None => ExitCode::SUCCESS,
        Some(said) => {
            eprintln!("{}: {said}", name.display());
            ExitCode::FAILURE
        }
    })
}

/// Gives the socket to whoever has started us.
fn hand_over() -> std::result::Result<(), String> {
    let socket = std::env::var("_FUSE_COMMFD").ok().and_then(|text| text.parse().ok());
    let socket = socket.ok_or("_FUSE_COMMFD names no descriptor: a mount by hand is not for /dev/fd/3")?;
    pm::handover::send(socket, SPARE).map_err(|errno| format!("descriptor {SPARE} can't be handed over: {errno}"))
}

/// Becomes the system's program of that name; why not.
fn pass_on(links: &Path, name: &OsStr, arguments: &[OsString]) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others: Vec<PathBuf> = std::env::split_paths(&path).filter(|directory| directory != links).collect();
    let Some(program) = others.iter().map(|directory| directory.join(name)).find(|program| program.is_file()) else {
        return format!("only {SOCKET} is a mount point here");
    };
    let error = Command::new(&program).arg0(name).args(arguments).exec();
    format!("{}: {error}", program.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what daemons say to `fusermount` is told apart, in the order of each library.
    #[test]
    fn words() {
        let asked = |text: &str| asked(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(asked("-o rw,nosuid,fsname=u -- /dev/fd/3"), Asked::Mount);
        assert_eq!(asked("/dev/fd/3 -o subtype=u"), Asked::Mount);
        assert_eq!(asked("-u /dev/fd/3"), Asked::Unmount);
        assert_eq!(asked("-uqz -- /dev/fd/3"), Asked::Unmount);
        assert_eq!(asked("--unmount /dev/fd/3"), Asked::Unmount);
        assert_eq!(asked("-u /mnt"), Asked::Other);
        assert_eq!(asked("-V"), Asked::Other);
    }
}
