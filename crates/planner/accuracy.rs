//! How far predictions are from what was measured: signed, by kind of plan, and apart for
//! benchmarks and for trainings.
//!
//! An error is a prediction's step over the published one, minus 1: negative where the planner is
//! too fast. Plans of one kind err alike, and a training errs more than a benchmark: its data, its
//! logs and its slow days are not in the formulas. A range is not a mean and a spread: it is cut
//! from the runs themselves, and [`held_out`] counts how many runs fall into the range that
//! the *other* publications give. Devices are not told apart: the runs on H100 are of few, and held
//! out it does not help.

use crate::published::{Made, Run, runs};
use crate::{Offloaded, Plan, Strategy};
use shapes::named::named;
use std::sync::OnceLock;

named! {
    /// Kinds of plans that err alike.
    pub enum PlanKind {
        /// Copies of the whole model.
        Copies = "DDP, ZeRO-1, ZeRO-2",
        /// Gathered layers.
        Gathered = "ZeRO-3, HSDP",
        /// Divided among tensor ranks or stages.
        Divided = "TP, PP",
    }
}

impl PlanKind {
    pub fn of(strategy: &Strategy) -> PlanKind {
        match strategy {
            s if s.zero.number() == 3 && s.pipeline == 1 => PlanKind::Gathered,
            s if s.tensor * s.pipeline == 1 => PlanKind::Copies,
            _ => PlanKind::Divided,
        }
    }
}

/// The part of runs that a range leaves out at each end. Of runs of a publication that is not in
/// the list, more fall outside: with a tenth at each end two thirds are inside, which [`held_out`]
/// counts.
const LEFT_OUT: f64 = 0.1;

/// A kind of plans has a range of its own from this many runs on, of this many publications. Else
/// all runs count.
const ENOUGH: usize = 10;
const PUBLICATIONS: usize = 3;

/// The errors of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Errors {
    pub runs: usize,
    /// Negative: predictions are too fast.
    pub mean: f64,
    /// The standard deviation around the mean.
    pub spread: f64,
    /// The median, however far off, without its sign.
    pub median: f64,
    /// How much longer a step takes than predicted: from and to, as parts of the prediction, for
    /// the runs in the middle.
    pub longer: [f64; 2],
}

/// The value below which a part of all lies: each value is in the middle of its own share (Hazen),
/// and between two it is linear.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = (part * sorted.len() as f64 - 0.5).clamp(0.0, last as f64);
    let below = (place as usize).min(last);
    let above = (below + 1).min(last);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// How much longer a step took than predicted, as a part of the prediction.
fn longer(error: f64) -> f64 {
    1.0 / (1.0 + error) - 1.0
}

impl Errors {
    pub fn of(errors: &[f64]) -> Errors {
        let n = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
        let took = sorted(errors.iter().map(|&error| longer(error)));
        Errors {
            runs: errors.len(),
            mean,
            spread: (squares / (n - 1.0).max(1.0)).sqrt(),
            median: quantile(&sorted(errors.iter().map(|error| error.abs())), 0.5),
            longer: [LEFT_OUT, 1.0 - LEFT_OUT].map(|part| quantile(&took, part)),
        }
    }
}

/// What published runs say about predictions.
#[derive(Clone, Debug)]
pub struct Accuracy {
    /// Of benchmarks and of trainings, in the order of [`Made::ALL`]; each in the order of
    /// [`PlanKind::ALL`].
    kinds: [[Errors; 3]; 2],
    /// The spread between two runs of one source and kind.
    alike: [f64; 3],
}

/// All published runs with their errors, computed once.
pub fn compared() -> &'static [(Run, f64)] {
    static COMPARED: OnceLock<Vec<(Run, f64)>> = OnceLock::new();
    COMPARED.get_or_init(|| {
        let with_error = |run: Run| {
            let error = run.error();
            (run, error)
        };
        runs().into_iter().map(with_error).collect()
    })
}

