//! A journal that says anything, with checksums that are right: it is replayed in a directory beside a canary, to its end
//! or with an error, and nothing outside of the directory changes.
//!
//! ```text
//! first: whether checksums stay right, the file is cut, what is missing is left out
//! then facts: kind, and numbers into tables of names, paths, files and sizes that mean something
//! ```

use crate::input::Input;
use format::checksum::{Sum, bytes};
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use writeback::journal::Left;

const BLOCK: usize = 4096;
const ROOM: usize = 128 << 10;
const GROUPS_MAX: u64 = 4;
const FACTS_MAX: u8 = 12;

const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"file",
    b"inner",
    b"link",
    b"new",
    b"..",
    b".",
    b"../canary/x",
    b"/tmp/bypath-fuzz-canary",
    b"",
    b"a\0b",
    b".bypath-cache",
    b".bypath-park",
    b"a/b",
    b"inner/deep",
];
const PATHS: [&[u8]; 10] =
    [b"", b"file", b"inner", b"inner/deep", b"link", b"link/x", b"to-file", b"..", b"../canary/file", b"inner/../../canary"];
const SIZES: [u64; 8] = [0, 1, 4, 4096, 70_000, 1 << 40, i64::MAX as u64, u64::MAX];
const KINDS: [u8; 8] = [4, 8, 8, 10, 1, 12, 4, 0];

/// The directory, the canary beside it, and the journal.
struct Place {
    top: PathBuf,
    /// Device and number of files inside, and of some outside.
    files: Vec<(u64, u64)>,
}

