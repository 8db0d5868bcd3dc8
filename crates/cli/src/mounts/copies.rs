//! Copies of libraries and programs that a session's programs have in common: one that a program has made is kept here, and
//! handed to whoever asks for it (`shared_copies` of the preload library).
//!
//! - Kept is only what is sealed: nobody changes it any more.
//! - A user gets what he or root has made.
//! - Of a file only the newest copy is kept; of all as many as are asked for, within a limit.

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recvmsg, sendmsg, socket_with,
};
use std::fs::{Permissions, set_permissions};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const ASK: u8 = b'?';
const OFFER: u8 = b'!';
const KEPT: u8 = b'k';
const GIVEN: u8 = b'g';
const NOTHING: u8 = b'n';
const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// How many copies are kept at most, each with a descriptor.
const COPIES_MAX: usize = 256;
/// The part of the machine's memory that they may take.
const PART_OF_MEMORY: u64 = 16;
/// How long is waited for who has called and says nothing.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest question, and where in it the file's identity ends and its version begins, and where that ends.
const QUESTION_MAX: usize = 512;
const IDENTITY: std::ops::Range<usize> = 1..24;
const VERSION_END: usize = 64;

/// Begins to keep copies for the session whose directory that is; without, each program has its own.
pub fn keep(directory: &Path) {
    let Ok(socket) = listening(&directory.join("copies")) else { return };
    let _ = std::thread::Builder::new().name("copies".into()).spawn(move || {
        let mut kept = Kept::default();
        loop {
            match accept_with(&socket, SocketFlags::CLOEXEC) {
                Ok(caller) => drop(kept.answer(&caller)),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                // Out of descriptors: it passes.
                Err(_) => std::thread::sleep(PATIENCE),
            }
        }
    });
}

fn listening(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The session's programs may be other users'.
    set_permissions(path, Permissions::from_mode(0o777))?;
    listen(&socket, 128)?;
    Ok(socket)
}

struct Copy {
    /// The question that it answers, without its first byte.
    key: Vec<u8>,
    maker: u32,
    file: OwnedFd,
    bytes: u64,
    /// Rises with each use.
    used: u64,
}

#[derive(Default)]
struct Kept {
    copies: Vec<Copy>,
    uses: u64,
}

impl Kept {
    /// Answers one question.
    fn answer(&mut self, caller: &OwnedFd) -> rustix::io::Result<()> {
        set_socket_timeout(caller, Timeout::Recv, Some(PATIENCE))?;
        set_socket_timeout(caller, Timeout::Send, Some(PATIENCE))?;
        let user = socket_peercred(caller)?.uid.as_raw();
        let mut question = [0; QUESTION_MAX];
        let (len, file) = receive(caller, &mut question)?;
        let Some((&what, key)) = question[..len].split_first().filter(|_| len > VERSION_END) else { return Ok(()) };
        self.uses += 1;
        let known = self.copies.iter_mut().find(|copy| copy.key == key && (copy.maker == user || copy.maker == 0));
        if let (Some(copy), ASK | OFFER) = (known, what) {
            copy.used = self.uses;
            return send(caller, GIVEN, Some(copy.file.as_fd()));
        }
        let is_kept = what == OFFER && file.is_some_and(|file| self.add(key, user, file));
        send(caller, if is_kept { KEPT } else { NOTHING }, None)
    }

    /// Keeps a new copy, in the place of older ones of the same file, if nobody can change it.
    fn add(&mut self, key: &[u8], maker: u32, file: OwnedFd) -> bool {
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS)) {
            return false;
        }
        let bytes = fstat(&file).map_or(0, |stat| stat.st_size.cast_unsigned());
        let (identity, text) = (IDENTITY.start - 1..IDENTITY.end - 1, VERSION_END - 1..);
        let is_same = |copy: &Copy| {
            copy.maker == maker
                && copy.key[identity.clone()] == key[identity.clone()]
                && copy.key[text.clone()] == key[text.clone()]
        };
        self.copies.retain(|copy| !is_same(copy));
        self.copies.push(Copy { key: key.to_vec(), maker, file, bytes, used: self.uses });
        self.make_room(memory_limit());
        true
    }

    /// Forgets those that were not asked for the longest.
    fn make_room(&mut self, limit: u64) {
        while self.copies.len() > COPIES_MAX
            || self.copies.len() > 1 && self.copies.iter().map(|copy| copy.bytes).sum::<u64>() > limit
        {
            let oldest = self.copies.iter().enumerate().min_by_key(|(_, copy)| copy.used).map_or(0, |(at, _)| at);
            self.copies.swap_remove(oldest);
        }
    }
}