impl Accuracy {
    /// What all published runs say, computed once.
    pub fn known() -> &'static Accuracy {
        static KNOWN: OnceLock<Accuracy> = OnceLock::new();
        KNOWN.get_or_init(|| Accuracy::from(|_| true))
    }

    /// What some of the runs say.
    fn from(among: impl Fn(&Run) -> bool) -> Accuracy {
        let runs: Vec<&(Run, f64)> = compared().iter().filter(|(run, _)| among(run)).collect();
        let kinds = Made::ALL.map(|made| {
            let all: Vec<&(Run, f64)> =
                runs.iter().copied().filter(|(run, _)| run.made == made).collect();
            PlanKind::ALL.map(|kind| errors_among(&all, kind))
        });
        let alike = PlanKind::ALL.map(|kind| {
            let such = of_kind(&runs, kind);
            let mut squares = Vec::new();
            for (i, (one, error)) in such.iter().enumerate() {
                let same = such[..i].iter().filter(|(other, _)| one.source == other.source);
                squares.extend(same.map(|(_, second)| (error - second).powi(2)));
            }
            (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
        });
        Accuracy { kinds, alike }
    }

    /// The errors of benchmarks, which compare plans under like conditions.
    fn kind(&self, strategy: &Strategy) -> &Errors {
        &self.kinds[Made::Benchmark as usize][PlanKind::of(strategy) as usize]
    }

    /// What to expect of a strategy's prediction, in a benchmark or in a training. Nothing is known
    /// of those that offload, or share sequences.
    pub fn expected(&self, made: Made, strategy: &Strategy) -> Option<&Errors> {
        let errors = &self.kinds[made as usize][PlanKind::of(strategy) as usize];
        (strategy.offload == Offloaded::None && strategy.context == 1).then_some(errors)
    }

    /// The spread of the difference between the predictions of two strategies for one job.
    fn apart(&self, one: &Strategy, other: &Strategy) -> f64 {
        let [a, b] = [one, other].map(|strategy| PlanKind::of(strategy) as usize);
        if a == b {
            return self.alike[a];
        }
        self.kind(one).spread.hypot(self.kind(other).spread)
    }

    /// Seconds of a step, as much longer than predicted as benchmarks of such plans do in the mean.
    pub fn likely(&self, plan: &Plan) -> f64 {
        plan.time.total() / (1.0 + self.kind(&plan.strategy).mean)
    }

    /// Whether a plan may be as fast as another: its likely step is longer than the other's by less
    /// than the spread of their difference.
    pub fn keeps_up(&self, one: &Plan, other: &Plan) -> bool {
        let longer = (self.likely(one) / self.likely(other)).ln();
        longer < self.apart(&one.strategy, &other.strategy)
    }

    /// Whether a plan may be the fastest of all, of which the first is the likely one. Where
    /// nothing is known of errors, that one alone.
    pub fn may_win(&self, plan: &Plan, all: &[&Plan]) -> bool {
        let unknown = |plan: &Plan| self.expected(Made::Benchmark, &plan.strategy).is_none();
        if unknown(plan) {
            return all.first().is_some_and(|first| first.strategy == plan.strategy);
        }
        all.iter().all(|other| self.keeps_up(plan, other))
    }
}

/// The runs of a kind of plans.
fn of_kind<'a>(runs: &[&'a (Run, f64)], kind: PlanKind) -> Vec<&'a (Run, f64)> {
    runs.iter()
        .copied()
        .filter(|(run, _)| PlanKind::of(&run.strategy) == kind)
        .collect()
}

/// The errors of a kind of plans, or of all where its runs or their publications are too few.
fn errors_among(all: &[&(Run, f64)], kind: PlanKind) -> Errors {
    let mut such = of_kind(all, kind);
    let mut publications: Vec<&str> =
        such.iter().map(|(run, _)| run.publication.as_str()).collect();
    publications.sort_unstable();
    publications.dedup();
    if such.len() < ENOUGH || publications.len() < PUBLICATIONS {
        such = all.to_vec();
    }
    let errors: Vec<f64> = such.iter().map(|(_, error)| *error).collect();
    Errors::of(&errors)
}

/// Benchmarks or trainings, of one kind of plans or of all.
fn such(made: Made, kind: Option<PlanKind>) -> impl Iterator<Item = &'static (Run, f64)> {
    compared().iter().filter(move |(run, _)| {
        run.made == made && kind.is_none_or(|kind| PlanKind::of(&run.strategy) == kind)
    })
}

