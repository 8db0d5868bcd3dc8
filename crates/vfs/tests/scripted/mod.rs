//! Daemons that answer as a test says, seen from above the caching layer.

use bypath_vfs as vfs;
use fuse_client::FuseClient;
use fuse_client::ring::{RING_BYTES, Ring, daemon_state};
use pm::UserSlice;
use session::SessionCache;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use vfs::cached::Cached;

/// Shared files of a test, removed at the end.
pub struct Place(PathBuf);

impl Place {
    /// An empty one.
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("bypath-scripted-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    /// The path of a file of so many zeros.
    pub fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.0.join(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.to_str().unwrap().into()
    }

    /// The path of one that was made.
    #[allow(dead_code)]
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    /// The caching layer to a daemon that answers each request (operation, unique, what follows the header).
    pub fn mount(&self, answer: impl Fn(u32, u64, &[u8]) -> Vec<u8> + Send + 'static) -> Cached<FuseClient> {
        let path = self.file("ring", RING_BYTES);
        let text = format!("{path}\0");
        let (client, daemon) = (Ring::open(text.as_bytes()).unwrap(), Ring::open(text.as_bytes()).unwrap());
        let header = client.header().unwrap();
        header.supervisor.store(pm::host::own_mark(), SeqCst);
        header.timeout_ms.store(60_000, SeqCst);
        client.renew().unwrap();
        client.set_daemon_state(daemon_state::SERVING).unwrap();
        std::thread::spawn(move || {
            let mut request = vec![0u8; 1 << 18];
            while let Ok(len) = daemon.receive(&[UserSlice::from_mut(&mut request)]) {
                let operation = u32::from_ne_bytes(request[4..8].try_into().unwrap());
                let unique = u64::from_ne_bytes(request[8..16].try_into().unwrap());
                let payload = answer(operation, unique, &request[40..len]);
                let _ = daemon.reply(&[UserSlice::from_ref(&reply(unique, &payload))], true);
            }
        });
        let session =
            SessionCache::open(format!("{}\0", self.file("session", SessionCache::bytes_with_pages())).as_bytes()).unwrap();
        Cached::new(FuseClient::open(path.as_bytes(), session.device(), false).unwrap(), session)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A reply without an error.
pub fn reply(unique: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = ((16 + payload.len()) as u32).to_ne_bytes().to_vec();
    out.extend([0; 4]);
    out.extend(unique.to_ne_bytes());
    out.extend(payload);
    out
}

/// `struct fuse_entry_out`, believed for an hour.
pub fn entry(id: u64, mode: u32, size: u64) -> Vec<u8> {
    let mut out = vec![0u8; 128];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &id.to_ne_bytes());
    put(16, &3600u64.to_ne_bytes());
    put(24, &3600u64.to_ne_bytes());
    put(48, &size.to_ne_bytes());
    put(100, &mode.to_ne_bytes());
    out
}
