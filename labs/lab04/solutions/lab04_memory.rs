//! lab04-memory · The plan that sends least

/// A job that is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub parameters: u64,
    pub blocks: u64,
    pub width: u64,
    /// Tokens per sequence.
    pub sequence: u64,
    pub ranks: u64,
    /// Sequences that each rank computes in one step.
    pub batch: u64,
    /// Whether the backward pass recomputes the activations of each block.
    pub recompute: bool,
    /// Bytes of each rank's device.
    pub memory: u64,
}

/// How the job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// ZeRO's stage, 0 to 3.
    pub stage: usize,
    /// Bytes of parameters, gradients and optimizer state on each rank.
    pub state: u64,
    /// Sequences per micro-batch: as many as fit, and at most the job's.
    pub sequences: u64,
    /// Bytes that each rank sends per step.
    pub sent: u64,
}

/// The plan that sends least. None if no stage leaves room for a sequence.
pub fn plan(job: &Job) -> Option<Plan> {
    let Job {
        parameters,
        blocks,
        width,
        sequence,
        ranks,
        batch,
        recompute,
        memory,
    } = *job;
    // One block, one sequence.
    let unit = sequence * width;
    let each = if recompute {
        2 * blocks * unit + 34 * unit
    } else {
        34 * blocks * unit
    };
    let fitting = (0..=3).filter_map(|stage| {
        let held = |bytes: u64, sharded_from: usize| {
            if stage < sharded_from {
                bytes * parameters
            } else {
                (bytes * parameters).div_ceil(ranks)
            }
        };
        let state = held(2, 3) + held(2, 2) + held(12, 1);
        let sequences = (memory.checked_sub(state)? / each).min(batch);
        if sequences == 0 {
            return None;
        }
        let micro_batches = batch.div_ceil(sequences);
        // How often all parameters or all gradients go through a gather or a reduce-scatter.
        let transfers = match stage {
            0 | 1 => 2,
            2 => micro_batches + 1,
            _ => 3 * micro_batches,
        };
        let sent = transfers * 2 * parameters * (ranks - 1) / ranks;
        Some(Plan { stage, state, sequences, sent })
    });
    fitting.min_by_key(|plan| plan.sent)
}
