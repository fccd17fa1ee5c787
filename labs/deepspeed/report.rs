//! What a conversion finds: counted by its workers, told at its end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

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
    /// Values that are infinite or NaN, and where the first are. They are converted as they are.
    pub not_finite: (usize, String),
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

/// Results of the workers.
#[derive(Default)]
pub(super) struct Results {
    pub elements: AtomicUsize,
    /// Elements of the weights that the optimizer does not have.
    pub frozen: AtomicUsize,
    pub fragments: AtomicUsize,
    pub compared: AtomicUsize,
    /// Slices that differ from the model's weights.
    pub differ: AtomicUsize,
    /// How many values are infinite or NaN, by state and parameter.
    pub not_finite: Mutex<BTreeMap<String, usize>>,
    pub notes: Mutex<Vec<String>>,
}

/// What the workers share, also after one of them has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
