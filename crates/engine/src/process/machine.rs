//! On which machine an image is used: two kernels that map one file know nothing of each other.
//!
//! Whoever makes the volatile header afresh writes beside it which machine this is; whoever finds there another boot
//! id asks whether those who wrote it can still be at work. They can if the file lies where another machine may have
//! it (a network, a cluster, a daemon's file system), that machine is not this one, and it holds mutexes: an orderly
//! end gives them back. Nothing tells a machine that works on from one that has crashed, so then only a person can say
//! that it is over ([`take_over`]). On any other file system a foreign boot id is that of a restart, of a container
//! that has come here, or of a disk that was moved.
//!
//! Mapped pages reach such a file system when the kernel pleases: what others must see is written back at once
//! ([`Fs::tell_others`](crate::Fs)).

use super::attach::{self, AttachError};
use super::kernel;
use crate::fs::Fs;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use format::layout::{self, LANE_AREA, LANE_MUTEXES, LINE, MACHINE, ROOT, VOLATILE};
use format::superblock::HOST_NAME;
use format::{Machine, Volatile};
use pm::file::{self, File, Stat};
use pm::sys::abi;
use pm::{Domain, Region};

/// A machine that uses an image, or was the last to use it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    name: [u8; HOST_NAME],
    id: [u64; 2],
    /// Its kernel's boot id.
    pub boot: [u64; 2],
    /// When it last attached the image or left it, nanoseconds since the epoch; 0 if that is not known.
    pub used: i64,
}

impl Host {
    /// This machine, under the boot id that a volatile header has.
    fn own(boot: [u64; 2]) -> Host {
        Host { name: kernel::host_name(), id: kernel::machine_id(), boot, used: pm::clock::now() }
    }

    /// Whether it is the same machine, perhaps before or after a restart. The name counts too: machines made from one
    /// template often have one id.
    fn is_same(&self, other: &Host) -> bool {
        self.id != [0; 2] && self.id == other.id && self.name == other.name
    }

    /// Its name; empty if it is not known.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(HOST_NAME);
        let is_name = |byte: &u8| byte.is_ascii_graphic();
        let text = self.name.get(..end).filter(|text| text.iter().all(is_name));
        text.and_then(|text| core::str::from_utf8(text).ok()).unwrap_or("")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "" => f.write_str("another machine")?,
            name => write!(f, "host {name}")?,
        }
        let [high, low] = self.boot;
        write!(
            f,
            " (boot id {:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & ((1 << 48) - 1)
        )?;
        let ago = pm::clock::now().saturating_sub(self.used) / 1_000_000_000;
        match ago {
            _ if self.used == 0 || ago < 0 => f.write_str(")"),
            0..120 => write!(f, ", last seen {ago} s ago)"),
            120..7_200 => write!(f, ", last seen {} min ago)", ago / 60),
            7_200..172_800 => write!(f, ", last seen {} h ago)", ago / 3600),
            _ => write!(f, ", last seen {} days ago)", ago / 86_400),
        }
    }
}

/// What an image's file says of its users.
#[derive(Debug)]
struct Said {
    host: Host,
    file: [u64; 2],
    token: u64,
}

/// What stands in the volatile header of an open image file, and beside it.
fn said(file: &File) -> Option<Said> {
    let mut bytes = [0u8; (MACHINE - VOLATILE) as usize + size_of::<Machine>()];
    file.read_at(&mut bytes, VOLATILE).ok().filter(|len| *len == bytes.len())?;
    let word = |at: usize| bytes.iter().skip(at).take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let pair = |at: usize| [word(at), word(at + 8)];
    let machine = (MACHINE - VOLATILE) as usize;
    let boot = pair(core::mem::offset_of!(Volatile, boot));
    let mut host = Host { name: [0; HOST_NAME], id: [0; 2], boot, used: 0 };
    // Else an older program has written the one and not the other.
    if pair(machine + core::mem::offset_of!(Machine, boot)) == boot {
        host.id = pair(machine + core::mem::offset_of!(Machine, id));
        host.used = word(machine + core::mem::offset_of!(Machine, used)) as i64;
        let name = machine + core::mem::offset_of!(Machine, name);
        host.name.copy_from_slice(bytes.get(name..name + HOST_NAME)?);
    }
    Some(Said { host, file: pair(core::mem::offset_of!(Volatile, file)), token: word(core::mem::offset_of!(Volatile, token)) })
}

