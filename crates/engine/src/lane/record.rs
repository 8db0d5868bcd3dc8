//! The stores of a record: written into the lane, made where they belong.
//!
//! An operation lists stores one by one (`Tx::set` and its like), or knows them
//! all and commits them at once (`Tx::commit_with`): then the compiler knows
//! each, and writing and making them is a straight run of instructions. Who
//! reads a record back makes its stores with the same functions ([`apply`]).
//!
//! [`apply`]: super::apply::apply

use crate::fs::Fs;
use core::sync::atomic::AtomicU64;
use format::lane::{Op, RawOp};
use format::{Inode, Lane};
use pm::Region;

/// The word becomes `value`.
#[derive(Clone, Copy)]
pub(crate) struct Set<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) value: u64,
}

/// The word, which holds `was`, becomes 0, and may be anybody's from then on.
#[derive(Clone, Copy)]
pub(crate) struct Empty<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) was: u64,
}

/// The signed word becomes at least `value`.
#[derive(Clone, Copy)]
pub(crate) struct Raise<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) value: i64,
}

/// Bits are set: of a bitmap word, lines are allocated.
#[derive(Clone, Copy)]
pub(crate) struct SetBits<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) bits: u64,
}

/// Bits of a bitmap word are cleared: lines are freed.
#[derive(Clone, Copy)]
pub(crate) struct ClearBits<'a> {
    pub(crate) word: &'a AtomicU64,
    pub(crate) bits: u64,
    /// The block that the word is about, and how many bits it loses.
    pub(crate) block: u64,
    pub(crate) count: u32,
}

/// The times of a directory rise to `now`, and its counts change.
#[derive(Clone, Copy)]
pub(crate) struct Touch<'a> {
    pub(crate) inode: &'a Inode,
    pub(crate) now: i64,
    pub(crate) entries: i8,
    pub(crate) directories: i8,
}

/// The counters of a lane become these.
#[derive(Clone, Copy)]
pub(super) struct Counters<'a> {
    pub(super) lane: &'a Lane,
    pub(super) lines: u64,
    pub(super) files: u64,
}

/// Most stores that are committed together, the lane's counters among them.
pub(crate) const TOGETHER: usize = 24;

/// Writes stores into a lane, one after the other.
pub(crate) struct Writer<'a> {
    image: &'a Region,
    /// Room for them.
    room: &'a [RawOp; TOGETHER],
    /// How many have been written.
    written: usize,
}

impl<'a> Writer<'a> {
    /// Behind the first `listed` stores of a lane; `None` where there is no room.
    #[inline]
    pub(super) fn new(image: &'a Region, lane: &'a Lane, listed: usize) -> Option<Self> {
        Some(Writer { image, room: lane.ops.get(listed..)?.first_chunk()?, written: 0 })
    }

    /// How many have been written.
    #[inline]
    pub(super) fn written(&self) -> usize {
        self.written
    }

    #[inline]
    fn put(&mut self, op: Op) {
        let (place, value) = op.pack();
        // There is room: `Stores::COUNT` is looked at when the program is built.
        if let Some(slot) = self.room.get(self.written) {
            self.image.store(&slot.place, place);
            self.image.store(&slot.value, value);
            self.written += 1;
        }
    }
}

/// Stores that are committed together.
pub(crate) trait Stores: Copy {
    /// How many there are at most.
    const COUNT: usize;
    /// Writes them into the lane.
    fn write(self, to: &mut Writer);
    /// Makes them.
    fn make(self, image: &Region);
    /// Once the record of lane `number` is gone: lets what they have freed be used again.
    #[inline]
    fn release(self, _: &Fs, _number: u32) {}
}

impl Stores for Set<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        let at = to.image.offset_of(self.word);
        to.put(Op::Set { at, value: self.value });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.store(self.word, self.value);
    }
}

impl Stores for Empty<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        let at = to.image.offset_of(self.word);
        to.put(Op::Empty { at, was: self.was });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.store(self.word, 0);
    }
}

impl Stores for Raise<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        let at = to.image.offset_of(self.word);
        to.put(Op::Max { at, value: self.value });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.raise(self.word, self.value);
    }
}

impl Stores for SetBits<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        let at = to.image.offset_of(self.word);
        to.put(Op::SetBits { at, bits: self.bits });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.or(self.word, self.bits);
    }
}

impl Stores for ClearBits<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        let at = to.image.offset_of(self.word);
        to.put(Op::ClearBits { at, bits: self.bits });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.and(self.word, !self.bits);
    }

    #[inline]
    fn release(self, fs: &Fs, number: u32) {
        fs.release_lines(number, self.block, self.bits, self.count);
    }
}

impl Stores for Touch<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        let at = to.image.offset_of(self.inode);
        to.put(Op::Touch { at, now: self.now, entries: self.entries, directories: self.directories });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.raise(&self.inode.mtime, self.now);
        image.raise(&self.inode.ctime, self.now);
        if self.entries != 0 {
            image.add(&self.inode.size, i64::from(self.entries) as u64);
        }
        if self.directories != 0 {
            image.add(&self.inode.links, i64::from(self.directories) as u64);
        }
    }
}

impl Stores for Counters<'_> {
    const COUNT: usize = 1;

    #[inline]
    fn write(self, to: &mut Writer) {
        to.put(Op::Counters { lines: self.lines, files: self.files });
    }

    #[inline]
    fn make(self, image: &Region) {
        image.store(&self.lane.lines, self.lines);
        image.store(&self.lane.files, self.files);
    }
}

impl<S: Stores> Stores for Option<S> {
    const COUNT: usize = S::COUNT;

    #[inline]
    fn write(self, to: &mut Writer) {
        if let Some(stores) = self {
            stores.write(to);
        }
    }

    #[inline]
    fn make(self, image: &Region) {
        if let Some(stores) = self {
            stores.make(image);
        }
    }

    #[inline]
    fn release(self, fs: &Fs, number: u32) {
        if let Some(stores) = self {
            stores.release(fs, number);
        }
    }
}

macro_rules! stores {
    ($($name:ident)*) => {
        impl<$($name: Stores),*> Stores for ($($name,)*) {
            const COUNT: usize = 0 $(+ $name::COUNT)*;

            #[inline]
            #[allow(non_snake_case, unused_variables)]
            fn write(self, to: &mut Writer) {
                let ($($name,)*) = self;
                $($name.write(to);)*
            }

            #[inline]
            #[allow(non_snake_case, unused_variables)]
            fn make(self, image: &Region) {
                let ($($name,)*) = self;
                $($name.make(image);)*
            }

            #[inline]
            #[allow(non_snake_case, unused_variables)]
            fn release(self, fs: &Fs, number: u32) {
                let ($($name,)*) = self;
                $($name.release(fs, number);)*
            }
        }
    };
}

stores!();
stores!(A B);
stores!(A B C);
stores!(A B C D);
stores!(A B C D E);
stores!(A B C D E F);
