//! The worker: makes single calls for the counters to watch.

use crate::calls::{Api, Calls, text};
use libc::{O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, c_int, c_void};
use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::sync::atomic::AtomicU64;

/// One call; the number tells repetitions apart.
pub type Call = fn(&mut Hand, usize);

/// Calls by name, in the order in which they are measured.
pub const CALLS: &[(&str, Call)] = &[
    ("stat", |h, i| seen(h.api.stat(&h.files[i % FILES]))),
    ("stat depth 8", |h, i| seen(h.api.stat(&h.deep[i % FILES]))),
    ("access", |h, i| seen(h.api.access(&h.files[i % FILES]))),
    ("negative lookup", |h, i| seen(h.api.stat(&h.missing[i % FILES]))),
    ("open+close", |h, i| {
        let fd = h.api.open(&h.files[i % FILES], O_RDONLY);
        h.api.close(fd);
    }),
    ("open(O_CREAT)+close", |h, i| {
        let fd = h.api.open(&h.files[i % FILES], O_WRONLY | O_CREAT);
        good(fd);
        h.api.close(fd);
    }),
    ("create+close", |h, i| {
        let fd = h.api.open(&h.fresh[i], O_WRONLY | O_CREAT | O_EXCL);
        good(fd);
        h.api.close(fd);
    }),
    ("rename", |h, i| good(h.api.rename(&h.fresh[i], &h.moved[i]))),
    ("link", |h, i| good(h.api.link(&h.files[0], &h.fresh[i]))),
    ("unlink", |h, i| good(h.api.unlink(&h.moved[i]))),
    ("unlink (other links)", |h, i| good(h.api.unlink(&h.fresh[i]))),
    ("symlink", |h, i| good(h.api.symlink(c"somewhere/else", &h.fresh[i]))),
    ("unlink (symlink)", |h, i| good(h.api.unlink(&h.fresh[i]))),
    ("mkdir", |h, i| good(h.api.mkdir(&h.fresh[i]))),
    ("rmdir", |h, i| good(h.api.rmdir(&h.fresh[i]))),
    ("pread 64 B", |h, i| seen(h.api.pread(h.data, &mut h.block.0[..64], (i as u64 % 64) * 4096))),
    ("pread 4 KiB", |h, i| seen(h.api.pread(h.data, &mut h.block.0, (i as u64 % 64) * 4096))),
    ("overwrite 4 KiB", |h, i| seen(h.api.pwrite(h.data, &h.block.0, (i as u64 % 64) * 4096))),
    ("append 4 KiB", |h, _| seen(h.api.write(h.log, &h.block.0))),
    ("copy 64 B", |h, i| copy(h, i, 64)),
    ("copy 4 KiB", |h, i| copy(h, i, 4096)),
    (NOTHING, |_, _| {}),
    (A_QUESTION, |h, i| seen(h.api.nothing_about(&h.files[i % FILES]))),
    (A_NAME, |h, i| seen(h.api.nothing(&h.files[i % FILES], c""))),
    (A_NEW_NAME, |h, i| good(h.api.nothing(&h.fresh[i], c""))),
    (TWO_NEW_NAMES, |h, i| good(h.api.nothing(&h.fresh[i], &h.moved[i]))),
    (A_BLOCK, |h, i| seen(h.api.nothing_read(h.data, &mut h.block.0, (i as u64 % 64) * 4096))),
    // Last, since they make their files when they warm up: the others find the image as it is without these.
    ("stat, name of 60 bytes", |h, i| h.there(&h.long[i % FILES])),
    ("stat, name of 200 bytes", |h, i| h.there(&h.longer[i % FILES])),
];

/// Rows that call a function that does nothing, as the others call the C API: what its caller costs and touches is not the
/// call's.
pub const NOTHING: &str = "nothing";
const A_QUESTION: &str = "a question";
const A_NAME: &str = "a name";
const A_NEW_NAME: &str = "a new name";
const TWO_NEW_NAMES: &str = "two new names";
const A_BLOCK: &str = "a block";

/// What the function that does nothing takes itself.
#[derive(Default)]
pub struct Nothing {
    pub instructions: f64,
    pub lines: u64,
}

/// The same in a row.
pub fn nothing_in(name: &str) -> Nothing {
    match name {
        A_QUESTION | A_NAME | A_NEW_NAME | TWO_NEW_NAMES | A_BLOCK => Nothing { instructions: 2.0, lines: 1 },
        _ => Nothing::default(),
    }
}

