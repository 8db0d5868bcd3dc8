//! From the spool to the store: at once what is small, in parts and several at a time what is large.
//!
//! An upload says what it expects to be there. If that is not there, somebody else was quicker: `ESTALE`, and what is
//! in the store stays.

use crate::contents::{Contents, errno};
use crate::kept::Kept;
use crate::store::{Expected, Meta, Store};
use crate::stored::Stored;
use md5::{Digest, Md5};
use opendal::Buffer;
use opendal::options::ReadOptions;
use pm::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Files up to here go in one request.
pub const SMALL: u64 = 16 << 20;
/// The least size of a part, how many there may be, and how many are under way.
const PART: u64 = 8 << 20;
const PARTS: u64 = 9000;
const AT_ONCE: usize = 4;

/// Uploads what is in the spool to `path`, with metadata or without; what is there then.
pub fn upload(store: &'static Store, contents: &Contents, path: &str, kept: Option<Kept>) -> Result<Meta, Errno> {
    let file = contents.file.as_ref().ok_or(Errno::EIO)?;
    if !store.is_conditional() {
        compare(store, &contents.expected, path)?;
    }
    let sent = match contents.len <= SMALL {
        true => at_once(store, contents, file, path, kept),
        false => match in_parts(store, contents, file, path, kept.clone(), contents.stored.as_ref()) {
            // What was to be copied is not there any more, or the store copies no parts, which each says in its own way.
            Err(_) if contents.stored.is_some() => in_parts(store, contents, file, path, kept, None),
            sent => sent,
        },
    };
    match sent {
        // An object that was to be there is not: removed by somebody else.
        Err(Errno::ENOENT) if contents.expected != Expected::Anything => Err(Errno::ESTALE),
        sent => sent,
    }
}

/// Where the store does not compare by itself: before, which leaves a gap.
fn compare(store: &Store, expected: &Expected, path: &str) -> Result<(), Errno> {
    let is_as_expected = match (expected, store.stat(path)) {
        (Expected::Anything, _) | (Expected::Nothing, Err(Errno::ENOENT)) => true,
        (Expected::This(meta), Ok(found)) => found.is_same(meta),
        (_, Err(errno)) if errno != Errno::ENOENT => return Err(errno),
        _ => false,
    };
    if is_as_expected { Ok(()) } else { Err(Errno::ESTALE) }
}

fn at_once(store: &'static Store, contents: &Contents, file: &File, path: &str, kept: Option<Kept>) -> Result<Meta, Errno> {
    let mut bytes = vec![0; contents.len as usize];
    file.read_exact_at(&mut bytes, 0).map_err(errno)?;
    let bytes = Buffer::from(bytes);
    let options = store.expecting(&contents.expected, kept);
    match store.wait("PUT", path, store.operator().write_options(path, bytes.clone(), options)) {
        Ok(answer) => store.stored(path, &answer, contents.len),
        // Perhaps it was ours that was quicker: an attempt whose answer got lost.
        Err(Errno::ESTALE) => is_ours(store, path, bytes).ok_or(Errno::ESTALE),
        Err(errno) => Err(errno),
    }
}

/// What is at `path`, if it is these bytes: a tag is the MD5 of what was sent in one piece.
fn is_ours(store: &Store, path: &str, bytes: Buffer) -> Option<Meta> {
    let found = store.stat(path).ok().filter(|meta| meta.size == bytes.len() as u64)?;
    let mut digest = Md5::new();
    bytes.into_iter().for_each(|part| digest.update(&part));
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (found.etag.as_deref()?.trim_matches('"') == hex).then_some(found)
}

/// In parts; those that the store has as they are, it copies.
fn in_parts(
    store: &'static Store,
    contents: &Contents,
    file: &File,
    path: &str,
    kept: Option<Kept>,
    stored: Option<&Stored>,
) -> Result<Meta, Errno> {
    let part = PART.max(contents.len.div_ceil(PARTS).next_multiple_of(1 << 20));
    let stored = stored.filter(|_| store.copies_parts());
    let mut options = store.expecting(&contents.expected, kept);
    (options.concurrent, options.chunk) = (AT_ONCE, Some(part as usize));
    let mut writer = store.prepare("PUT", path, store.operator().writer_options(path, options))?;
    let mut send = || {
        let mut at = 0;
        while at < contents.len {
            let end = contents.len.min(at + part);
            // A shorter one at the end would be read here, and sent.
            match stored.filter(|stored| end - at == part && stored.has(at, end)) {
                Some(stored) => {
                    let range =
                        ReadOptions { range: (at..end).into(), if_match: Some(stored.etag.clone()), ..Default::default() };
                    store.wait("COPY", &stored.path, writer.copy_from_options(&stored.path, range))?;
                }
                None => {
                    let mut bytes = vec![0; (end - at) as usize];
                    file.read_exact_at(&mut bytes, at).map_err(errno)?;
                    store.wait("PUT", path, writer.write(bytes))?;
                }
            }
            at = end;
        }
        store.wait("PUT", path, writer.close())
    };
    match send() {
        Ok(answer) => store.stored(path, &answer, contents.len),
        Err(errno) => {
            // Parts that nobody puts together cost room for ever.
            let _ = store.wait("ABORT", path, writer.abort());
            Err(errno)
        }
    }
}
