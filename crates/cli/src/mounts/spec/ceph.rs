//! `ceph:`: a CephFS cluster by `ceph-fuse`, with the options that it needs without the kernel's FUSE.

use crate::failure::{Failure, Result};
use crate::mounts::transport::find;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const PROGRAM: &str = "ceph-fuse";

/// What it would do with the kernel's mount, which is not there: it ends when it can't, after having tried for seconds.
const WITHOUT_KERNEL: [&str; 3] = [
    "--client_die_on_failed_remount=false",
    "--client_die_on_failed_dentry_invalidate=false",
    "--client_max_retries_on_remount_failure=0",
];

/// It keeps each request in a log of recent events, for its dump should it crash, and wakes a thread of its own for that: a
/// third of what a `stat` costs.
const WITHOUT_RECENT_EVENTS: [&str; 2] = ["--debug_client=0/0", "--debug_fuse=0/0"];

/// Mount options that are words of `ceph-fuse`'s.
const OPTIONS: [(&str, &str); 3] = [("conf=", "-c"), ("name=", "-n"), ("keyring=", "-k")];

/// The command for `[MON,…][/PATH]`, and the mount options that are not its own.
pub fn command(text: &[u8], options: &str, shown: &str) -> Result<(Vec<OsString>, String)> {
    let wrong = |help: &str| Failure::new(format!("--mount '{shown}': {help}"));
    let (monitors, path) = parts(text);
    let mut words: Vec<OsString> = [PROGRAM, "-f"].map(OsString::from).into();
    let mut add = |word: &str, value: &OsStr| words.extend([OsString::from(word), value.to_os_string()]);
    if !monitors.is_empty() {
        add("-m", OsStr::from_bytes(monitors));
    }
    if !matches!(path, b"" | b"/") {
        add("-r", OsStr::from_bytes(path));
    }
    let mut others = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match OPTIONS.iter().find_map(|(name, word)| Some((*word, option.strip_prefix(name)?))) {
            Some((_, "")) => return Err(wrong(&format!("{option} says nothing"))),
            // Users are written with or without their type.
            Some(("-n", user)) if !user.contains('.') => add("-n", format!("client.{user}").as_ref()),
            Some((word, value)) => add(word, value.as_ref()),
            None => others.push(option),
        }
    }
    words.extend(WITHOUT_KERNEL.iter().chain(&WITHOUT_RECENT_EVENTS).map(OsString::from));
    words.push("@".into());
    Ok((words, others.join(",")))
}

/// Whether the program is there.
pub fn must_be_there(shown: &str) -> Result<()> {
    let help =
        || Failure::new(format!("--mount '{shown}': {PROGRAM} is not in PATH (Debian's package {PROGRAM}); ceph: runs it"));
    find(OsStr::new(PROGRAM)).map(drop).ok_or_else(help)
}

/// Monitors, which may be a list in brackets, and the directory of the cluster.
fn parts(text: &[u8]) -> (&[u8], &[u8]) {
    let mut depth = 0;
    let cut = text.iter().position(|byte| {
        depth += i32::from(*byte == b'[') - i32::from(*byte == b']');
        *byte == b'/' && depth == 0
    });
    text.split_at(cut.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, options: &str) -> String {
        let (words, others) = command(text.as_bytes(), options, "ceph:").unwrap();
        let kept: Vec<_> = words.iter().filter(|word| !word.to_string_lossy().starts_with("--")).collect();
        format!("{} | {others}", kept.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    /// Goal: monitors, the cluster's directory and its options reach `ceph-fuse`, all else stays a mount option.
    #[test]
    fn words_of_the_daemon() {
        assert_eq!(line("", ""), "ceph-fuse -f @ | ");
        assert_eq!(line("/", "ro"), "ceph-fuse -f @ | ro");
        assert_eq!(
            line("a:6789,b/x/y", "conf=/c,name=u,pages=8M"),
            "ceph-fuse -f -m a:6789,b -r /x/y -c /c -n client.u @ | pages=8M"
        );
        assert_eq!(
            line("[v2:1.2.3.4:3300/0]/x", "name=mds.a,keyring=k"),
            "ceph-fuse -f -m [v2:1.2.3.4:3300/0] -r /x -n mds.a -k k @ | "
        );
        assert!(command(b"", "conf=", "ceph:").is_err());
    }
}
