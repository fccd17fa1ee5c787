//! lab11-memory · The fullest stage

/// A model and its pipeline under 1F1B. All bytes are those of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub layers: usize,
    pub stages: usize,
    /// Micro-batches per replica and step.
    pub micro_batches: usize,
    /// Bytes of a layer's state.
    pub state: u64,
    /// Bytes of a layer's activations for one micro-batch.
    pub kept: u64,
    /// Bytes of the token table's state, on the first stage.
    pub table: u64,
    /// Bytes of the head's state, on the last stage.
    pub head: u64,
    /// Bytes of one micro-batch's logits, on the last stage.
    pub logits: u64,
}

/// What a rank of one stage has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    pub layers: usize,
    /// The most bytes that it holds during a step.
    pub bytes: u64,
}

/// The stages from first to last.
pub fn balanced(job: &Job) -> Vec<Stage> {
    // The last stage goes back at once. Each one before it has a forward pass more before its first
    // backward pass.
    let layer = |stage: usize| {
        let in_flight = (job.stages - stage).min(job.micro_batches);
        job.state + in_flight as u64 * job.kept
    };
    let mut stages = Vec::new();
    for stage in 0..job.stages {
        let mut bytes = layer(stage);
        if stage == 0 {
            bytes += job.table;
        }
        if stage + 1 == job.stages {
            bytes += job.head + job.logits;
        }
        stages.push(Stage { layers: 1, bytes });
    }
    // The next layer goes where it makes the least full rank.
    for _ in job.stages..job.layers {
        let next = (0..job.stages).min_by_key(|&stage| stages[stage].bytes + layer(stage));
        if let Some(stage) = next {
            stages[stage].layers += 1;
            stages[stage].bytes += layer(stage);
        }
    }
    stages
}
