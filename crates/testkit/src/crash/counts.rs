//! What an exploration has done so far.

use std::fmt;

/// Counts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Counts {
    pub workloads: u64,
    pub points: u64,
    /// States met, again and again.
    pub met: u64,
    /// Different states tried.
    pub tried: u64,
    /// Of these, crashes inside recovery.
    pub inside: u64,
    /// Different images that recovery left, each checked, read, used and emptied.
    pub used: u64,
    /// Of the states tried, those alike to one that was found right: only their trees were compared.
    pub alike: u64,
    pub violations: u64,
    /// Workloads left out because time was up.
    pub left: u64,
}

impl Counts {
    /// All of them, in the order above.
    pub const fn numbers(&self) -> [u64; 9] {
        [self.workloads, self.points, self.met, self.tried, self.inside, self.used, self.alike, self.violations, self.left]
    }

    /// From all of them.
    pub const fn of(numbers: [u64; 9]) -> Counts {
        let [workloads, points, met, tried, inside, used, alike, violations, left] = numbers;
        Counts { workloads, points, met, tried, inside, used, alike, violations, left }
    }

    fn with(self, other: Counts, how: impl Fn(u64, u64) -> u64) -> Counts {
        let (mine, theirs) = (self.numbers(), other.numbers());
        Counts::of(std::array::from_fn(|i| how(mine[i], theirs[i])))
    }
}

impl fmt::Display for Counts {
    /// As [`std::str::FromStr`] reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.numbers().map(|number| number.to_string()).join("|"))
    }
}

impl std::str::FromStr for Counts {
    type Err = ();
    fn from_str(text: &str) -> Result<Counts, ()> {
        let numbers = text.split('|').map(|number| number.parse().map_err(|_| ())).collect::<Result<Vec<u64>, ()>>()?;
        numbers.try_into().map(Counts::of).map_err(|_| ())
    }
}

impl std::ops::Sub for Counts {
    type Output = Counts;
    fn sub(self, other: Counts) -> Counts {
        self.with(other, |a, b| a - b)
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        *self = self.with(other, |a, b| a + b);
    }
}
