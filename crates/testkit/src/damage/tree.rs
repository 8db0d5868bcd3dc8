//! The image that is damaged: a tree with some of everything.

use super::reader::Bytes;
use crate::differential::op::Arg;
use crate::differential::side::Side;
use crate::image;
use crate::many::Image;
use crate::rng::Rng;
use crate::world::World;
use format::layout::{BLOCK, LINE, Layout, ROOT};
use pm::sys::abi as nr;

/// Limit of the image, bytes.
const LIMIT: u64 = 16 << 20;

/// An image as bytes, up to where it has grown; and what it was a while before.
pub struct Sample {
    /// Now.
    pub now: Vec<u8>,
    /// Before.
    pub before: Vec<u8>,
    /// Lines of metadata that are in use and not zero.
    pub lines: Vec<u64>,
    /// Length of the file.
    pub limit: u64,
}

/// Makes it.
///
/// # Errors
/// What went wrong.
pub fn sample(seed: u64) -> Result<Sample, String> {
    let image = Image::new("damage", LIMIT);
    // The same keys at every run: so a seed and a number mean the same damage.
    let mut path = image.path().as_os_str().as_encoded_bytes().to_vec();
    path.push(0);
    let seeds = engine::mkfs::Seeds { uuid: [seed, 1], ino_key: 2, hash_seed: 3, made: 1_700_000_000_000_000_000 };
    let options = engine::mkfs::Options { limit: LIMIT, force: true, mode: 0o777, seeds: Some(seeds), ..Default::default() };
    engine::mkfs::make(&path, &options).map_err(|error| error.to_string())?;
    let world = image.world();
    let mut rng = Rng::new(seed);
    let mut names = Vec::new();
    for d in 0..8 {
        let parent = if d < 3 { String::new() } else { format!("/dir {}", d % 3) };
        let directory = format!("{parent}/dir {d}");
        expect(world.mkdir(&directory), &directory)?;
        for f in 0..18 {
            let name = format!("{directory}/file {f}{}", "-long".repeat(rng.below(40) as usize));
            fill(&world, &name, &mut rng)?;
            names.push(name);
        }
        symlink(&world, &format!("to somewhere else, number {d}"), &format!("{directory}/link"))?;
    }
    let read = |path: &std::path::Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let before = read(image.path())?;
    // Some go, some come, some move: lines are used again.
    for (i, name) in names.iter().enumerate().filter(|(i, _)| i % 5 == 1) {
        match i % 2 {
            0 => expect(world.unlink(name), name)?,
            _ => expect(world.rename(name, &format!("/dir 0/moved {i}")), name)?,
        }
    }
    for f in 0..30 {
        fill(&world, &format!("/dir 1/later {f}"), &mut rng)?;
    }
    let now = read(image.path())?;
    let report = image::check(image.path())?;
    let grown = u64::from_le_bytes(now[ROOT as usize + 8..ROOT as usize + 16].try_into().unwrap_or_default());
    let len = (grown * BLOCK) as usize;
    if report.names < 150 || len > now.len() {
        return Err(format!("{} names in {len} bytes: not the tree that was meant", report.names));
    }
    let (now, before) = (now[..len].to_vec(), before[..len].to_vec());
    let lines = metadata(&now).ok_or("the sample cannot be read")?;
    Ok(Sample { now, before, lines, limit: LIMIT })
}

/// Lines that hold something and are not contents of files.
fn metadata(image: &[u8]) -> Option<Vec<u64>> {
    let files = super::reader::read(image)?;
    let mut contents: Vec<Bytes> = files
        .values()
        .filter(|file| file.kind == 8)
        .flat_map(|file| file.own.iter().filter(|bytes| bytes.end - bytes.start >= BLOCK).cloned())
        .collect();
    contents.sort_by_key(|bytes| bytes.start);
    let is_contents = |at: u64| {
        let i = contents.partition_point(|bytes| bytes.start <= at);
        i > 0 && contents[i - 1].end > at
    };
    // Mutexes and the volatile header say nothing here.
    let volatile = format::layout::VOLATILE..format::layout::LANE_AREA;
    let word =
        |at: u64| image.get(at as usize..at as usize + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    let blocks = Layout::new(LIMIT)?.blocks;
    let is_used = |at: u64| at < blocks || word(Layout::bitmap_word(at / BLOCK)) >> (at % BLOCK / LINE) & 1 == 1;
    let lines = image.chunks(LINE as usize).enumerate().map(|(i, line)| (i as u64 * LINE, line));
    Some(
        lines
            .filter(|(at, line)| {
                line.iter().any(|byte| *byte != 0) && !volatile.contains(at) && is_used(*at) && !is_contents(*at)
            })
            .map(|(at, _)| at)
            .collect(),
    )
}

fn fill(world: &World, name: &str, rng: &mut Rng) -> Result<(), String> {
    let fd = world.open(name, libc::O_CREAT | libc::O_RDWR);
    expect(fd as isize, name)?;
    let len = [0, 30, 3000, 9000, 40_000][rng.below(5) as usize];
    let text: Vec<u8> = name.bytes().cycle().take(len).collect();
    expect(world.write(fd, &text), name)?;
    if rng.one_in(6) {
        // Holes, so that the map needs a tree.
        for part in 1..6 {
            // SAFETY: plain numbers.
            let moved = unsafe { world.serve(nr::__NR_lseek as usize, [fd as usize, part * 90_000, 0, 0, 0, 0]) };
            expect(moved, name)?;
            expect(world.write(fd, format!("part {part} of {name}").as_bytes()), name)?;
        }
    }
    expect(world.close(fd), name)
}

fn symlink(world: &World, target: &str, name: &str) -> Result<(), String> {
    let args = [Arg::Text(target.into()), Arg::Int(i64::from(libc::AT_FDCWD)), Arg::Text(name.into())];
    expect(world.call(nr::__NR_symlinkat as usize, &args).0, name)
}

fn expect(result: isize, what: &str) -> Result<(), String> {
    if result < 0 { Err(format!("{what}: {result}")) } else { Ok(()) }
}
