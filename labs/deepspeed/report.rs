//! What a conversion finds: counted by its workers, told at its end.

use shardlab::checkpoint::universal;
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
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
    /// Names and shapes, in the model's order.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// Fragments that were put together.
    pub fragments: usize,
    /// Slices whose values were compared with the model's own weights, of how many.
    pub compared: (usize, usize),
    /// Slices whose values differ from these weights. A strict conversion refuses them.
    pub differ: usize,
    /// Why nobody can know from the files whether the values are right.
    pub unverifiable: Option<String>,
    /// Values that are infinite or NaN. They are converted as they are.
    pub not_finite: Vec<NotFinite>,
    /// Files that were read back, if that was asked for.
    pub verified: Option<usize>,
    /// Mistakes of the checkpoint, and how they were put right.
    pub notes: Vec<String>,
    /// Bytes of the result.
    pub bytes: u64,
}

/// Why a checkpoint is not converted.
#[derive(Debug)]
pub enum Refusal {
    /// Something is missing, or has a form that is not known, or cannot be read or written.
    Input(BadInput),
    /// Everything is there, and the files contradict each other.
    Contradiction(BadInput),
}

impl Refusal {
    /// What is wrong, of either kind.
    pub fn error(self) -> BadInput {
        match self {
            Refusal::Input(error) | Refusal::Contradiction(error) => error,
        }
    }
}

impl From<BadInput> for Refusal {
    fn from(error: BadInput) -> Refusal {
        Refusal::Input(error)
    }
}

/// Values of a parameter in one rank's file that are infinite or NaN.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotFinite {
    pub file: PathBuf,
    pub parameter: String,
    /// One of [`STATES`](super::STATES).
    pub state: &'static str,
    /// How many there are.
    pub values: usize,
}

/// Results of the workers.
#[derive(Default)]
pub(super) struct Results {
    pub fragments: AtomicUsize,
    pub compared: AtomicUsize,
    /// Slices that differ from the model's weights.
    pub differ: AtomicUsize,
    /// The ranks whose values were compared with weights that differ from each other.
    pub seen: Mutex<BTreeSet<(usize, usize)>>,
    pub not_finite: Mutex<Vec<NotFinite>>,
    pub notes: Mutex<Vec<String>>,
    pub hashes: Mutex<BTreeMap<String, universal::Parameter>>,
    pub shapes: Mutex<BTreeMap<String, Vec<usize>>>,
}

/// What the workers share, also after one of them has panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
