//! Pages of a file, put in place.
//!
//! What stands for a hole:
//!
//! | mapping | hole |
//! |---|---|
//! | private | zero pages of its own |
//! | shared, only read | zeroes that go when somebody fills a hole (`Backend::zeros`): touching them raises `SIGBUS`, and what is there now is put in place ([`fault`](mod@super::fault)) |
//! | shared, to be written | there is none, if there is plenty of space; else nothing: a touch raises `SIGSEGV`, and the page is made then |

use super::stores::rights;
use super::*;
use base::ZEROS;
use pm::file::File;

/// Most pieces of zeroes in a part of a mapping that is put in place at once; what is left comes when it is touched.
const PIECES_MAX: usize = 512;

/// Where pages are put: `present` bytes at `base`, from `offset` of the file on.
pub(super) struct Place {
    pub base: usize,
    pub present: usize,
    pub prot: usize,
    pub offset: u64,
}

/// What was put in place.
#[derive(Clone, Copy)]
pub(super) struct Filled {
    /// Bytes up to the file's end.
    pub present: usize,
    /// Whether something stands for a hole.
    pub holes: bool,
}

/// What stands for a hole.
pub(super) enum Hole {
    /// Zeroes from this offset of a file.
    Zeros(File, u64),
    /// Zero pages of this process.
    Own,
    /// Nothing.
    Absent,
}

/// Memory without rights at a place of ours.
pub(super) fn reserve(start: usize, len: usize) -> Result<usize, Errno> {
    let flags = PRIVATE | ANONYMOUS | NORESERVE | FIXED;
    // SAFETY: replaces part of a mapping of ours.
    unsafe { pm::call!(abi::__NR_mmap, start, len, 0, flags, usize::MAX, 0) }
}

impl Process {
    /// Puts the file's pages into a reservation.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn fill(
        &self,
        cx: &Cx,
        file: &OpenFile,
        base: usize,
        len: usize,
        prot: usize,
        shared: bool,
        offset: u64,
    ) -> base::Result<Filled> {
        let backend = file.mount.backend;
        let size = backend.attr(cx, file.node)?.size;
        let present = pages(size.saturating_sub(offset).min(len as u64) as usize).unwrap_or(0).min(len);
        if present == 0 {
            return Ok(Filled { present, holes: false });
        }
        let place = Place { base, present, prot, offset };
        if !shared {
            let filled = self.fill_private(cx, file, &place);
            filled.unwrap_or_else(|| self.copy(cx, file, &place))?;
            return Ok(Filled { present, holes: false });
        }
        let comes_later = self.door.watches_faults();
        let zeros = if prot & PROT_WRITE == 0 && comes_later { backend.zeros() } else { None };
        let holes = match zeros {
            Some((zeros, from)) => self.place(cx, file, &place, MapFor::Reading, Hole::Zeros(zeros, from))?,
            None => match self.place(cx, file, &place, MapFor::Writing, Hole::Absent) {
                // Nobody can fill them.
                Err(Error::Posix(Errno::EROFS)) if prot & PROT_WRITE == 0 => {
                    self.place(cx, file, &place, MapFor::Reading, Hole::Own)?
                }
                // What does not fit now does not come later; nothing was taken.
                Ok(true) if !comes_later => return err(Errno::ENOMEM),
                result => result?,
            },
        };
        Ok(Filled { present, holes })
    }

    /// Puts the pages of a shared mapping in place; whether something stands for holes.
    pub(super) fn place(&self, cx: &Cx, file: &OpenFile, place: &Place, what: MapFor, hole: Hole) -> base::Result<bool> {
        let &Place { base, present, prot, offset } = place;
        // Through a descriptor that can only be read, so that `mprotect` can't make the mapping writable.
        let image = if writable(file.flags()) { None } else { image_of(file) };
        let (mut at, mut holes, mut pieces, mut failed) = (base, false, 0, None);
        let mut cover = |from: usize, to: usize| {
            holes |= from < to;
            cover(&hole, from, to, prot, offset + (from - base) as u64, &mut pieces)
        };
        file.mount.backend.map(cx, file.node, offset, present as u64, what, &mut |range| {
            let target = base + (range.file - offset) as usize;
            let covered = cover(at, target);
            let len = range.len as usize;
            let put = match &image {
                Some(image) => map_shared(target, len, prot, image, range.image),
                None => duplicate(range.address, target, len, prot),
            };
            failed = failed.or(covered.err()).or(put.err());
            at = target + len;
        })?;
        failed = failed.or(cover(at, base + present).err());
        match failed {
            Some(errno) => err(errno),
            None => Ok(holes),
        }
    }

    /// Reads the file into a reservation, where there is nothing to map.
    fn copy(&self, cx: &Cx, file: &OpenFile, place: &Place) -> base::Result<()> {
        // SAFETY: our own range, private to us.
        unsafe { pm::call!(abi::__NR_mprotect, place.base, place.present, 3) }?;
        // SAFETY: just made writable, and as long as that.
        let into = unsafe { UserSlice::new(place.base as *mut u8, place.present) };
        file.mount.backend.read(cx, file.node, place.offset, &[into])?;
        // SAFETY: our own range.
        unsafe { pm::call!(abi::__NR_mprotect, place.base, place.present, rights(place.prot)) }?;
        Ok(())
    }

    /// Maps the image file privately over part of a reservation. `None` if there is no such file.
    fn fill_private(&self, cx: &Cx, file: &OpenFile, place: &Place) -> Option<base::Result<()>> {
        let &Place { base, present, prot, offset } = place;
        let image = image_of(file)?;
        // Holes are the reservation's own zero pages.
        // SAFETY: our own range.
        let zeroes = unsafe { pm::call!(abi::__NR_mprotect, base, present, prot) };
        let mut failed = zeroes.err();
        let mapped = file.mount.backend.map(cx, file.node, offset, present as u64, MapFor::Private, &mut |range| {
            let target = base + (range.file - offset) as usize;
            // SAFETY: replaces part of our reservation.
            let put = unsafe { pm::call!(abi::__NR_mmap, target, range.len, prot, PRIVATE | FIXED, image.number(), range.image) };
            failed = failed.or(put.err());
        });
        Some(mapped.and_then(|()| failed.map_or(Ok(()), err)))
    }
}

