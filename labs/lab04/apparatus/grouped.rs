//! What a short training of ranks in groups held and sent, and the formulas beside it.

use super::job::Job;
use super::lab::Lab;
use super::measured::Measured;
use shardlab::parallel::Strategy;

/// A short training of ranks in groups, or in one.
pub struct Grouped {
    pub strategy: Strategy,
    pub measured: Measured,
    /// Bytes that a rank sent in its group in the last step, and to other groups: means over ranks.
    pub inside: f64,
    pub between: f64,
    /// The same by the formula, from what the step gathered and reduced.
    pub inside_formula: f64,
    pub between_formula: f64,
    /// Seconds of a step: the median of all but the first, on the slowest rank.
    pub seconds: f64,
    /// A hash of the model that each rank's group holds.
    pub hashes: Vec<u64>,
}

impl Grouped {
    /// The job in which the ranks of one group share.
    pub fn job(&self, lab: &Lab) -> Job {
        Job { ranks: self.strategy.shard_ranks(), ..lab.job }
    }

    /// Bytes of parameters, gradients and optimizer state that a rank holds: measured, and by the
    /// formula.
    pub fn holds(&self, lab: &Lab) -> [f64; 2] {
        self.measured.holds(&self.job(lab)).into()
    }
}