fn memory_limit() -> u64 {
    let system = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "it is 32 bits wide on some machines")]
    let bytes = u64::from(system.totalram).saturating_mul(u64::from(system.mem_unit.max(1)));
    bytes / PART_OF_MEMORY
}

fn receive(from: &OwnedFd, into: &mut [u8]) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let message = recvmsg(from, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let file = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((message.bytes, file))
}

fn send(to: &OwnedFd, what: u8, file: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let files: &[BorrowedFd<'_>] = file.as_slice();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(to, &[IoSlice::new(&[what])], &mut control, SendFlags::NOSIGNAL).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
    use rustix::net::{connect, sockopt};

    fn question(what: u8, inode: u8, version: u8, name: &str) -> Vec<u8> {
        let mut question = vec![0; VERSION_END];
        (question[0], question[16], question[40]) = (what, inode, version);
        [question, name.as_bytes().to_vec()].concat()
    }

    fn copy_of(text: &str, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("copy", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::write(&file, text.as_bytes()).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    /// Goal: what one has made another one gets, the newest version of it alone, and never what somebody can change.
    /// Method: a keeper, asked as programs do.
    #[test]
    fn one_for_all() {
        let directory = std::env::temp_dir().join(format!("bypath-copies-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        keep(&directory);
        let say = |question: &[u8], file: Option<&OwnedFd>| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            connect(&socket, &SocketAddrUnix::new(directory.join("copies")).unwrap()).unwrap();
            sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(20))).unwrap();
            pm::handover::send_text(raw(&socket), question, file.map(raw)).unwrap();
            let mut answer = [0; 8];
            let (len, file) = receive(&socket, &mut answer).unwrap();
            assert_eq!(len, 1);
            let text = file.map(|file| {
                let mut text = [0; 16];
                let len = rustix::io::pread(&file, &mut text, 0).unwrap();
                String::from_utf8_lossy(&text[..len]).into_owned()
            });
            (answer[0], text)
        };
        let ask = |inode, version, name: &str| say(&question(ASK, inode, version, name), None);
        let offer = |inode, version, name: &str, file: OwnedFd| say(&question(OFFER, inode, version, name), Some(&file));
        assert_eq!(ask(1, 1, "a.so"), (NOTHING, None));
        assert_eq!(offer(1, 1, "a.so", copy_of("open", SealFlags::SHRINK)), (NOTHING, None));
        assert_eq!(offer(1, 1, "a.so", copy_of("first", SEALS)), (KEPT, None));
        assert_eq!(ask(1, 1, "a.so"), (GIVEN, Some("first".into())));
        assert_eq!(offer(1, 1, "a.so", copy_of("same", SEALS)), (GIVEN, Some("first".into())));
        assert_eq!(ask(1, 1, "b.so"), (NOTHING, None));
        assert_eq!(ask(2, 1, "a.so"), (NOTHING, None));
        assert_eq!(offer(1, 2, "a.so", copy_of("built anew", SEALS)), (KEPT, None));
        assert_eq!(ask(1, 1, "a.so"), (NOTHING, None));
        assert_eq!(ask(1, 2, "a.so"), (GIVEN, Some("built anew".into())));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    fn raw(file: &OwnedFd) -> i32 {
        use std::os::fd::AsRawFd;
        file.as_raw_fd()
    }

    /// Goal: of too many those go that were not asked for the longest; one stays, however large.
    #[test]
    fn within_a_limit() {
        let mut kept = Kept::default();
        for number in 0..4 {
            kept.uses = number.into();
            assert!(kept.add(&question(OFFER, number, 1, "x")[1..], 0, copy_of("12345678", SEALS)));
        }
        kept.copies[0].used = 9;
        kept.make_room(16);
        let mut left: Vec<u8> = kept.copies.iter().map(|copy| copy.key[15]).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 3]);
        kept.make_room(0);
        assert_eq!(kept.copies.len(), 1);
    }
}
