//! The folders of `crates/preload` as data: which may use which. And no two of its modules use each other, by whatever
//! way round; a module and those in it count as one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Each folder, from the bottom up, and those it may use besides itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("runtime", &[]),
    ("process", &["runtime"]),
    ("libc", &["process", "runtime"]),
    ("patch", &["runtime"]),
    ("stdio", &["libc", "process", "runtime"]),
    ("init", &["libc", "patch", "process", "runtime", "stdio"]),
];

/// Who uses whom, by the names of modules.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Compares the sources with [`LAYERS`].
pub fn check() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/preload/src");
    let arrows = arrows(&sources(&root, &root).map_err(|error| format!("{}: {error}", root.display()))?);
    for (user, used) in arrows.iter().flat_map(|(user, all)| all.iter().map(move |used| (user, used))) {
        let Some((_, below)) = LAYERS.iter().find(|(folder, _)| *folder == folder_of(user)) else { continue };
        if folder_of(used) != folder_of(user) && !below.contains(&folder_of(used)) {
            return Err(format!("preload: {user} uses {used}, which stands above it (xtask/src/layers.rs)"));
        }
    }
    match circle(&arrows) {
        Some(circle) => Err(format!("preload: modules use each other: {}", circle.join(" → "))),
        None => Ok(format!("{} modules of preload, none uses what stands above it", arrows.len())),
    }
}

fn folder_of(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

/// Modules and their text without comments.
fn sources(root: &Path, folder: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(root, &path)?);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let name = path.strip_prefix(root).unwrap_or(&path).with_extension("");
            let name = name.to_string_lossy().replace('/', "::");
            let text = std::fs::read_to_string(&path)?;
            let code = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
            found.insert(name.strip_suffix("::mod").unwrap_or(&name).to_string(), code);
        }
    }
    Ok(found)
}

fn arrows(sources: &BTreeMap<String, String>) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, code) in sources {
        let mut used = BTreeSet::new();
        for (start, base) in [("crate::", ""), ("super::", module.rsplit_once("::").map_or("", |(above, _)| above))] {
            for (at, _) in code.match_indices(start) {
                paths(&code[at + start.len()..], base, &mut |path| used.extend(module_in(sources, path)));
            }
        }
        let user = whole(module);
        let others = used.iter().map(|used| whole(used).to_string()).filter(|used| used != user);
        arrows.entry(user.to_string()).or_default().extend(others);
    }
    arrows
}

/// A module with all those in it: the first two parts of its name.
fn whole(module: &str) -> &str {
    module.match_indices("::").nth(1).map_or(module, |(at, _)| &module[..at])
}

/// Calls `each` for all paths that a path, or a tree of `use`, stands for; returns what follows it.
fn paths<'t>(text: &'t str, base: &str, each: &mut dyn FnMut(&str)) -> &'t str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let path = if base.is_empty() || name.is_empty() { format!("{base}{name}") } else { format!("{base}::{name}") };
    if let Some(mut rest) = rest.trim_start().strip_prefix('{').filter(|_| name.is_empty()) {
        loop {
            rest = paths(rest.trim_start(), base, each).trim_start();
            rest = match rest.strip_prefix(',') {
                Some(rest) => rest,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            };
        }
    }
    match rest.strip_prefix("::") {
        Some(rest) => paths(rest, &path, each),
        None => {
            each(&path);
            // Another name for it.
            let other = rest.trim_start().strip_prefix("as ");
            other.map_or(rest, |other| other.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_'))
        }
    }
}

/// The module that a path leads to or into.
fn module_in(sources: &BTreeMap<String, String>, path: &str) -> Option<String> {
    let mut path = path;
    loop {
        if sources.contains_key(path) {
            return Some(path.to_string());
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// Modules that use each other in a circle, if there are any.
fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    let mut left: Arrows = arrows.clone();
    // Who uses nobody is in no circle.
    while let Some(done) = left.iter().find(|(_, used)| used.is_empty()).map(|(module, _)| module.clone()) {
        left.remove(&done);
        for used in left.values_mut() {
            used.remove(&done);
        }
    }
    let mut way = vec![left.keys().next()?.clone()];
    loop {
        let next = left.get(way.last()?)?.iter().next()?.clone();
        if let Some(at) = way.iter().position(|module| *module == next) {
            way.push(next);
            return Some(way.split_off(at));
        }
        way.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the preload library's modules are as in the picture.
    #[test]
    fn modules_are_as_in_the_picture() {
        println!("{}", check().unwrap());
    }

    /// Goal: arrows are seen in whatever form they are written, and a circle is found. Method: small modules.
    #[test]
    fn arrows_and_circles() {
        let of =
            |files: &[(&str, &str)]| arrows(&files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect());
        let found = of(&[
            ("a", "use crate::{b::{self, X as Y}, c};"),
            ("b", "fn f() { crate::d::e::g() }"),
            ("c", ""),
            ("d", ""),
            ("d::e", "use super::h;"),
            ("d::e::f", "use super::*; use crate::c;"),
            ("d::h", "use crate::\n{ d::e::Z, b };"),
        ]);
        let used = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((used("a"), used("b")), (vec!["b", "c"], vec!["d::e"]));
        assert_eq!((used("d::e"), used("d::h")), (vec!["c", "d::h"], vec!["b", "d::e"]));
        assert_eq!(circle(&found).unwrap().first(), circle(&found).unwrap().last());
        assert_eq!(circle(&of(&[("a", "use crate::b;"), ("b", "")])), None);
    }
}
