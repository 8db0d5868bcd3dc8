//! For tests: the n-th point at which something could run out says that it has.
//! In other builds there are no such points.

/// What can run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Lines and blocks of the image.
    Space,
    /// Blocks kept back for what frees space.
    Spare,
    /// Entries of the permission table.
    Permission,
    /// Entries of the orphan table.
    Orphan,
    /// Cachelets.
    Cachelet,
    /// Open file descriptions.
    Description,
    /// What it takes to free a file without a name.
    Reclaim,
}

#[cfg(test)]
std::thread_local! {
    /// What is to run out, and at which point from now.
    static ARMED: core::cell::Cell<Option<(Kind, u32)>> = const { core::cell::Cell::new(None) };
    /// It stays so: whether what is kept back runs out with the space.
    static FULL: core::cell::Cell<Option<bool>> = const { core::cell::Cell::new(None) };
}

/// Lets the `n`-th (from 1) point of this kind fail that this thread comes to.
#[cfg(test)]
pub(crate) fn arm(kind: Kind, n: u32) {
    ARMED.set(Some((kind, n)));
}

/// Lets the image be full from the `n`-th point of `Space` on, what is kept back with it if `all`.
#[cfg(test)]
pub(crate) fn fill_up(n: u32, all: bool) {
    arm(Kind::Space, n);
    FULL.set(Some(all));
}

/// Back to normal; whether the point was reached.
#[cfg(test)]
pub(crate) fn disarm() -> bool {
    FULL.set(None);
    ARMED.replace(None).is_none_or(|(_, left)| left == 0)
}

/// A point where something could run out: true if it has.
#[cfg(test)]
pub(crate) fn strikes(kind: Kind) -> bool {
    let Some((armed, left)) = ARMED.get() else { return false };
    if let (0, Some(all)) = (left, FULL.get()) {
        return kind == armed || all && kind == Kind::Spare;
    }
    if armed != kind || left == 0 {
        return false;
    }
    ARMED.set(Some((kind, left - 1)));
    left == 1
}

/// A point where something could run out: true if it has.
#[cfg(not(test))]
#[inline]
pub(crate) fn strikes(_kind: Kind) -> bool {
    false
}
