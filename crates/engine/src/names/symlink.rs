//! Symlinks: a text in lines of its own.

use crate::alloc::Arena;
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::lane::record::SetBits;
use crate::segment::Cachelet;
use crate::segment::cache::short_word;
use base::{Cx, Kind, Node, PATH_MAX, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::extent::symlink_lines;
use format::inode::node_offset;
use format::{BLOCK, LINE};
use pm::{Errno, UserSlice};

/// Largest text whose lines are put under the record's checksum.
const SHORT: u32 = 4;

/// `ENOENT` for an empty target, `ENAMETOOLONG` for one that is no path.
pub(super) fn check_target(target: &[u8]) -> Result<()> {
    match target.len() {
        0 => Err(Errno::ENOENT.into()),
        1..PATH_MAX => Ok(()),
        _ => Err(Errno::ENAMETOOLONG.into()),
    }
}

impl Fs {
    /// Allocates and writes the text of a symlink; returns its offset, and the
    /// store that allocates it, for the record.
    pub(super) fn new_text<'a>(&'a self, tx: &mut Tx<'a>, target: &[u8]) -> Result<(u64, SetBits<'a>)> {
        if target.len() > LINE as usize {
            return self.new_long_text(tx, target);
        }
        let (at, allocated) = tx.new_lines(1, Arena::Other)?;
        let line: &[AtomicU64; 8] = self.at(at, "text of a symlink")?;
        let (chunks, rest) = target.as_chunks::<8>();
        // Zeros behind it, so that a damaged length shows: everywhere, which is shorter than asking each word.
        for word in line {
            self.image.store(word, 0);
        }
        for (chunk, word) in chunks.iter().zip(line) {
            self.image.store(word, u64::from_le_bytes(*chunk));
        }
        if let Some(word) = line.get(chunks.len()) {
            self.image.store(word, short_word(rest));
        }
        tx.object(at, 1)?;
        Ok((at, allocated))
    }

    /// As [`Fs::new_text`], for a text of more than one line.
    #[cold]
    #[inline(never)]
    fn new_long_text<'a>(&'a self, tx: &mut Tx<'a>, target: &[u8]) -> Result<(u64, SetBits<'a>)> {
        let lines = symlink_lines(target.len() as u64);
        let (at, allocated) = tx.new_lines(lines, Arena::Other)?;
        self.present(at, target.len() as u64)?;
        self.image.copy_in(at, UserSlice::from_ref(target))?;
        // So that a damaged length shows.
        self.image.zero(at + target.len() as u64, u64::from(lines) * LINE - target.len() as u64)?;
        if lines <= SHORT {
            tx.object(at, lines)?;
        } else {
            tx.order();
        }
        Ok((at, allocated))
    }

    /// Copies the target of a symlink, as much as fits; returns how much. `EINVAL` if it is none.
    pub fn readlink(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.with_cached(cx, node, |cachelet| self.read_text(cx, node, cachelet, out))
    }

    /// `ESTALE` if the cachelet is taken away meanwhile.
    fn read_text(&self, cx: &Cx, node: Node, cachelet: &Cachelet, out: UserSlice) -> Result<usize> {
        for _ in 0..super::ATTEMPTS {
            let before = cachelet.sequence.load(Acquire);
            let (kind, at, len) = self.consistent(cx, cachelet, node.id, |c| {
                ((c.mode.load(Relaxed) >> 16) as u8, c.root.load(Relaxed), c.size.load(Relaxed))
            })?;
            if kind != Kind::Symlink as u8 {
                return Err(Errno::EINVAL.into());
            }
            if len >= PATH_MAX as u64 || at % LINE != 0 || at % BLOCK + len > BLOCK {
                return Err(corrupt("text of a symlink", node_offset(node.id)));
            }
            // It may lie in what another process has added to the image.
            self.present(at, len)?;
            let take = (len as usize).min(out.len);
            let copied = self.image.copy_out(at, UserSlice { ptr: out.ptr, len: take });
            core::sync::atomic::fence(Acquire);
            // The text goes with its inode, whose cachelet changes before that.
            if cachelet.sequence.load(Relaxed) == before {
                copied?;
                return Ok(take);
            }
        }
        Err(Errno::EIO.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::NewNode;

    /// Goal: a text that lies in what another process has added to the image is read. Method: a child makes links until
    /// the image has grown several times; all that this process has seen of them is in the shared cache.
    #[test]
    fn text_in_what_another_process_has_added() {
        const LINKS: usize = 2000;
        let test = TestFs::new(64 << 20);
        let root = test.root_node();
        let target = [b't'; 1000];
        for round in 0..8 {
            test.dying(|cx| {
                let new = NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0, target: &target };
                (0..LINKS).all(|i| test.create(cx, root, std::format!("{round}.{i}").as_bytes(), &new).is_ok())
            });
            let cx = test.cx();
            let node = test.lookup(&cx, root, std::format!("{round}.{}", LINKS - 1).as_bytes()).unwrap();
            let mut out = [0; 1024];
            assert_eq!(test.readlink(&cx, node, UserSlice::from_mut(&mut out)), Ok(target.len()), "{round}");
        }
    }

    /// Goal: a text of any length up to some lines comes back, and zeros follow it
    /// to the end of its last line. Method: lines are used again, so that what
    /// stood there before would show.
    #[test]
    fn texts_of_all_lengths() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        for round in 0..2 {
            for len in 1..=200usize {
                let text: std::vec::Vec<u8> = (0..len).map(|i| b'a' + (i + round) as u8 % 26).collect();
                let new = NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0, target: &text };
                let node = test.create(&cx, root, b"link", &new).unwrap();
                let mut out = [0; 256];
                assert_eq!(test.readlink(&cx, node, UserSlice::from_mut(&mut out)), Ok(len));
                assert_eq!(out[..len], text);
                let at = test.inode(node_offset(node.id)).unwrap().root.load(Relaxed);
                let lines = u64::from(symlink_lines(len as u64));
                let whole = UserSlice { ptr: out.as_mut_ptr(), len: (lines * LINE) as usize };
                test.fs.image.copy_out(at, whole).unwrap();
                assert!(out[len..whole.len].iter().all(|byte| *byte == 0), "{len} bytes: {:?}", &out[len..whole.len]);
                test.unlink(&cx, root, b"link").unwrap();
            }
        }
    }
}
