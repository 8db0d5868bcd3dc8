//! `bypath mounts`: what the session around this call sees, and how it does.

use super::cache::Figures;
use super::{print, print_json};
use crate::attach;
use crate::failure::{Failure, Result};
use crate::mounts::linger::{self, Lingering};
use crate::mounts::plain;
use crate::size;
use fuse_client::ring::{Ring, daemon_state};
use posix::environment;
use serde::Serialize;
use session::SessionCache;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// One mount.
#[derive(Serialize)]
pub struct Row {
    pub point: String,
    pub source: String,
    pub state: &'static str,
    /// Programs that use it now, files known, names found in the cache and asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<u64>,
    /// Bytes of the page cache, parts of reads found there and asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_misses: Option<u64>,
    /// How a daemon gets its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// Of a cache image before a directory or a daemon.
    #[serde(flatten)]
    pub cache: Option<Figures>,
}

/// Prints the list.
pub fn mounts(json: bool) -> Result<u8> {
    let value = std::env::var_os(OsStr::from_bytes(environment::MOUNTS)).unwrap_or_default().into_vec();
    let mut rows: Vec<Row> = environment::parse(&value).map(|spec| row(&plain(spec.image), &plain(spec.point))).collect();
    rows.extend(linger::all().iter().map(lingering));
    if json {
        return print_json(&rows).map(|()| 0);
    }
    if rows.is_empty() {
        return Err(Failure::new("no session around this call; start it with `bypath run --mount SPEC:/dir -- …`"));
    }
    let text: String = rows.iter().map(Row::line).collect();
    print(text.as_bytes()).map(|()| 0)
}

impl Row {
    fn new(point: String, source: String, state: &'static str) -> Row {
        Row {
            point,
            source,
            state,
            programs: None,
            nodes: None,
            hits: None,
            misses: None,
            page_bytes: None,
            page_hits: None,
            page_misses: None,
            carrier: None,
            requests: None,
            restarts: None,
            cache: None,
        }
    }

    /// A line for people.
    pub fn line(&self) -> String {
        let mut text = format!("{:<20} {:<10} {}", self.point, self.state, self.source);
        if let (Some(programs), Some(nodes), Some(hits), Some(misses)) = (self.programs, self.nodes, self.hits, self.misses) {
            text += &format!("  {programs} programs, {nodes} names known, {hits} of {} look-ups from the cache", hits + misses);
        }
        if let (Some(bytes), Some(hits), Some(misses)) = (self.page_bytes, self.page_hits, self.page_misses) {
            text += &format!(", {} of pages with {hits} of {} reads from them", size::show(bytes), hits + misses);
        }
        if let (Some(requests), Some(carrier), Some(restarts)) = (self.requests, self.carrier, self.restarts) {
            text += &format!(", {requests} requests by {carrier}, {restarts} restarts");
        }
        if let Some(figures) = &self.cache {
            text += &format!("  {}", figures.shown("in the directory"));
        }
        text.push('\n');
        text
    }
}

/// A cache that is kept fresh for the next session.
fn lingering(one: &Lingering) -> Row {
    let directory = one.directory.display().to_string();
    let source = format!("host:{directory} behind {}", one.image.display());
    Row { cache: super::cache::figures(&one.image), ..Row::new(directory, source, "lingers") }
}

/// How one mount is doing.
pub fn row(source: &[u8], point: &[u8]) -> Row {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut row = Row::new(shown(point), shown(source), "image");
    if source.starts_with(b"/") {
        row.source = shown(&attach::image_behind(source));
        return row;
    }
    if let Some((image, lower)) = environment::cached(source) {
        let what = if lower.starts_with(b"/") { format!("host:{}", shown(lower)) } else { "fuse".to_string() };
        row.source = format!("{what} behind {}", shown(image));
        row.state = "cache";
        row.cache = super::cache::figures(Path::new(OsStr::from_bytes(image)));
        return row;
    }
    let mut parts = source.splitn(3, |&b| b == b':');
    let (kind, cache, rest) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
    row.source = format!("{}:{}", shown(kind), shown(rest));
    row.state = "serving";
    match SessionCache::open(&[cache, b"\0"].concat()) {
        Err(_) => row.state = "ended",
        Ok(cache) => {
            let (hits, misses) = cache.figures();
            (row.programs, row.nodes) = (Some(cache.programs()), Some(cache.nodes_in_use()));
            (row.hits, row.misses) = (Some(hits), Some(misses));
            if cache.has_pages() {
                let pages = cache.page_figures();
                (row.page_bytes, row.page_hits, row.page_misses) = (Some(pages.bytes), Some(pages.hits), Some(pages.misses));
            }
        }
    }
    if kind == b"wire" {
        row.source = "fuse".to_string();
        let ring = Ring::open(&[rest, b"\0"].concat());
        if let Ok(ring) = &ring
            && let Ok(header) = ring.header()
        {
            row.state = match header.daemon_state.load(Relaxed) {
                daemon_state::STARTING => "starting",
                daemon_state::SERVING => "serving",
                _ => "dead",
            };
            row.carrier = Some(if header.by_socket.load(Relaxed) == 0 { "memory" } else { "socket" });
            (row.requests, row.restarts) = (Some(ring.requests()), Some(header.restarts.load(Relaxed)));
        } else {
            row.state = "ended";
        }
    }
    row
}
