//! Caches in front of directories of which one lies in the other.
//!
//! Two caches that write back into one tree would be two writers that know nothing of each other's changes until these are
//! below. Refused are: two such mounts of one session, and a cache in front of a directory inside one whose changes another
//! cache holds (its marker lies at the top of that one). A cache in front of the outer directory that begins later takes the
//! changes of the inner one's rounds for changes by other programs.

use super::spec::{Mount, Source};
use crate::failure::{Failure, Result};
use std::path::Path;
use writeback::marker;

/// The directory that a mount writes back into.
fn written_back(mount: &Mount) -> Option<&Path> {
    let options = &mount.options;
    let is_cached = options.cache.is_some() || options.own_cache.is_some();
    match &mount.source {
        Source::Host(path) if is_cached && !options.read_only => Some(path),
        _ => None,
    }
}

/// Refuses caches in each other's trees.
pub fn check(mounts: &[Mount]) -> Result<()> {
    for (index, mount) in mounts.iter().enumerate() {
        let Some(path) = written_back(mount) else { continue };
        for other in mounts[..index].iter().filter_map(written_back) {
            let (inner, outer) = if other.starts_with(path) { (other, path) } else { (path, other) };
            if inner != outer && inner.starts_with(outer) {
                return Err(Failure::new(format!(
                    "host:{}: lies in host:{}, which has a cache too; mount the outer one alone, or one of the two with ro",
                    inner.display(),
                    outer.display()
                )));
            }
        }
        check_around(path)?;
    }
    Ok(())
}

/// Refuses a cache in front of a directory inside one whose changes another cache holds.
fn check_around(path: &Path) -> Result<()> {
    for outer in path.ancestors().skip(1) {
        // One that another user has put there counts for nothing.
        if let Ok(Some(cache)) = marker::that_stays(outer) {
            return Err(Failure::new(format!(
                "host:{}: lies in {}, whose changes the cache {cache} holds; mount that directory with cache={cache}, or \
                 `bypath cache drain {cache}` first",
                path.display(),
                outer.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn mounts(texts: &[String]) -> Vec<Mount> {
        texts.iter().map(|text| Mount::parse(OsStr::new(text)).unwrap()).collect()
    }

    /// Goal: two caches in one tree are refused, in either order; neighbours, a plain directory and one with `ro` are not.
    #[test]
    fn in_one_session() {
        let top = std::env::temp_dir().join(format!("bypath-nested-{}", std::process::id()));
        let (outer, inner, beside) = (top.join("a"), top.join("a/b"), top.join("ab"));
        [&inner, &beside].into_iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
        let at = |path: &Path, rest: &str| format!("host:{}:/p{rest}", path.display());
        let ok = [
            vec![at(&outer, ",cache"), at(&beside, ",cache")],
            vec![at(&outer, ",cache"), at(&inner, "")],
            vec![at(&outer, ",cache,ro"), at(&inner, ",cache")],
            vec![at(&inner, ",cache"), at(&outer, ",cache,ro")],
        ];
        ok.iter().for_each(|texts| check(&mounts(texts)).unwrap());
        for texts in [[at(&outer, ",cache"), at(&inner, ",cache=/c.img")], [at(&inner, ",cache"), at(&outer, ",cache")]] {
            let said = check(&mounts(&texts)).unwrap_err().to_string();
            assert!(said.starts_with(&format!("host:{}: lies in host:{}", inner.display(), outer.display())), "{said}");
        }
        std::fs::write(outer.join(marker::NAME), "text\nimage /i.img\nnumber 1\n").unwrap();
        let said = check(&mounts(&[at(&inner, ",cache")])).unwrap_err().to_string();
        assert!(said.contains("whose changes the cache /i.img holds"), "{said}");
        check(&mounts(&[at(&inner, "")])).unwrap();
        std::fs::remove_dir_all(top).unwrap();
    }
}