/// The row that does what the caller of a call does.
pub fn caller(name: &str) -> &'static str {
    match name {
        "stat" | "stat depth 8" | "stat, name of 60 bytes" | "stat, name of 200 bytes" | "negative lookup" => A_QUESTION,
        "access" | "open+close" | "open(O_CREAT)+close" => A_NAME,
        "pread 64 B" | "pread 4 KiB" | "overwrite 4 KiB" => A_BLOCK,
        "append 4 KiB" | "copy 64 B" | "copy 4 KiB" | NOTHING => NOTHING,
        A_QUESTION | A_NAME | A_NEW_NAME | TWO_NEW_NAMES | A_BLOCK => NOTHING,
        "rename" => TWO_NEW_NAMES,
        _ => A_NEW_NAME,
    }
}

/// What else is mounted where an image is, which must not cost its calls much.
pub const SETTINGS: &[(&str, &[&CStr])] =
    &[("alone", &[]), ("two beside", &[c"/one", c"/two"]), ("one inside", &[c"/image/one"])];

/// Calls whose cost must not depend on the size of the directory, nor on what else is mounted.
pub const FLAT: &[&str] = &["stat", "negative lookup", "open+close", "create+close", "rename", "unlink"];

/// Most calls of one kind in a run.
const MOST: usize = 4096;

/// Uses a result.
#[inline(always)]
fn seen<T>(result: T) {
    black_box(result);
}

#[inline(always)]
fn good(result: i32) {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
}

#[inline(never)]
fn copy(hand: &mut Hand, i: usize, len: usize) {
    let from = &hand.source[(i % 64) * 4096..][..len];
    // As calls copy: one instruction of the processor's moves a page, each byte of which is counted.
    // SAFETY: both are that long, and different.
    let _ = unsafe { pm::faults::transfer(black_box(from.as_ptr()), hand.block.0.as_mut_ptr(), len) };
}

/// Names that a call takes turns with.
const FILES: usize = 64;
/// As many as are known when compiling: choosing one costs next to nothing, which is part of what is counted.
type Names = Box<[CString; FILES]>;

/// `FILES` names, made of their numbers.
fn turns(name: impl Fn(usize) -> String) -> Names {
    Box::new(std::array::from_fn(|i| text(name(i))))
}

/// A buffer that begins where a line begins, so that it takes no line more than it must.
#[repr(C, align(64))]
struct Block([u8; 4096]);

/// What the calls are made on. From a line's border on, so that what a call looks at here takes as many lines wherever it lies.
#[repr(align(64))]
pub struct Hand {
    api: Api,
    files: Names,
    deep: Names,
    long: Names,
    longer: Names,
    missing: Names,
    fresh: Vec<CString>,
    moved: Vec<CString>,
    data: i32,
    log: i32,
    block: Box<Block>,
    source: Vec<u8>,
}

impl Hand {
    /// In the image's root, with so many new names.
    fn new(image: &str, most: usize) -> Result<Hand, String> {
        let hand = Hand::on(Api::open(&text(image.into()))?, "/", "", most);
        hand.make_files();
        Ok(hand)
    }

    /// In a directory that is there, for `FLAT`.
    fn inside(image: &str, directory: &str) -> Result<Hand, String> {
        let api = Api::open(&text(image.into()))?;
        good(api.chdir(&text(format!("/{directory}"))));
        Ok(Hand::on(api, "/", "", MOST))
    }

    /// In the image's root, which is mounted beside others, by absolute paths.
    fn among(image: &str, others: &[&CStr]) -> Result<Hand, String> {
        let root = format!("{}/", Api::AMONG.to_string_lossy());
        let hand = Hand::on(Api::among(&text(image.into()), others)?, &root, &root, MOST);
        hand.make_files();
        Ok(hand)
    }

    /// With an image whose root is `root`, and names that begin with `at`.
    fn on(api: Api, root: &str, at: &str, most: usize) -> Hand {
        let names = |kind: &str, count: usize| (0..count).map(|i| text(format!("{at}{kind}{i:07}"))).collect::<Vec<_>>();
        let data = api.open(&text(format!("{root}data")), O_RDWR | O_CREAT);
        let log = api.open(&text(format!("{root}log")), O_WRONLY | O_CREAT | O_APPEND);
        let block = Box::new(Block([7; 4096]));
        for block_at in 0..64 {
            assert_eq!(api.pwrite(data, &block.0, block_at * 4096), 4096, "pwrite");
        }
        Hand {
            api,
            files: turns(|i| format!("{at}entry{i:07}")),
            deep: turns(|i| format!("{at}deep{}/file{i}", "/below".repeat(6))),
            long: turns(|i| format!("{at}{i:060}")),
            longer: turns(|i| format!("{at}{i:0200}")),
            missing: turns(|i| format!("{at}none{i:07}")),
            fresh: names("new", most),
            moved: names("moved", most),
            data,
            log,
            block,
            source: vec![3; 64 * 4096],
        }
    }

    fn make_files(&self) {
        let deep = self.deep[0].to_string_lossy();
        for (end, _) in deep.match_indices('/').filter(|(end, _)| deep[..*end].contains("deep")) {
            good(self.api.mkdir(&text(deep[..end].into())));
        }
        for file in self.files.iter().chain(self.deep.iter()) {
            self.make_file(file);
        }
    }

