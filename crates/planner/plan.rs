//! A strategy with what it costs a job.

use crate::{Load, Strategy, Time, TrainingJob};

/// A strategy that a job can use, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub strategy: Strategy,
    pub load: Load,
    pub time: Time,
}

impl TrainingJob {
    /// The cost of a strategy.
    pub fn plan(&self, strategy: Strategy) -> Plan {
        Plan {
            strategy,
            load: self.load(&strategy),
            time: self.time(&strategy),
        }
    }
}
