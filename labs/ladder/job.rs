//! How ranks share the work of a run.

/// How a run's ranks share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub ranks: usize,
    /// Parts of each step's batch.
    pub parts: usize,
    /// Neighbouring ranks that share a node.
    pub tensor: usize,
    pub steps: usize,
}
