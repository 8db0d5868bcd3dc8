//! What is compared with the kernel: a fresh file system of each kind.

use super::arguments::{Backend, Differential};
use bypath_testkit::differential::run::Limits;
use bypath_testkit::differential::{self, Ours, Plan};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The comparison that is asked for; in words what is wrong with it.
pub fn plan(asked: &Differential) -> Result<Plan, String> {
    let is_image = asked.backend == Backend::Native;
    if asked.nested && !is_image && asked.backend != Backend::Mem {
        return Err("--nested: images or models inside each other only (--backend native, mem)".into());
    }
    let (wire, mount, host) = (asked.backend == Backend::Wire, asked.backend == Backend::Mount, asked.backend == Backend::Host);
    let (busy, cached) = (asked.backend == Backend::CachedBusy, matches!(asked.backend, Backend::Cached | Backend::CachedBusy));
    let ours = match asked.backend {
        Backend::Mem => Ours::Alone(mem),
        Backend::Native => Ours::Alone(native),
        Backend::Host => Ours::BesideKernel(self::host),
        Backend::Cached | Backend::CachedBusy => Ours::Cached { busy },
        Backend::Wire => Ours::Alone(self::wire),
        Backend::Mount => Ours::Mounted(mount_point(asked.directory.as_deref())?),
    };
    Ok(Plan {
        ours,
        nested: asked.nested,
        limits: Limits {
            no_shared_maps: asked.backend == Backend::Mem || wire,
            space_ahead: is_image || mount || cached,
            no_parent_of_removed: is_image || cached,
            order_of_two: host,
            no_link_of_open: host,
            nodes_are_paths: host,
            stale_when_gone: mount,
            vague_lock_holders: mount,
            one_user: cached,
            late_directory_sizes: cached,
            holes_are_data: cached,
            no_tmpfile: wire,
            no_copy_range: wire,
            mounts_by_text: asked.nested,
        },
        ops: asked.ops,
        len: asked.len,
        seed: asked.seed,
        // A daemon shows one tree to all, and so does a mount.
        jobs: if wire || mount { 1 } else { asked.jobs },
    })
}

/// Where an image is mounted whose files may all be removed.
fn mount_point(directory: Option<&Path>) -> Result<PathBuf, String> {
    let directory = directory.ok_or("say --directory, where an image is mounted that may be emptied")?;
    // Nothing else is emptied by mistake.
    let mounts = std::fs::read_to_string("/proc/mounts").map_err(|error| format!("/proc/mounts: {error}"))?;
    let shown = directory.to_string_lossy();
    let is_ours = mounts.lines().any(|line| line.split(' ').skip(1).take(2).eq([&shown[..], "fuse.bypath"]));
    if is_ours { Ok(directory.into()) } else { Err(format!("--directory {shown}: no image is mounted there")) }
}

/// A number that no other call in this process gives.
fn another() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Relaxed)
}

fn mem() -> &'static dyn vfs::Backend {
    // SAFETY: takes no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    vfs::mem::Mem::leak(uid, gid, 0o777, 0x6d65 + another())
}

/// A new image.
fn native() -> &'static dyn vfs::Backend {
    let path = bypath_testkit::image::fresh_path("differential");
    bypath_testkit::image::make(&path, 1 << 30);
    let native = bypath_testkit::image::attach(&path);
    // It stays for as long as it is mapped.
    let _ = std::fs::remove_file(path);
    native
}

/// A directory of the kernel's, new and on tmpfs; it goes with this child's other things.
fn host() -> &'static dyn vfs::Backend {
    let place = std::path::PathBuf::from(differential::sandbox::root_of(std::process::id() as i32));
    let (directory, session) = (place.join("host"), place.join("session"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&directory, open_to_all).expect("its mode");
    std::fs::File::create(&session).and_then(|file| file.set_len(session::SessionCache::bytes())).expect("a session");
    let shared = session::SessionCache::open(&[session.as_os_str().as_encoded_bytes(), b"\0"].concat()).expect("a session");
    let host = vfs::host::Host::new(directory.as_os_str().as_encoded_bytes(), false).expect("the directory");
    Box::leak(Box::new(vfs::cached::Cached::new(host, shared)))
}

/// The daemon of the session of `bypath run` around this call.
fn wire() -> &'static dyn vfs::Backend {
    let list = std::env::var("BYPATH_MOUNTS").unwrap_or_default();
    let plain = |part: &[u8]| {
        let mut out = vec![0; part.len()];
        let len = posix::environment::unescape(part, &mut out).unwrap_or(0);
        out.truncate(len);
        out
    };
    let source = posix::environment::parse(list.as_bytes()).map(|spec| plain(spec.image)).find(|text| text.starts_with(b"wire:"));
    let source = source.expect("no session with a daemon around this call: bypath run --mount 'fuse:… @:/dir' -- testkit …");
    let mut parts = source[5..].splitn(2, |&b| b == b':');
    let (session, channel) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
    let session = session::SessionCache::open(&[session, b"\0"].concat()).expect("the session's session");
    let wire = fuse_client::FuseClient::open(channel, session.device(), false).expect("the daemon's channel");
    Box::leak(Box::new(vfs::cached::Cached::new(wire, session)))
}
