//! What runs that were killed have left in `/dev/shm`: images, directories for segments, roots of children.
//!
//! All of it is named `bypath-testkit-PID…` after the process that made it, and would have been
//! removed by that one. So whatever is named after nobody who lives is nobody's.

use std::fs;
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

/// Where all of it lies.
const PLACE: &str = "/dev/shm";
const PREFIX: &str = "bypath-testkit-";
/// Younger ones stay: a process that has just got its PID again may be about to use them.
const AGE: Duration = Duration::from_secs(60);

/// Removes them, the first time it is called.
pub(crate) fn remove_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| remove_from(Path::new(PLACE), AGE));
}

fn remove_from(place: &Path, age: Duration) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_old = entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|past| past >= age));
        let maker = entry.file_name().to_str().and_then(maker);
        if is_old && maker.is_some_and(|pid| !pm::host::is_alive(pid)) {
            // What is another user's stays.
            let path = entry.path();
            let _ =
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

/// The process that a name tells of.
fn maker(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    rest.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what the dead have left goes, all else stays. Method: names after a child that has ended, after this
    /// process, and after nobody; directories and files, too young at first.
    #[test]
    fn only_of_the_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let place = std::env::temp_dir().join(format!("{PREFIX}{}-leavings", std::process::id()));
        let alive = std::process::id();
        let mine = [
            format!("{PREFIX}{alive}-0-a.image"),
            format!("{PREFIX}{alive}-segments"),
            format!("{PREFIX}x"),
            format!("other-{dead}"),
        ];
        let theirs = [format!("{PREFIX}{dead}-0-a.image"), format!("{PREFIX}{dead}-segments"), format!("{PREFIX}{dead}")];
        fs::create_dir_all(&place).unwrap();
        for name in mine.iter().chain(&theirs) {
            if name.ends_with("image") {
                fs::write(place.join(name), b"x").unwrap();
            } else {
                fs::create_dir_all(place.join(name).join("inside")).unwrap();
            }
        }
        remove_from(&place, AGE);
        assert!(mine.iter().chain(&theirs).all(|name| place.join(name).exists()), "all are too young");
        remove_from(&place, Duration::ZERO);
        assert!(mine.iter().all(|name| place.join(name).exists()));
        assert!(!theirs.iter().any(|name| place.join(name).exists()));
        fs::remove_dir_all(&place).unwrap();
    }
}
