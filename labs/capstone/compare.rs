//! Two runs of the same plan: where they differ first, and by how much at most.

use crate::files::{self, KINDS};
use crate::life::Life;
use crate::plan::RANKS_1;
use crate::run::Run;
use crate::step::{Step, Trained};
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
    let none = Life::default();
    of_lives(1, &run.life1, &right.life1).or_else(|| match (&run.life2, &right.life2) {
        (None, None) => None,
        (life, right) => {
            of_lives(2, life.as_ref().unwrap_or(&none), right.as_ref().unwrap_or(&none))
        }
    })
}

/// Where one life first differs. Steps that only one of them has reached count if it has failed
/// before them.
pub fn of_lives(number: usize, life: &Life, right_life: &Life) -> Option<Difference> {
    let at = |step, what| Some(Difference { life: number, step, what });
    let first = right_life.steps.first().or(life.steps.first()).map_or(1, |step| step.step);
    if let Some(end) = life.end.as_ref().filter(|end| !end.not_loaded.is_empty()) {
        return at(first, format!("{} is not what life 1 saved", end.not_loaded[0]));
    }
    for (mine, right) in life.steps.iter().zip(&right_life.steps) {
        if let Some(what) = of_steps(mine, right) {
            return at(right.step, what);
        }
        // One wrong weight is seen in no loss, but in a checkpoint.
        let saved = |life: &Life| weights(life, number, mine.step);
        let apart = largest_of(&saved(life), &saved(right_life));
        if apart > WEIGHT || apart.is_nan() {
            return at(right.step, format!("a weight is {apart:.0e} from the library's"));
        }
    }
    let failed = life.failed.as_ref()?;
    at(first + life.steps.len(), failed.clone())
}

/// The weights that a life has saved after a step, if it has.
fn weights(life: &Life, number: usize, step: usize) -> Vec<f32> {
    let kind = KINDS[0];
    if number == 2 {
        let last = life.steps.last().is_some_and(|last| last.step == step);
        let end = last && life.end.as_ref().is_some_and(|end| !end.text.is_empty());
        return match end {
            true => files::read(&life.folder, "final", kind).unwrap_or_default(),
            false => Vec::new(),
        };
    }
    let folder = files::folder(&life.folder, step);
    let owners = ["ends".to_string()].into_iter();
    let owners = owners.chain((0..RANKS_1).map(|rank| format!("rank{rank}")));
    let saved = owners.map(|owner| files::read(&folder, &owner, kind).unwrap_or_default());
    saved.flatten().collect()
}

/// The largest difference; NaN wins. None where one of the two is not there.
fn largest_of(a: &[f32], b: &[f32]) -> f64 {
    let pairs = a.iter().zip(b);
    largest(&mut pairs.map(|(a, b)| f64::from((a - b).abs())))
}

fn largest(all: &mut dyn Iterator<Item = f64>) -> f64 {
    all.fold(0.0, |most: f64, d| if d > most || d.is_nan() { d } else { most })
}

/// What differs between two steps.
fn of_steps(mine: &Step, right: &Step) -> Option<String> {
    let (mine, right) = match (&mine.trained, &right.trained) {
        (Some(mine), Some(right)) => (mine, right),
        (None, None) => return None,
        (None, Some(_)) => return Some("the step was skipped, and should be taken".into()),
        (Some(_), None) => return Some("the step was taken, and should be skipped".into()),
    };
    let Trained { loss, norm, lr, scale } = *mine;
    let differ = |name: &str, mine: String, right: String| {
        Some(format!("{name} {mine}, and {right} with the library's"))
    };
    if !near(lr, right.lr, 1e-9 * right.lr) {
        return differ("learning rate", format!("{lr:.3e}"), format!("{:.3e}", right.lr));
    }
    if scale != right.scale {
        return differ("loss scale", scale.to_string(), right.scale.to_string());
    }
    if !near(loss, right.loss, LOSS) {
        return differ("loss", format!("{loss:.4}"), format!("{:.4}", right.loss));
    }
    match (norm, right.norm) {
        (Some(mine), Some(norm)) if near(mine, norm, NORM * norm) => None,
        (None, None) => None,
        (mine, norm) => {
            let words =
                |norm: Option<f64>| norm.map_or("not finite".into(), |norm| format!("{norm:.4}"));
            differ("norm", words(mine), words(norm))
        }
    }
}

/// NaN is near to nothing.
fn near(a: f64, b: f64, bound: f64) -> bool {
    (a - b).abs() <= bound
}

/// How far two runs are apart at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// Life 1 and life 2.
    pub lives: [Losses; 2],
    /// The largest difference of two weights at the end. None: one of the runs has no weights.
    pub weight: Option<f64>,
    /// Whether the weights at the end have the same bits.
    pub weights_equal: bool,
}

/// How far the losses of a life are apart in two runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Steps that both have trained.
    pub steps: usize,
    /// The largest difference.
    #[serde(with = "crate::step::word")]
    pub most: f64,
    /// Whether all have the same bits.
    pub equal: bool,
}

impl Apart {
    /// Whether everything that was compared has the same bits.
    pub fn is_equal(&self) -> bool {
        self.weights_equal && self.lives.iter().all(|losses| losses.equal)
    }

    /// The largest difference of two losses.
    pub fn loss(&self) -> f64 {
        largest(&mut self.lives.iter().map(|losses| losses.most))
    }
}

impl Losses {
    fn of(mine: &[Step], right: &[Step]) -> Losses {
        let loss = |step: &Step| step.trained.map(|trained| trained.loss);
        let pairs: Vec<(f64, f64)> = mine
            .iter()
            .zip(right)
            .filter_map(|(mine, right)| loss(mine).zip(loss(right)))
            .collect();
        Losses {
            steps: pairs.len(),
            most: largest(&mut pairs.iter().map(|(a, b)| (a - b).abs())),
            equal: pairs.iter().all(|(a, b)| a.to_bits() == b.to_bits()),
        }
    }
}

pub fn apart(run: &Run, right: &Run) -> Apart {
    let none = Life::default();
    let [mine, theirs] = [run, right].map(|run| run.life2.as_ref().unwrap_or(&none));
    let weights = |run: &Run| files::read(&run.life2.as_ref()?.folder, "final", KINDS[0]).ok();
    let weights = weights(run).zip(weights(right));
    Apart {
        lives: [
            Losses::of(&run.life1.steps, &right.life1.steps),
            Losses::of(&mine.steps, &theirs.steps),
        ],
        weight: weights.as_ref().map(|(a, b)| largest_of(a, b)),
        weights_equal: weights.is_some_and(|(a, b)| a == b),
    }
}
