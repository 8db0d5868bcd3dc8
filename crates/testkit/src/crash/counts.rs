//! What an exploration has done so far.

/// Counts.
#[derive(Clone, Copy, Default, Debug)]
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
    pub violations: u64,
    /// Workloads left out because time was up.
    pub left: u64,
}

impl std::ops::Sub for Counts {
    type Output = Counts;
    fn sub(self, other: Counts) -> Counts {
        Counts {
            workloads: self.workloads - other.workloads,
            points: self.points - other.points,
            met: self.met - other.met,
            tried: self.tried - other.tried,
            inside: self.inside - other.inside,
            violations: self.violations - other.violations,
            left: self.left - other.left,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.workloads += other.workloads;
        self.points += other.points;
        self.met += other.met;
        self.tried += other.tried;
        self.inside += other.inside;
        self.violations += other.violations;
        self.left += other.left;
    }
}
