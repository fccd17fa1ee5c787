//! lab04-memory · Does it fit into 80 GB?

/// A job that is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub parameters: u64,
    pub blocks: u64,
    pub width: u64,
    /// Tokens per sequence.
    pub sequence: u64,
    pub ranks: u64,
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
    /// Sequences per micro-batch.
    pub sequences: u64,
}

/// The plan with the lowest stage. None if no stage leaves room for a sequence.
pub fn plan(job: &Job) -> Option<Plan> {
    let Job {
        parameters,
        blocks,
        width,
        sequence,
        ranks,
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
    (0..=3).find_map(|stage| {
        let held = |bytes: u64, sharded_from: usize| {
            if stage < sharded_from {
                bytes * parameters
            } else {
                (bytes * parameters).div_ceil(ranks)
            }
        };
        let state = held(2, 3) + held(2, 2) + held(12, 1);
        let sequences = memory.checked_sub(state)? / each;
        (sequences > 0).then_some(Plan {
            stage,
            state,
            sequences,
        })
    })
}
