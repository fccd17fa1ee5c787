//! lab08-after · The step after a skip

pub struct Answers {
    /// The first micro-batch that step 6 trains on.
    pub first: usize,
    /// The steps of the learning-rate schedule that are over when step 6 begins.
    pub schedule: usize,
    /// With `one-batch`, which draws one micro-batch for each skipped step: how many bad micro-batches the model learns.
    pub learned: usize,
}

pub fn answers() -> Answers {
    // Five steps have drawn 4 each, and all five count. One of 4 is discarded in each of three steps, and 3 are learned.
    Answers {
        first: 5 * 4 + 1,
        schedule: 5,
        learned: 3 * 3,
    }
}
