//! Atomic words at whose accesses a thread may die, and mutexes that know it.
//!
//! Who dies just stops there, as a killed process does: nothing that it holds is given back. As the kernel
//! does with robust mutexes, whoever looks after the dead one says afterwards that they have no owner.

use shuttle::sync::atomic as plain;
pub use shuttle::sync::atomic::Ordering;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

shuttle::thread_local! {
    /// One access in so many is the last one; 0: this thread does not die.
    static ODDS: Cell<u32> = const { Cell::new(0) };
}

/// What a thread that dies unwinds with: no panic, so that nobody prints it.
struct Died;

/// Before each access.
fn step() {
    let odds = ODDS.with(Cell::get);
    if odds != 0 && super::any(odds) == 0 {
        ODDS.with(|odds| odds.set(0));
        resume_unwind(Box::new(Died));
    }
}

/// Leads a life in which one access in `odds` is the last. `None` if it has died.
pub fn life<T>(odds: u32, life: impl FnOnce() -> T) -> Option<T> {
    ODDS.with(|now| now.set(odds));
    let led = catch_unwind(AssertUnwindSafe(life));
    ODDS.with(|now| now.set(0));
    match led {
        Ok(value) => Some(value),
        Err(cause) if cause.is::<Died>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

macro_rules! word {
    ($name:ident, $of:ty) => {
        #[derive(Debug, Default)]
        pub struct $name(plain::$name);

        #[allow(dead_code)]
        impl $name {
            pub fn new(value: $of) -> Self {
                Self(plain::$name::new(value))
            }
            pub fn load(&self, order: Ordering) -> $of {
                step();
                self.0.load(order)
            }
            pub fn store(&self, value: $of, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            pub fn compare_exchange(&self, from: $of, to: $of, order: Ordering, failed: Ordering) -> Result<$of, $of> {
                step();
                self.0.compare_exchange(from, to, order, failed)
            }
            pub fn swap(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.swap(value, order)
            }
            pub fn fetch_add(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_add(value, order)
            }
            pub fn fetch_sub(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_sub(value, order)
            }
            pub fn fetch_and(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_and(value, order)
            }
            pub fn fetch_update(
                &self,
                order: Ordering,
                failed: Ordering,
                change: impl FnMut($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                step();
                self.0.fetch_update(order, failed, change)
            }
            pub fn fetch_or(&self, value: $of, order: Ordering) -> $of {
                step();
                self.0.fetch_or(value, order)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

const FREE: u32 = 0;
const OWNERLESS: u32 = u32::MAX;

/// A robust mutex: whose owner died can be taken by the next one.
#[derive(Debug, Default)]
pub struct Robust(plain::AtomicU32);

impl Robust {
    /// Takes it for `owner` (not 0), without waiting.
    pub fn try_take(&self, owner: u32) -> bool {
        step();
        [FREE, OWNERLESS].iter().any(|from| self.0.compare_exchange(*from, owner, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    pub fn give_back(&self) {
        step();
        self.0.store(FREE, Ordering::Release);
    }

    /// `owner` has died; what the kernel does then.
    pub fn is_left_by(&self, owner: u32) {
        let _ = self.0.compare_exchange(owner, OWNERLESS, Ordering::AcqRel, Ordering::Relaxed);
    }
}