/// The errors of benchmarks or of trainings, of one kind of plans or of all.
pub fn errors_of(made: Made, kind: Option<PlanKind>) -> Errors {
    let errors: Vec<f64> = such(made, kind).map(|(_, error)| *error).collect();
    Errors::of(&errors)
}

/// How well the ranges hold for runs of publications that they do not know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeldOut {
    pub runs: usize,
    /// Runs that took as long as the range of the other publications says.
    pub inside: usize,
    /// The median width of these ranges, as a part of the prediction.
    pub width: f64,
}

impl HeldOut {
    /// The part of the runs that is inside.
    pub fn coverage(&self) -> f64 {
        self.inside as f64 / self.runs.max(1) as f64
    }
}

/// Predicts each run's range without any run of its publication.
pub fn held_out(made: Made, kind: Option<PlanKind>) -> HeldOut {
    let mut found = HeldOut::default();
    let mut widths = Vec::new();
    for (run, error) in such(made, kind) {
        let others = Accuracy::from(|other| other.publication != run.publication);
        let errors = &others.kinds[made as usize][PlanKind::of(&run.strategy) as usize];
        let [least, most] = errors.longer;
        found.runs += 1;
        found.inside += usize::from((least..=most).contains(&longer(*error)));
        widths.push(most - least);
    }
    found.width = quantile(&sorted(widths.into_iter()), 0.5);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_sign_and_a_range() {
        let errors = Errors::of(&[-0.1, -0.2, -0.3]);
        assert!((errors.mean + 0.2).abs() < 1e-12 && (errors.spread - 0.1).abs() < 1e-12);
        assert!((errors.median - 0.2).abs() < 1e-12);
        // Steps took 1/0.9, 1/0.8 and 1/0.7 of the prediction. A tenth is within the share of the
        // first.
        let [least, most] = errors.longer;
        assert!((least - (1.0 / 0.9 - 1.0)).abs() < 1e-9, "{least}");
        assert!((most - (1.0 / 0.7 - 1.0)).abs() < 1e-9, "{most}");
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let parts = [0.1, 0.5, 0.9].map(|part| quantile(&ten, part));
        assert_eq!(parts, [1.5, 5.5, 9.5]);
        assert_eq!(Errors::of(&[]).runs, 0);
    }

    /// Two thirds of held-out runs fall into the printed range, and not because it is wide.
    #[test]
    fn ranges_hold_for_publications_that_they_do_not_know() {
        for made in Made::ALL {
            let found = held_out(made, None);
            assert!((0.60..=0.75).contains(&found.coverage()), "{made:?}: {found:?}");
            let widest = if made == Made::Benchmark { 0.25 } else { 0.5 };
            assert!(found.width < widest, "{made:?}: {found:?}");
        }
        // A training takes longer than a benchmark of the same prediction.
        let [benchmarks, trainings] = Made::ALL.map(|made| errors_of(made, None));
        assert!(trainings.longer[1] > benchmarks.longer[1] + 0.1);
        assert!(benchmarks.median < 0.08, "{benchmarks:?}");
    }

    #[test]
    fn like_plans_are_told_apart_sooner() {
        use crate::{Cluster, Device, TrainingJob};
        use crate::{model, search};
        let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
        let job = TrainingJob::new(model("llama-3-70b").unwrap(), cluster, 512);
        let found = search(&job);
        let accuracy = Accuracy::known();
        let best = &found.plans[0];
        let slowest = found.plans.last().unwrap();
        assert!(accuracy.keeps_up(best, best) && accuracy.keeps_up(best, slowest));
        assert!(!accuracy.keeps_up(slowest, best));
        let all = found.by_degrees();
        assert!(accuracy.may_win(all[0], &all));
        assert!(!accuracy.may_win(slowest, &all));
        // ZeRO-3 errs more than TP, and trainings more than benchmarks.
        let of = |made, plan: &str| accuracy.expected(made, &plan.parse().unwrap()).unwrap().mean;
        assert!(of(Made::Benchmark, "dp=8,zero=3") < of(Made::Benchmark, "tp=8"));
        assert!(of(Made::Production, "tp=8") < of(Made::Benchmark, "tp=8"));
    }
}
