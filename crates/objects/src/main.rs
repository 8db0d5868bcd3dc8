//! `bypath-objects`: the objects of a store (S3, or another service of OpenDAL's) as files.
//!
//! A FUSE daemon that knows no kernel: its requests come from the ring of the session that started it
//! (`BYPATH_CHANNEL`), with whose end it ends. What it promises is in `docs/reference/objects.md`.
//!
//! | module | what |
//! |---|---|
//! | `address` | what a mount names, credentials and region: to an operator of OpenDAL's |
//! | `attempts` | whether the store can be reached at all |
//! | `store` | one request to the store, its time-out, its error as an errno |
//! | `keys` | which keys are paths |
//! | `listing` | a directory as the store lists it, and for how long it is believed |
//! | `nodes` | what the session knows by number: path, attributes, contents |
//! | `contents`, `windows`, `upload` | a file's bytes: in the spool while they are written, by ranges while they are read |
//! | `kept` | attributes in the metadata of objects |
//! | `later` | files that are closed and not stored yet |
//! | `tree` | look-up, making, removing, renaming |
//! | `requests` | the protocol: a request of bytes in, an answer of bytes out |
//!
//! Order of locks: `Tree::moving`, `Tree::uploads`, a node's `contents`, `Tree::table`, a node's `place`. None but the first
//! three is held while the store is asked. Two nodes' `contents` at once has only who moves a name, alone.
#![forbid(unsafe_code)]

mod address;
mod attempts;
mod contents;
mod kept;
mod keys;
mod later;
mod listing;
mod nodes;
mod requests;
mod store;
mod stored;
mod tree;
mod upload;
mod windows;

use clap::Parser;
use fuse_client::ring::{MESSAGE_MAX, Ring};
use fuse_client::{AWAY, LACKS_SHIFT, OPENS_ASK, SYNCS_WHOLE, lacks};
use pm::UserSlice;
use requests::Requests;
use server::fuse::message::Reply;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use store::{Store, Unusable};
use tree::Tree;

/// How many requests are served at a time.
const THREADS: usize = 16;

/// Objects as files, for `bypath run --mount s3:…`, which starts this.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// `s3:http://HOST/BUCKET[/PREFIX]`, `s3://BUCKET[/PREFIX]` or `objects:SERVICE?OPTION=VALUE&…`.
    address: String,
    /// Seconds after which a store that does not answer is an error.
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Where the contents of files lie while they are written.
    #[arg(long)]
    spool: Option<PathBuf>,
    /// A small file that was closed is uploaded later, several at a time.
    #[arg(long)]
    later: bool,
    /// Modes, owners, times and symlinks are kept with the objects.
    #[arg(long)]
    posix: bool,
    /// A cache in front of it has something: the mount begins even if the store does not answer.
    #[arg(long)]
    warm: bool,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bypath-objects: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), String> {
    let ring = std::env::var_os("BYPATH_CHANNEL").ok_or("it is started by `bypath run --mount s3:…`, not by hand")?;
    let mut path = ring.into_vec();
    path.push(0);
    let ring = Ring::open(&path).map_err(|errno| format!("the ring: {errno}"))?;
    let spool = args.spool.unwrap_or_else(std::env::temp_dir);
    let store = Store::open(&args.address, Duration::from_secs(args.timeout))?;
    let is_away = match store.check() {
        Ok(()) => false,
        Err(Unusable::Away(why)) if args.warm => {
            eprintln!("bypath: {why}; the mount has what the cache holds until the store answers");
            true
        }
        Err(Unusable::Away(why) | Unusable::Refused(why)) => return Err(why),
    };
    if args.posix {
        kept::check(&store)?;
    }
    let requests = Requests::new(Tree::new(store, contents::Spool::at(&spool)?, args.later, args.posix));
    let lacking = lacks::LINKS | lacks::NODES | lacks::XATTRS | if args.posix { 0 } else { lacks::SYMLINKS };
    let flags = OPENS_ASK | lacking << LACKS_SHIFT | if args.later { SYNCS_WHOLE } else { 0 };
    let flags = if is_away { flags | AWAY } else { flags };
    let header = ring.header().map_err(|errno| format!("the ring: {errno}"))?;
    header.mount_flags.fetch_or(flags, SeqCst);
    std::thread::scope(|scope| {
        for _ in 0..if args.later { later::UPLOADS } else { 0 } {
            scope.spawn(|| requests.tree().store_later());
        }
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| serve(&ring, &requests));
            }
        });
        requests.tree().end();
    });
    Ok(())
}

/// Answers requests until the session ends.
fn serve(ring: &Ring, requests: &Requests) {
    let (mut message, mut reply) = (vec![0; MESSAGE_MAX], Reply::new());
    while let Ok(len) = ring.receive(&[UserSlice::from_mut(&mut message)]) {
        let Some(answer) = requests.answer(&message[..len], &mut reply) else { continue };
        // Who asked may have gone.
        let _ = ring.reply(&[UserSlice::from_ref(answer)], true);
    }
}
