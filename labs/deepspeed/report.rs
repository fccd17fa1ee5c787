//! What a conversion finds: counted by its workers, told at its end.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The stage of ZeRO that saved the checkpoint: 1, 2 or 3.
    pub stage: usize,
    /// Ranks of data, tensor and pipeline parallelism.
    pub ranks: (usize, usize, usize),
    /// Steps that the optimizer has taken, if the files say it.
    pub step: Option<f64>,
    /// Names, in the model's order.
    pub parameters: Vec<String>,
    /// Elements of all parameters together.
    pub elements: usize,
    /// Fragments that were put together.
    pub fragments: usize,
    /// Slices whose values were compared with the model's own weights, of how many.
    pub compared: (usize, usize),
    /// Slices whose values differ from these weights. A strict conversion refuses them.
    pub differ: usize,
    /// How many values are infinite or NaN, by state and parameter. They are converted as they are.
    pub not_finite: BTreeMap<String, usize>,
    /// Files that were read back, if that was asked for.
    pub verified: Option<usize>,
    /// Mistakes of the checkpoint, and how they were put right.
    pub notes: Vec<String>,
    /// What a run that resumes from the result lacks, each with the Python that loads it, if a file
    /// has it.
    pub lacks: Vec<(String, Option<String>)>,
    /// Bytes of the result.
    pub bytes: u64,
}

/// What the workers share, also after one of them has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