    fn make_file(&self, file: &CStr) {
        let fd = self.api.open(file, O_WRONLY | O_CREAT | O_EXCL);
        good(fd);
        self.api.close(fd);
    }

    /// Asks for a file, which is made if it is not there.
    #[inline(always)]
    fn there(&self, file: &CStr) {
        if self.api.stat(file) < 0 {
            self.make_file(file);
        }
    }
}

/// Callgrind counts in here only.
#[unsafe(no_mangle)]
#[inline(never)]
fn bypath_measured(hand: &mut Hand, call: Call, from: usize, to: usize) {
    for i in from..to {
        black_box(call)(hand, i);
    }
}

/// Address of a function in this program's file.
pub fn measured() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, out: *mut c_void) -> c_int {
        // SAFETY: the linker gives an object, the program itself first; `out` is the word below.
        unsafe { *out.cast::<u64>() = (*info).dlpi_addr };
        1
    }
    let mut bias = 0u64;
    // SAFETY: the function and its argument.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut bias).cast()) };
    (bypath_measured as *const () as u64).wrapping_sub(bias)
}

/// Four stores to one place, one after the other: what lackey's reader looks for.
#[inline(never)]
pub fn mark() {
    static MARK: AtomicU64 = AtomicU64::new(0);
    for value in [1, 2, 3, 4] {
        // SAFETY: an aligned word of ours. Volatile, so that each store is made.
        unsafe { MARK.as_ptr().write_volatile(value) };
    }
}

/// Single calls of each kind that lackey looks at.
pub const LOOKS: usize = 9;
/// Calls that warm up.
pub const WARM: usize = 64;

/// `callgrind N IMAGE`, `in DIRECTORY N IMAGE`, `among SETTING N IMAGE`, `lackey [few] IMAGE`, `fill N IMAGE`.
///
/// In a thread of its own, whose stack and heap begin at the border of a page: those of
/// the first one lie as arguments and environment are long, and so do the lines they touch.
pub fn serve(args: &[String]) -> Result<(), String> {
    let args = args.to_vec();
    std::thread::spawn(move || work(&args)).join().unwrap_or_else(|_| Err("the worker panicked".into()))
}

fn work(args: &[String]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
    match words[..] {
        ["callgrind", n, image] => {
            let hand = Hand::new(image, MOST)?;
            count(hand, CALLS.iter(), number(n)?)
        }
        ["in", directory, n, image] => {
            let hand = Hand::inside(image, directory)?;
            count(hand, CALLS.iter().filter(|(name, _)| FLAT.contains(name)), number(n)?)
        }
        ["among", setting, n, image] => {
            let (_, others) = SETTINGS.iter().find(|(name, _)| *name == setting).ok_or(format!("worker: {setting}"))?;
            let hand = Hand::among(image, others)?;
            count(hand, CALLS.iter().filter(|(name, _)| FLAT.contains(name)), number(n)?)
        }
        ["lackey", image] => look(Hand::new(image, MOST)?),
        // Every name that is made is a thousand lines of the trace.
        ["lackey", "few", image] => look(Hand::new(image, WARM + LOOKS)?),
        ["fill", n, image] => fill(image, number(n)?),
        _ => Err(format!("worker: {words:?}")),
    }
}

/// For each call: N and then 2 N inside the function that is counted.
fn count<'a>(mut hand: Hand, calls: impl Iterator<Item = &'a (&'static str, Call)>, n: usize) -> Result<(), String> {
    for (_, call) in calls {
        // The warm-up is left out of the count by its own loop.
        for i in 0..WARM {
            call(&mut hand, i);
        }
        bypath_measured(&mut hand, *call, WARM, WARM + n);
        bypath_measured(&mut hand, *call, WARM + n, WARM + 3 * n);
    }
    Ok(())
}

fn look(mut hand: Hand) -> Result<(), String> {
    // By which the functions' addresses are known.
    println!("{:x}", bypath_measured as *const () as usize);
    for (_, call) in CALLS {
        for i in 0..WARM {
            call(&mut hand, i);
        }
        for i in 0..LOOKS {
            mark();
            black_box(call)(&mut hand, WARM + i);
            mark();
        }
    }
    Ok(())
}

/// Directories `few` and `many`.
fn fill(image: &str, n: usize) -> Result<(), String> {
    let api = Api::open(&text(image.into()))?;
    for (directory, entries) in [("few", 1000), ("many", n)] {
        good(api.mkdir(&text(format!("/{directory}"))));
        good(api.chdir(&text(format!("/{directory}"))));
        for i in 0..entries {
            let fd = api.open(&text(format!("entry{i:07}")), O_WRONLY | O_CREAT | O_EXCL);
            good(fd);
            api.close(fd);
        }
    }
    Ok(())
}
