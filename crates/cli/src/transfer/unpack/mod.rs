//! From an archive into an image, member by member as they come: tar (plain, gzip, zstd), zip, which wheels are, and
//! squashfs images.
//!
//! Nothing of an archive lands outside the target: names lose their leading slashes, `..` is refused, and no symlink is
//! followed on the way to a member.

mod sink;
mod squashfs;
mod tar;
mod zip;

use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::progress::Tally;
use base::Kind;
use indicatif::ProgressBar;
use sink::Sink;
use std::fs::File;
use std::io::{BufReader, Chain, Cursor, Read, Seek};
use std::path::Path;

/// What an archive is, by its first bytes.
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const SQUASHFS: &[u8] = b"hsqs";
const ZIP: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Read at a time.
const BUFFER: usize = 256 << 10;

/// One thing of an archive.
struct Member<'a> {
    /// Its name, as it stands there.
    path: &'a [u8],
    what: What<'a>,
    mode: u16,
    /// Only root gives files away.
    owner: Option<(u32, u32)>,
    /// Nanoseconds since the epoch.
    mtime: Option<i64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What it is.
enum What<'a> {
    Directory,
    Regular,
    /// And where it points.
    Symlink(&'a [u8]),
    /// And whose other name it is.
    Link(&'a [u8]),
    /// A device, with its number, or a FIFO.
    Special(Kind, u32),
}

/// Copies what is in the archive at `source` (`-`: on standard input) to `target`.
pub fn unpack(tree: &mut Tree, source: &Path, target: &Place, bar: &ProgressBar) -> Result<Tally> {
    let shown = if source == Path::new("-") { "standard input".to_string() } else { source.display().to_string() };
    let failed = |error: std::io::Error| Failure::io(&shown, &error);
    let mut sink = Sink::new(tree, target, shown.clone(), bar)?;
    if source == Path::new("-") {
        read(&mut sink, std::io::stdin().lock(), |input| to_file(input).map_err(failed))?;
    } else {
        let file = File::open(source).map_err(failed)?;
        bar.set_length(file.metadata().map_err(failed)?.len());
        let whole = file.try_clone().map_err(failed)?;
        read(&mut sink, bar.wrap_read(file), |_| Ok(whole))?;
    }
    sink.finish()
}

/// What has been looked at, and the rest.
type Input<R> = Chain<Cursor<Vec<u8>>, R>;

/// Reads it as what it is; `file` makes a file of a stream, for what cannot be read as it comes.
fn read<R: Read>(sink: &mut Sink, mut input: R, file: impl FnOnce(Input<R>) -> Result<File>) -> Result<()> {
    let mut head = Vec::new();
    let failed = |sink: &Sink, error: &std::io::Error| Failure::io(&sink.shown, error);
    input.by_ref().take(4).read_to_end(&mut head).map_err(|error| failed(sink, &error))?;
    let input = Cursor::new(head.clone()).chain(input);
    if ZIP.contains(&&head[..]) || head == SQUASHFS {
        let mut whole = file(input)?;
        whole.rewind().map_err(|error| failed(sink, &error))?;
        let whole = BufReader::with_capacity(BUFFER, whole);
        return if head == SQUASHFS { squashfs::read(sink, whole) } else { zip::read(sink, whole) };
    }
    if head.starts_with(GZIP) {
        let plain = flate2::read::MultiGzDecoder::new(BufReader::with_capacity(BUFFER, input));
        return tar::read(sink, BufReader::with_capacity(BUFFER, plain));
    }
    if head == ZSTD {
        let plain = zstd::Decoder::new(input).map_err(|error| failed(sink, &error))?;
        return tar::read(sink, BufReader::with_capacity(BUFFER, plain));
    }
    tar::read(sink, BufReader::with_capacity(BUFFER, input))
}

/// What lists its members elsewhere than before them: a stream goes into a file without a name first.
fn to_file(mut input: impl Read) -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("bypath-archive-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    std::io::copy(&mut input, &mut file)?;
    Ok(file)
}