/// Whether a mutex of the image is held, by what the file says.
fn says_held(file: &File) -> bool {
    let mut block = [0u8; layout::BLOCK as usize];
    (LANE_MUTEXES..LANE_AREA).step_by(block.len()).any(|at| {
        let len = file.read_at(&mut block, at).unwrap_or(0);
        block[..len].as_chunks::<{ LINE as usize }>().0.iter().any(pm::mutex::says_held)
    })
}

/// Whether those who wrote a volatile header may be at work under another kernel than this one, which has that boot id.
fn is_elsewhere(
    said: &Said,
    boot: Option<[u64; 2]>,
    own: impl FnOnce() -> Host,
    is_shared: bool,
    is_held: impl FnOnce() -> bool,
) -> bool {
    let is_unused = said.host.boot == [0; 2] || said.token == 0;
    !is_unused && boot != Some(said.host.boot) && is_shared && !said.host.is_same(&own()) && is_held()
}

/// Whether those who wrote it may be at work under this kernel, with the same file under another device number: as
/// the layers of an overlay have, or another mount of a network's file system. A copy of an image is told from that by
/// nobody having it open.
fn is_alias(said: &Said, boot: Option<[u64; 2]>, file: &File, stat: &Stat) -> bool {
    let is_like = said.token != 0 && boot == Some(said.host.boot) && said.file[1] == stat.ino && said.file[0] != stat.dev;
    is_like && says_held(file) && !file.is_alone_now()
}

/// Refuses an open and locked image that another kernel may be using.
pub(super) fn refuse_elsewhere(file: &File, stat: &Stat, boot: Option<[u64; 2]>, is_shared: bool) -> Result<(), AttachError> {
    let Some(said) = said(file) else { return Ok(()) };
    if is_elsewhere(&said, boot, || Host::own([0; 2]), is_shared, || says_held(file)) {
        return Err(AttachError::Elsewhere(said.host));
    }
    if is_alias(&said, boot, file, stat) { Err(AttachError::Alias) } else { Ok(()) }
}

/// The same, for those who do not attach.
pub(crate) fn refuse_unattached(file: &File, stat: &Stat) -> Result<(), AttachError> {
    refuse_elsewhere(file, stat, kernel::boot_id(), file.is_shared())
}

/// Who uses the image at a path (NUL-terminated) or was the last to do so, and whether that is another machine which
/// may be at work.
pub fn look(path: &[u8]) -> Result<(Option<Host>, bool), AttachError> {
    let file = File::open(path, abi::O_RDONLY | abi::O_NONBLOCK, 0).map_err(AttachError::Open)?;
    let opened = attach::examine(file)?;
    let found = said(&opened.file).filter(|said| said.host.boot != [0; 2]);
    let refused = refuse_unattached(&opened.file, &opened.stat);
    Ok((found.map(|said| said.host), matches!(refused, Err(AttachError::Elsewhere(_)))))
}

/// Has the image at a path (NUL-terminated) be nobody's, if it is refused because another kernel may be using it. A
/// person has said that it is not.
pub fn take_over(path: &[u8]) -> Result<(), AttachError> {
    let file = File::open(path, abi::O_RDWR | abi::O_NONBLOCK, 0).map_err(AttachError::Open)?;
    file.lock().map_err(AttachError::locked)?;
    let opened = attach::examine(file)?;
    if refuse_unattached(&opened.file, &opened.stat).is_ok() {
        return Ok(());
    }
    let address = opened.file.map(LANE_AREA, true, false).map_err(AttachError::Map)?;
    // SAFETY: just mapped shared and writable, unmapped below.
    let image = unsafe { Region::new(address, LANE_AREA, LANE_AREA, Domain::Process) };
    if let Some(header) = image.at::<Volatile>(VOLATILE) {
        header.boot.iter().for_each(|word| image.store_volatile(word, 0));
    }
    let written = file::sync(address, LANE_AREA);
    // SAFETY: nothing refers to the mapping any more; no mutex in it is held by us.
    unsafe { file::unmap(address, LANE_AREA) };
    written.map_err(AttachError::Open)
}

