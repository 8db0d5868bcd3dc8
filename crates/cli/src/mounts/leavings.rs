//! Shared files of sessions that were killed: nobody removes them, and a page cache is up to 64 MiB of memory.
//!
//! A session's programs outlive the one that made its files, so that one's death is not enough: a file goes when
//! nobody has it open or mapped any more, which only the kernel knows.

use pm::file::File;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// What the names of shared files begin with; then come the kind, the maker's PID and a number.
pub const PREFIX: &str = "bypath-";
/// Younger ones stay: their maker may live where its PID means another or none, and not have mapped them yet.
pub const AGE: Duration = Duration::from_secs(60);

/// Removes those of this user from `directory`. Another's could be a symlink the next moment: it is not looked into, and stays.
pub fn remove_from(directory: &Path, age: Duration) {
    let own = pm::file::own_user();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        if meta.uid() != own {
            continue;
        }
        let is_old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|past| past >= age));
        let is_orphan = entry.file_name().to_str().and_then(maker).is_some_and(|pid| !pm::host::is_alive(pid));
        if is_old && is_orphan {
            match entry.file_type() {
                // Whoever may still make a name in it does without.
                Ok(kind) if kind.is_dir() && is_said(&entry) => drop(fs::remove_dir_all(entry.path())),
                Ok(kind) if kind.is_dir() => {
                    fs::read_dir(entry.path()).into_iter().flatten().flatten().for_each(|file| remove_unused(&file.path()));
                    let _ = fs::remove_dir(entry.path());
                }
                _ => remove_unused(&entry.path()),
            }
        }
    }
}

/// Whether a directory only holds names, of what was said.
fn is_said(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|name| name.starts_with("said-"))
}

/// The process that made the file of this name, if it is a shared file's.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (kind, pid, count) = (parts.next()?, parts.next()?, parts.next()?);
    if !matches!(kind, "ledger" | "channel" | "kept" | "new" | "rescue" | "said")
        || count.parse::<u32>().is_err()
        || parts.next().is_some()
    {
        return None;
    }
    pid.parse().ok()
}

fn remove_unused(path: &Path) {
    let Ok(text) = CString::new(path.as_os_str().as_bytes()) else { return };
    // Another user's is not looked into, and stays.
    let own = pm::file::own_user();
    let flags = rustix::fs::OFlags::RDWR.bits();
    let file = File::open_checked(text.as_bytes_with_nul(), flags, |stat| stat.uid == own && stat.links == 1);
    if file.is_ok_and(|(file, _)| file.is_alone()) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what killed sessions have left goes once nobody uses it, all else stays. Method: files named after a
    /// child that has ended, of which one is mapped, and others that are not shared files or whose maker lives.
    #[test]
    fn only_what_nobody_uses() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let alive = std::process::id();
        let place = std::env::temp_dir().join(format!("bypath-sweep-{alive}"));
        // A killed run's, whose process had this number.
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        let stay = [
            format!("{PREFIX}ledger-{alive}-0"),
            format!("{PREFIX}ledger-{dead}-1"),
            format!("{PREFIX}ledger-{dead}"),
            format!("{PREFIX}other-{dead}-0"),
            format!("ledger-{dead}-0"),
        ];
        let go = [format!("{PREFIX}ledger-{dead}-0"), format!("{PREFIX}channel-{dead}-2"), format!("{PREFIX}kept-{dead}-3")];
        for name in stay.iter().chain(&go) {
            fs::write(place.join(name), [0; 4096]).unwrap();
        }
        let said = format!("{PREFIX}said-{dead}-0");
        fs::create_dir_all(place.join(&said).join("0.5")).unwrap();
        let there = |name: &String| place.join(name).exists();
        let mapped = CString::new(place.join(&stay[1]).as_os_str().as_bytes()).unwrap();
        pm::file::share(mapped.as_bytes_with_nul(), 4096).unwrap();
        remove_from(&place, AGE);
        assert!(stay.iter().chain(&go).all(there), "all are too young");
        remove_from(&place, Duration::ZERO);
        assert!(stay.iter().all(there));
        assert!(!go.iter().any(there) && !there(&said));
        fs::remove_dir_all(&place).unwrap();
    }
}
