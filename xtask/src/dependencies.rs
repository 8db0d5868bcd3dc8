//! The picture of ARCHITECTURE.md as data: who may depend on whom.

use serde_json::Value;
use std::process::Command;

/// Each crate and the crates of ours it may use. Dependencies of tests and of
/// build scripts are free.
const PICTURE: &[(&str, &[&str])] = &[
    ("bypath-base", &["bypath-pm"]),
    ("bypath-format", &[]),
    ("bypath-pm", &[]),
    ("bypath-engine", &["bypath-base", "bypath-format", "bypath-openfiles", "bypath-pm"]),
    ("bypath-openfiles", &["bypath-base", "bypath-pm"]),
    ("bypath-session", &["bypath-base", "bypath-openfiles", "bypath-pm"]),
    ("bypath-fuse-client", &["bypath-base", "bypath-pm", "bypath-session"]),
    ("bypath-plugin", &["bypath-base", "bypath-pm", "bypath-session"]),
    ("bypath-vfs", &["bypath-base", "bypath-engine", "bypath-openfiles", "bypath-pm", "bypath-session"]),
    ("bypath-posix", &["bypath-base", "bypath-openfiles", "bypath-pm", "bypath-vfs"]),
    ("bypath-cache", &["bypath-base", "bypath-engine", "bypath-openfiles", "bypath-pm", "bypath-vfs"]),
    ("bypath-writeback", &["bypath-base", "bypath-cache", "bypath-engine", "bypath-format", "bypath-pm", "bypath-vfs"]),
    // Doors attach images themselves: that takes the engine.
    (
        "bypath-preload",
        &[
            "bypath-base",
            "bypath-cache",
            "bypath-engine",
            "bypath-fuse-client",
            "bypath-openfiles",
            "bypath-plugin",
            "bypath-pm",
            "bypath-posix",
            "bypath-session",
            "bypath-vfs",
        ],
    ),
    ("bypath-daemon", &["bypath-fuse-client", "bypath-pm"]),
    ("bypath-objects", &["bypath-base", "bypath-fuse-client", "bypath-pm", "bypath-server"]),
    (
        "bypath-capi",
        &[
            "bypath-base",
            "bypath-engine",
            "bypath-fuse-client",
            "bypath-plugin",
            "bypath-pm",
            "bypath-posix",
            "bypath-session",
            "bypath-vfs",
        ],
    ),
    ("bypath-server", &["bypath-base", "bypath-openfiles", "bypath-pm", "bypath-vfs"]),
    (
        "bypath-cli",
        &[
            "bypath-base",
            "bypath-bench",
            "bypath-cache",
            "bypath-engine",
            "bypath-format",
            "bypath-fuse-client",
            "bypath-plugin",
            "bypath-pm",
            "bypath-posix",
            "bypath-server",
            "bypath-session",
            "bypath-sites",
            "bypath-vfs",
            "bypath-writeback",
        ],
    ),
    // The lab stands beside the house.
    (
        "bypath-testkit",
        &[
            "bypath-base",
            "bypath-cache",
            "bypath-engine",
            "bypath-format",
            "bypath-fuse-client",
            "bypath-pm",
            "bypath-posix",
            "bypath-session",
            "bypath-vfs",
            "bypath-writeback",
        ],
    ),
    (
        "bypath-bench",
        &[
            "bypath-base",
            "bypath-capi",
            "bypath-engine",
            "bypath-format",
            "bypath-openfiles",
            "bypath-pm",
            "bypath-posix",
            "bypath-vfs",
        ],
    ),
    ("bypath-sites", &[]),
    ("xtask", &["bypath-sites"]),
];

/// Compares the manifests with [`PICTURE`].
pub fn check() -> Result<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    let mut edges = 0;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = PICTURE.iter().find(|(known, _)| *known == name) else {
            return Err(format!("{name} is not in the picture: add it to ARCHITECTURE.md and xtask/src/dependencies.rs"));
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            if !dependency["kind"].is_null() || !names.contains(&target) {
                continue;
            }
            if !allowed.contains(&target) {
                return Err(format!("{name} depends on {target}, which the picture does not allow"));
            }
            edges += 1;
        }
    }
    Ok(format!("{} crates, {edges} dependencies, all as in the picture", packages.len()))
}

#[cfg(test)]
mod tests {
    /// Goal: dependencies point down the picture and nowhere else.
    #[test]
    fn dependencies_are_as_in_the_picture() {
        println!("{}", super::check().unwrap());
    }
}
