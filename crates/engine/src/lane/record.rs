//! The stores of a record: written into the lane, made where they belong.
//!
//! An operation lists stores one by one (`Tx::set` and its like), or knows them
//! all and commits them at once (`Tx::commit_with`): then the compiler knows the
//! kind of each, and the record is a straight run of stores. Recovery reads a
//! record back and makes its stores by the same function, [`make`].

use super::Tx;
use crate::fs::{Fs, corrupt};
use base::Result;
use format::inode::{self, Head};
use format::lane::Op;
use format::layout;

/// Makes one store and, with `FLUSH`, starts its write-back. `AGAIN` says that
/// it may have been made before (recovery, adoption).
#[inline(always)]
pub(crate) fn make<const FLUSH: bool, const AGAIN: bool>(fs: &Fs, op: Op) -> Result<()> {
    let image = &fs.image;
    let at = match op {
        Op::Set { at, value } => {
            image.store(fs.at(at, "word of a record")?, value);
            at
        }
        Op::Max { at, value } => {
            image.raise(fs.at(at, "word of a record")?, value);
            at
        }
        Op::SetBits { at, bits } => {
            image.or(fs.at(at, "word of a record")?, bits);
            at
        }
        Op::ClearBits { at, bits } => {
            image.and(fs.at(at, "word of a record")?, !bits);
            at
        }
        Op::SetRun { at, count } => return run(fs, at, count, u64::MAX),
        Op::ClearRun { at, count } => return run(fs, at, count, 0),
        Op::Count { at, .. } if AGAIN => {
            // Counted before or not? Whoever needs the counts takes them again.
            let flag = Head { generation: 0, flags: inode::RECOUNT, kind: 0, permission: 0 }.pack();
            image.or(&fs.inode(at)?.head, flag);
            at
        }
        Op::Count { at, entries, directories } => {
            let inode = fs.inode(at)?;
            image.add(&inode.size, i64::from(entries) as u64);
            if directories != 0 {
                image.add(&inode.links, i64::from(directories) as u64);
            }
            at
        }
    };
    if FLUSH {
        image.flush(at, 8);
    }
    Ok(())
}

/// Whole blocks: `count` bitmap words from `at` on.
#[inline(never)]
fn run(fs: &Fs, at: u64, count: u64, value: u64) -> Result<()> {
    let end = count.checked_mul(8).and_then(|bytes| at.checked_add(bytes));
    if at < layout::BITMAP || end.is_none_or(|end| end > fs.layout.blocks) {
        return Err(corrupt("bitmap run of a record", at));
    }
    for i in 0..count {
        fs.image.store(fs.at(at + i * 8, "bitmap word")?, value);
    }
    fs.image.flush(at, count * 8);
    Ok(())
}

/// Stores that are committed together, of kinds known to the compiler.
pub(crate) trait Stores: Copy {
    /// How many there are at most.
    const COUNT: usize;
    /// Writes them into the lane.
    fn write(self, tx: &mut Tx);
    /// Makes them, where stores become visible in order.
    fn make(self, fs: &Fs) -> Result<()>;
    /// Once the record is gone: lets others use what they have freed.
    fn release(self, fs: &Fs);
}

impl Stores for Op {
    const COUNT: usize = 1;

    #[inline(always)]
    fn write(self, tx: &mut Tx) {
        tx.put(self);
    }

    #[inline(always)]
    fn make(self, fs: &Fs) -> Result<()> {
        make::<false, false>(fs, self)
    }

    #[inline(always)]
    fn release(self, fs: &Fs) {
        match self {
            Op::ClearBits { at, bits } => fs.release_bits(at, bits),
            Op::ClearRun { at, count } => fs.release_run(at, count),
            _ => {}
        }
    }
}

impl<S: Stores> Stores for Option<S> {
    const COUNT: usize = S::COUNT;

    #[inline(always)]
    fn write(self, tx: &mut Tx) {
        if let Some(stores) = self {
            stores.write(tx);
        }
    }

    #[inline(always)]
    fn make(self, fs: &Fs) -> Result<()> {
        match self {
            Some(stores) => stores.make(fs),
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn release(self, fs: &Fs) {
        if let Some(stores) = self {
            stores.release(fs);
        }
    }
}

macro_rules! stores {
    ($($name:ident)*) => {
        impl<$($name: Stores),*> Stores for ($($name,)*) {
            const COUNT: usize = 0 $(+ $name::COUNT)*;

            #[inline(always)]
            #[allow(non_snake_case, unused_variables)]
            fn write(self, tx: &mut Tx) {
                let ($($name,)*) = self;
                $($name.write(tx);)*
            }

            #[inline(always)]
            #[allow(non_snake_case, unused_variables)]
            fn make(self, fs: &Fs) -> Result<()> {
                let ($($name,)*) = self;
                $($name.make(fs)?;)*
                Ok(())
            }

            #[inline(always)]
            #[allow(non_snake_case, unused_variables)]
            fn release(self, fs: &Fs) {
                let ($($name,)*) = self;
                $($name.release(fs);)*
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
stores!(A B C D E F G);
stores!(A B C D E F G H);
