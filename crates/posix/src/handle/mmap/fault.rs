//! Mappings that reach past the end of their file.
//!
//! The pages past the end are a reservation that nobody may touch. Whoever
//! touches it raises `SIGSEGV`, of which the door tells us first: if the file has
//! grown since, by whomever, its new pages are put in place and the program goes
//! on; if not, it gets the kernel's `SIGBUS`. So growing costs nothing, and nobody
//! need tell those who have mapped a file that it grew.
//!
//! A file that this process cuts loses its mapped pages past the new end at
//! once; one that another process cuts keeps them, as zeroes, until they are
//! mapped anew.

use super::*;
use base::Node;

/// What touching a page that is not accessible was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapFault {
    /// No matter of ours.
    NotOurs,
    /// The file has grown: its page is in place now.
    Filled,
    /// A page of a file, which another thread has perhaps put in place just now.
    Perhaps,
    /// Past the end of the file.
    PastEnd,
}

impl Process {
    /// The program touched `address`, which was not accessible. Not within an
    /// operation of this thread; may be asked in a signal handler.
    pub fn map_fault(&self, thread: &ThreadState, address: usize) -> MapFault {
        if self.mappings.is_empty() {
            return MapFault::NotOurs;
        }
        let cx = self.cx(thread);
        self.mappings.with(|table| {
            let Some(one) = table.iter_mut().find(|m| m.start <= address && address < m.end) else { return MapFault::NotOurs };
            // Who maps without any right gets what he asked for.
            if one.prot == 0 {
                return MapFault::NotOurs;
            }
            if address < one.filled {
                return MapFault::Perhaps;
            }
            let Some(file) = self.mapped_file(one) else { return MapFault::NotOurs };
            let offset = one.offset + (one.filled - one.start) as u64;
            let filled = self.fill(&cx, &file, one.filled, one.end - one.filled, one.prot as usize, one.shared, offset);
            // What can't be read is no different from what is not there, as in the kernel.
            one.filled += filled.unwrap_or(0);
            if address < one.filled { MapFault::Filled } else { MapFault::PastEnd }
        })
    }

    /// This process has cut a file to `len` bytes: what is mapped of it past the end goes.
    pub(crate) fn cut_mappings(&self, slot: usize, node: Node, len: u64) {
        if self.mappings.is_empty() {
            return;
        }
        self.mappings.with(|table| {
            for one in table.iter_mut().filter(|m| m.end != 0 && m.slot as usize == slot) {
                let left = pages(len.saturating_sub(one.offset).min((one.end - one.start) as u64) as usize).unwrap_or(0);
                let end = one.start + left;
                if end >= one.filled || self.mapped_file(one).is_none_or(|file| file.node.id != node.id) {
                    continue;
                }
                self.door.watch_faults();
                let flags = PRIVATE | ANONYMOUS | NORESERVE | FIXED;
                // SAFETY: replaces the end of a mapping of ours by a reservation.
                if unsafe { pm::call!(abi::__NR_mmap, end, one.filled - end, 0, flags, usize::MAX, 0) }.is_ok() {
                    one.filled = end;
                }
            }
        });
    }

    fn mapped_file(&self, one: &Mapping) -> Option<OpenFile<'_>> {
        self.open_file(crate::descriptors::Entry::new(one.slot as usize, one.description, Kind::Regular, false, false))
    }
}
