//! Two runs of the same plan: where they differ first, and by how much at most.

use crate::files::{self, KINDS};
use crate::life::Life;
use crate::plan::RANKS_1;
use crate::run::Run;
use crate::step::{Step, Trained, or_nan};
use kit::parity::worst;
use serde::{Deserialize, Serialize};

/// Losses of two right trainers differ by rounding alone: after 240 steps by 3e-6, when a version
/// of a part rounded elsewhere.
pub const LOSS: f64 = 5e-5;

/// Norms of gradients, in relation to their size: by 3e-5.
pub const NORM: f64 = 5e-4;

/// Weights: by 4e-6. Adam moves a weight whose gradient is wrong by the learning rate in each step.
pub const WEIGHT: f64 = 5e-4;

/// Where a run first differs from the library's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub life: usize,
    pub step: usize,
    /// What differs: the run's, and the library's.
    pub what: String,
}

/// Where `run` first differs from `right`.
pub fn difference(run: &Run, right: &Run) -> Option<Difference> {
    of_lives(1, &run.life1, &right.life1).or_else(|| of_lives(2, &run.life2, &right.life2))
}

/// Where one life first differs. Steps that only one of them has reached count if it has failed
/// before them.
fn of_lives(number: usize, life: &Life, right_life: &Life) -> Option<Difference> {
    let at = |step, what| Some(Difference { life: number, step, what });
    for (mine, right) in life.steps.iter().zip(&right_life.steps) {
        if let Some(what) = of_steps(mine, right) {
            return at(right.step, what);
        }
        // One wrong weight is seen in no loss, but in what is saved.
        let [weights, right_weights] = [life, right_life].map(|life| saved(life, mine.step));
        let apart = worst(weights.iter().zip(&right_weights).map(|(x, y)| f64::from(x - y).abs()));
        if apart > WEIGHT || apart.is_nan() {
            return at(right.step, format!("a weight is {apart:.0e} from the library's"));
        }
    }
    let failed = life.failed.as_ref()?;
    let first = right_life.steps.first().or(life.steps.first()).map_or(1, |step| step.step);
    at(first + life.steps.len(), failed.clone())
}

/// The weights that a life has saved after a step; none if it has not.
fn saved(life: &Life, step: usize) -> Vec<f32> {
    let folder = files::folder(&life.folder, step);
    (0..RANKS_1).flat_map(|rank| files::read(&folder, rank, KINDS[0])).collect()
}

/// What differs between two steps.
fn of_steps(mine: &Step, right: &Step) -> Option<String> {
    let (mine, right) = match (&mine.trained, &right.trained) {
        (Some(mine), Some(right)) => (mine, right),
        (None, None) => return None,
        (None, Some(_)) => return Some("the step was skipped, and should be taken".into()),
        (Some(_), None) => return Some("the step was taken, and should be skipped".into()),
    };
    let norm = |of: &Trained| of.norm.unwrap_or(f64::NAN);
    let numbers = [
        ("learning rate", mine.lr, right.lr, 1e-9 * right.lr),
        ("loss scale", mine.scale, right.scale, 0.0),
        ("loss", mine.loss, right.loss, LOSS),
        ("norm", norm(mine), norm(right), NORM * norm(right)),
    ];
    let differs = |&(_, mine, right, bound): &(&str, f64, f64, f64)| {
        let near = (mine - right).abs() <= bound || (mine.is_nan() && right.is_nan());
        !near
    };
    let (name, mine, right, _) = numbers.into_iter().find(differs)?;
    Some(format!("{name} {}, and {} with the library's", mine as f32, right as f32))
}

/// How far the losses of a life are apart in two runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Steps that both have trained.
    pub steps: usize,
    /// The largest difference.
    #[serde(deserialize_with = "or_nan")]
    pub most: f64,
    /// Whether all have the same bits.
    pub equal: bool,
}

impl Losses {
    pub fn of(mine: &Life, right: &Life) -> Losses {
        let loss = |step: &Step| step.trained.map(|trained| trained.loss);
        let pairs = mine.steps.iter().zip(&right.steps);
        let pairs = pairs.filter_map(|(mine, right)| loss(mine).zip(loss(right)));
        let pairs: Vec<(f64, f64)> = pairs.collect();
        Losses {
            steps: pairs.len(),
            most: worst(pairs.iter().map(|(a, b)| (a - b).abs())),
            equal: pairs.iter().all(|(a, b)| a.to_bits() == b.to_bits()),
        }
    }
}
