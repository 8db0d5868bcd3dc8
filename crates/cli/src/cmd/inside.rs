//! What the kernel mounts inside the mount of an image: its programs are told, so that they go there.

use crate::attach::Attached;
use base::{Cred, Cx, Last, Node, Scratch, Thread, Walk};
use server::inside;
use std::collections::HashSet;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The watch, which goes on until it is ended.
pub struct Watch {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Watches what is mounted inside the mount at `directory` with this `st_dev`; `report` is told what fails.
    pub fn start(attached: Attached, directory: PathBuf, device: u64, report: impl Fn(&str) + Send + 'static) -> Result<Watch> {
        if let Some(number) = inside::number(&directory, device) {
            attached.fs.set_mount_id(number as u32);
        }
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let watch = move || {
            let thread = Thread::new();
            let mut before = HashSet::new();
            let changed = |paths: Vec<Vec<u8>>| before = change(attached, &thread, &before, &paths, &report);
            if let Err(error) = inside::watch(&directory, device, &stopped, changed) {
                report(&format!("mounts inside {} are not seen by its programs: {error}", directory.display()));
            }
            attached.fs.give_lane_back(&thread);
        };
        let thread = std::thread::Builder::new().name("mounts-inside".to_string()).spawn(watch)?;
        Ok(Watch { stop, thread })
    }

    /// Ends it.
    pub fn end(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// Tells what is mounted now at `paths` in the image, and what no longer is; the nodes that are covered.
fn change(attached: Attached, thread: &Thread, before: &HashSet<u64>, paths: &[Vec<u8>], report: &impl Fn(&str)) -> HashSet<u64> {
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread };
    let mut now = HashSet::new();
    for path in paths {
        let Some(node) = node_at(attached, &cx, path) else { continue };
        match attached.fs.cover(&cx, node) {
            Ok(()) => drop(now.insert(node.id)),
            Err(error) => {
                let shown = Path::new(std::str::from_utf8(path).unwrap_or("a mount")).display();
                report(&format!("{shown}, inside the mount, is not seen by its programs: {}", error.errno()));
            }
        }
    }
    before.difference(&now).for_each(|gone| attached.fs.uncover(*gone));
    now
}

/// What a path in the image leads to, below all that is mounted on it.
fn node_at(attached: Attached, cx: &Cx, path: &[u8]) -> Option<Node> {
    let backend = attached.backend;
    let mut scratch = Scratch::default();
    match backend.walk(cx, backend.root(), path, Last::NoFollow, &mut 0, None, &mut scratch) {
        Ok(Walk::Found(found)) => found.node,
        _ => None,
    }
}