impl Place {
    fn new() -> Place {
        let top = PathBuf::from(format!("/dev/shm/bypath-fuzz-{}-journal", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let dir = top.join("dir");
        let make = || -> std::io::Result<()> {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir.join("inner/deep"))?;
            std::fs::create_dir(top.join("canary"))?;
            std::fs::write(top.join("canary/file"), "as it was")?;
            std::fs::write(dir.join("file"), "below")?;
            std::fs::hard_link(dir.join("file"), dir.join("inner/second"))?;
            std::fs::write(dir.join(".bypath-cache"), "the marker")?;
            std::os::unix::fs::symlink("../canary", dir.join("link"))?;
            std::os::unix::fs::symlink("../canary/file", dir.join("to-file"))
        };
        make().expect("a directory beside a canary");
        let inside = ["", "file", "inner", "inner/deep", "link", "to-file"].map(|path| dir.join(path));
        let outside = ["canary", "canary/file"].map(|path| top.join(path));
        let ids = inside.iter().chain(&outside).map(|path| {
            let meta = std::fs::symlink_metadata(path).expect("just made");
            (meta.dev(), meta.ino())
        });
        let files = ids.collect();
        Place { top, files }
    }

    /// All outside of the directory but the journal, and the marker.
    fn outside(&self) -> BTreeMap<PathBuf, (u32, u32, u64, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let marker = self.top.join("dir/.bypath-cache");
        let entries =
            |at: &Path| std::fs::read_dir(at).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
        for path in [entries(&self.top), entries(&self.top.join("canary")), vec![marker]].concat() {
            if path.ends_with("dir") || path.ends_with("journal") {
                continue;
            }
            let meta = std::fs::symlink_metadata(&path).expect("listed");
            let bytes = if meta.is_file() { std::fs::read(&path).expect("readable") } else { Vec::new() };
            all.insert(path, (meta.permissions().mode(), meta.uid(), meta.ino(), bytes));
        }
        all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

struct Body<'a, 'b> {
    input: &'a mut Input<'b>,
    place: &'a Place,
    out: Vec<u8>,
}

impl Body<'_, '_> {
    fn word(&mut self, word: u64) {
        self.out.extend(word.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.out.extend((text.len() as u32).to_le_bytes());
        self.out.extend(text);
    }

    fn id(&mut self) {
        let which = self.input.byte();
        let (device, number) = match self.place.files.get(usize::from(which & 15)) {
            Some((device, number)) => (if which & 0x80 == 0 { 0 } else { *device }, *number),
            None => (0, u64::from(which >> 4)),
        };
        self.word(device);
        self.word(number);
    }

    fn number(&mut self) {
        let number = u64::from(self.input.byte() & 7);
        self.word(number);
    }

    fn size(&mut self) {
        let size = SIZES[usize::from(self.input.byte() & 7)];
        self.word(size);
    }

    fn name(&mut self) {
        let name = NAMES[usize::from(self.input.byte() & 15)];
        self.text(name);
    }

    fn path(&mut self) {
        let path = PATHS[usize::from(self.input.byte()) % PATHS.len()];
        self.text(path);
    }

    fn node(&mut self) {
        self.number();
        let (kind, flags) = (KINDS[usize::from(self.input.byte() & 7)], self.input.byte());
        self.out.extend([kind, flags & 7]);
        self.id();
        // Mode, and owner: this user, or another.
        let mode = [0o755, 0o4755, 0o1777, 0o10_000][usize::from(flags >> 3 & 3)];
        self.word(mode);
        self.word(if flags & 0x80 == 0 { 0 } else { 0x3039_0000_3039 });
        for _ in 0..3 {
            let number = u64::from(self.input.byte());
            self.word(number);
        }
        self.size();
        if kind == 10 {
            self.path()
        } else {
            self.text(b"")
        }
        self.path();
        if flags & 1 != 0 {
            let count = u64::from(self.input.byte() & 1);
            self.word(count);
            for _ in 0..count {
                self.text(b"user.x");
                self.name();
            }
        }
    }

    fn fact(&mut self) {
        let kind = self.input.byte();
        self.out.push(match kind & 15 {
            0..=5 => 1,
            6..=9 => 2,
            10..=11 => 3,
            12..=13 => 4,
            14 => 5,
            _ => kind >> 4,
        });
        match kind & 15 {
            0..=5 => self.node(),
            6..=9 => {
                self.number();
                self.number();
                self.id();
                self.name();
            }
            10..=11 => {
                self.number();
                self.size();
                let len = usize::from(self.input.short()) & 0x3fff;
                let bytes = vec![kind; len];
                self.text(&bytes);
            }
            12..=13 => {
                self.number();
                self.size();
                self.size();
            }
            14 => {
                self.number();
                self.id();
            }
            _ => {
                let raw = self.input.bytes(9);
                self.out.extend(raw);
            }
        }
    }
}

fn header(place: &Place) -> Vec<u8> {
    let mut out = Vec::new();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |at: usize| digits.get(at..at + 16).and_then(|half| u64::from_str_radix(half, 16).ok()).unwrap_or(0);
    let magic = u64::from_le_bytes(*b"BPjournl");
    for word in [magic, 1, 2, 7, half(0), half(16), 0, place.files[0].1, ROOM as u64, 2 * BLOCK as u64, 1] {
        out.extend(word.to_le_bytes());
    }
    for _ in 0..2 {
        out.extend(0u64.to_le_bytes());
    }
    out.resize(BLOCK - 8, 0);
    let sum = bytes(&out);
    out.extend(sum.to_le_bytes());
    out
}

fn group(number: u64, body: &[u8]) -> Vec<u8> {
    let mut sum = Sum::new(number);
    for word in [body.len() as u64, 0, 5, bytes(body)] {
        sum.word(word);
    }
    let mut out = Vec::new();
    for word in [u64::from_le_bytes(*b"BPjgroup"), number, body.len() as u64, 0, 5, sum.finish(), 0, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend(body);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

/// The target.
///
/// # Panics
/// If something outside has changed, or a journal that was replayed still has groups.
pub fn run(input: &[u8]) {
    let place = Place::new();
    let mut input = Input(input);
    let how = input.byte();
    let mut file = header(&place);
    file.resize(2 * BLOCK, 0);
    for number in 1..=GROUPS_MAX {
        if input.is_empty() {
            break;
        }
        let mut body = Body { input: &mut input, place: &place, out: Vec::new() };
        for _ in 0..body.input.byte() % FACTS_MAX {
            body.fact();
        }
        let whole = group(number, &body.out);
        if file.len() + whole.len() <= 2 * BLOCK + ROOM {
            file.extend(whole);
        }
    }
    file.resize(2 * BLOCK + ROOM, 0);
    if how & 1 != 0 {
        let at = usize::from(input.short()) * 2 % file.len();
        file[at] ^= 1 << (how >> 5);
    }
    if how & 6 == 6 {
        file.truncate(usize::from(input.short()) * 3);
    }
    let path = place.top.join("journal");
    std::fs::write(&path, &file).expect("a journal");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let before = place.outside();
    if let Ok(Some(mut left)) = Left::open(&path) {
        let replayed = left.replay(&place.top.join("dir"), how & 8 != 0);
        if replayed.is_ok_and(|done| done.damage.is_none()) {
            assert_eq!(Left::open(&path).expect("a journal").map(|left| left.groups()), Some(0));
        }
    }
    assert_eq!(place.outside(), before, "something outside has changed");
}