/// Writes which machine this is beside a volatile header made afresh.
pub(super) fn note(image: &Region, boot: [u64; 2]) {
    let Some(machine) = image.at::<Machine>(MACHINE) else { return };
    let own = Host::own(boot);
    let pairs = machine.boot.iter().zip(own.boot).chain(machine.id.iter().zip(own.id));
    let name = own.name.as_chunks::<8>().0.iter().map(|part| u64::from_le_bytes(*part));
    for (word, value) in pairs.chain(machine.name.iter().zip(name)) {
        image.store_volatile(word, value);
    }
}

impl Fs {
    /// The time of this use, for who asks.
    pub(super) fn note_use(&self) {
        if let Some(machine) = self.image.at::<Machine>(MACHINE) {
            self.image.store_volatile(&machine.used, pm::clock::now() as u64);
        }
    }

    /// Has other machines, which may have the file, see who uses the image; and all that it holds, if `all`: before
    /// they may see that it is free.
    pub(super) fn tell_others(&self, all: bool) {
        let (from, len) = if all { (0, self.image.valid()) } else { (ROOT, LANE_AREA - ROOT) };
        // A refusal is that of a file system that is going; the next use finds out.
        let _ = file::sync(self.image.base().wrapping_add(from as usize), len);
    }

    /// On which machine the image is used: this one, as long as it is attached.
    pub fn host(&self) -> Host {
        let header = self.volatile();
        let mut own = Host::own([header.boot[0].load(Relaxed), header.boot[1].load(Relaxed)]);
        own.used = self.image.at::<Machine>(MACHINE).map_or(0, |machine| machine.used.load(Relaxed) as i64);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;

    fn host(name: &str, id: u64) -> Host {
        let mut host = Host { name: [0; HOST_NAME], id: [id, id], boot: [7, id], used: 0 };
        host.name[..name.len()].copy_from_slice(name.as_bytes());
        host
    }

    /// Goal: refused is what another kernel may be using, and nothing else. Method: one difference at a time.
    #[test]
    fn who_is_refused() {
        let there = Said { host: host("there", 2), file: [1, 1], token: 5 };
        let here = host("here", 3);
        let case = |said: &Said, boot, own: Host, shared, held| is_elsewhere(said, boot, || own, shared, || held);
        assert!(case(&there, Some([7, 3]), here, true, true));
        // Where the boot id is not to be had.
        assert!(case(&there, None, here, true, true));
        // A template's id, of two machines.
        assert!(case(&there, Some([7, 3]), host("here", 2), true, true));
        // Neither has an id.
        assert!(case(&Said { host: host("there", 0), ..there }, Some([7, 3]), host("there", 0), true, true));
        // The same kernel, whatever the container calls itself; a restart; a local file system; an orderly end; nobody.
        assert!(!case(&there, Some(there.host.boot), here, true, true));
        assert!(!case(&there, Some([7, 3]), host("there", 2), true, true));
        assert!(!case(&there, Some([7, 3]), here, false, true));
        assert!(!case(&there, Some([7, 3]), here, true, false));
        assert!(!case(&Said { token: 0, ..there }, Some([7, 3]), here, true, true));
        let nobody = Host { boot: [0; 2], ..there.host };
        assert!(!case(&Said { host: nobody, ..there }, Some([7, 3]), here, true, true));
    }

    /// Goal: an image says where it is used, in the file itself; its mutexes say that it is; a text that is no name is
    /// not shown. Method: read as another machine would.
    #[test]
    fn an_image_says_where_it_is_used() {
        let test = TestFs::new(16 << 20);
        let file = File::open(&test.image.path(), abi::O_RDONLY, 0).unwrap();
        let said = said(&file).unwrap();
        assert_eq!(Some(said.host.boot), kernel::boot_id());
        assert_eq!((said.host.name, said.host.id), (kernel::host_name(), kernel::machine_id()));
        let now = pm::clock::now();
        assert!((now - 60_000_000_000..=now).contains(&said.host.used));
        assert!(says_held(&file));
        test.detach(&test.cx());
        assert!(!says_held(&file));
        assert_eq!(host("a\x1b[2J", 1).name(), "");
        assert!(std::format!("{}", host("node-1", 1)).starts_with("host node-1 (boot id 00000000-0000-0007-0000-"));
    }
}