/// The image file behind a file, opened to be read.
fn image_of(file: &OpenFile) -> Option<File> {
    file.mount.backend.backing()
}

fn map_shared(target: usize, len: usize, prot: usize, file: &File, offset: u64) -> Result<usize, Errno> {
    // SAFETY: replaces part of a mapping of ours.
    unsafe { pm::call!(abi::__NR_mmap, target, len, rights(prot), SHARED | FIXED, file.number(), offset) }
}

/// Duplicates the backend's own mapping over part of ours.
pub(super) fn duplicate(address: usize, target: usize, len: usize, prot: usize) -> Result<usize, Errno> {
    // SAFETY: duplicates the backend's shared mapping over part of ours.
    unsafe { pm::call!(abi::__NR_mremap, address, 0, len, MREMAP_MAYMOVE | MREMAP_FIXED, target) }?;
    // The backend's is not dumped.
    let _ = pm::file::advise(target as *mut u8, len as u64, abi::MADV_DODUMP);
    // SAFETY: our own range.
    unsafe { pm::call!(abi::__NR_mprotect, target, len, rights(prot)) }
}

/// Puts what stands for a hole at `from..to`, where the file is at `offset`.
fn cover(hole: &Hole, from: usize, to: usize, prot: usize, offset: u64, pieces: &mut usize) -> Result<(), Errno> {
    let mut at = from;
    match hole {
        // SAFETY: our own range.
        Hole::Own if from < to => drop(unsafe { pm::call!(abi::__NR_mprotect, from, to - from, rights(prot)) }?),
        Hole::Zeros(file, window) => {
            while at < to && *pieces < PIECES_MAX {
                let within = (offset + (at - from) as u64) % ZEROS;
                let len = (to - at).min((ZEROS - within) as usize);
                map_shared(at, len, prot, file, window + within)?;
                (at, *pieces) = (at + len, *pieces + 1);
            }
        }
        _ => {}
    }
    if at < to && !matches!(hole, Hole::Own) {
        reserve(at, to - at)?;
    }
    Ok(())
}
