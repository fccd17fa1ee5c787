//! How far predictions are from what was measured: signed, by kind of plan.
//!
//! An error is a prediction's step over the published one, minus 1: negative where the planner is too fast. Plans of one kind err
//! alike, and devices differ. So the mean error of such runs says what to expect of the next one, and their spread how sure
//! that is. Of two plans for the same job the errors that they share cancel: what counts then is how far two errors of one
//! source are apart.

use super::published::{Run, runs};
use crate::strategy::{Offloaded, Plan, Strategy};
use std::sync::OnceLock;

/// Kinds of plans that err alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanKind {
    /// Copies of the whole model: DDP, ZeRO-1 and 2.
    Copies,
    /// Gathered layers: ZeRO-3 and HSDP.
    Gathered,
    /// Divided among tensor ranks or stages.
    Divided,
}

impl PlanKind {
    pub const ALL: [PlanKind; 3] = [PlanKind::Copies, PlanKind::Gathered, PlanKind::Divided];

    pub fn of(strategy: &Strategy) -> PlanKind {
        match strategy {
            s if s.zero == 3 && s.pipeline == 1 => PlanKind::Gathered,
            s if s.tensor * s.pipeline == 1 => PlanKind::Copies,
            _ => PlanKind::Divided,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            PlanKind::Copies => "DDP, ZeRO-1, ZeRO-2",
            PlanKind::Gathered => "ZeRO-3, HSDP",
            PlanKind::Divided => "TP, PP",
        }
    }
}

/// The errors of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Errors {
    pub runs: usize,
    /// Negative: predictions are too fast.
    pub mean: f64,
    /// The standard deviation around the mean.
    pub spread: f64,
}

impl Errors {
    pub fn of(errors: &[f64]) -> Errors {
        let n = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
        Errors {
            runs: errors.len(),
            mean,
            spread: (squares / (n - 1.0).max(1.0)).sqrt(),
        }
    }

    /// How much longer a step probably takes than predicted: from and to, as parts of the prediction.
    pub fn longer(&self) -> [f64; 2] {
        [self.mean + self.spread, self.mean - self.spread].map(|error| 1.0 / (1.0 + error) - 1.0)
    }
}

/// What published runs say about predictions for one device.
#[derive(Clone, Debug)]
pub struct Accuracy {
    /// In the order of [`PlanKind::ALL`].
    kinds: [Errors; 3],
    /// The spread between two runs of one source and kind.
    alike: [f64; 3],
}

/// Runs on the same kind of device from which on they count alone.
const ENOUGH: usize = 6;

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

/// The kind of a device: `a100` of both sizes.
fn generation(device: &str) -> &str {
    device.split('-').next().unwrap_or(device)
}

impl Accuracy {
    /// What to expect on a device, from runs on devices of its kind where there are enough, and else from all.
    pub fn on(device: &str) -> Accuracy {
        Accuracy::from(device, |_| true)
    }

    /// The same, from some of the runs.
    fn from(device: &str, among: impl Fn(&Run) -> bool) -> Accuracy {
        let runs: Vec<&(Run, f64)> = compared().iter().filter(|(run, _)| among(run)).collect();
        let of = |kind: PlanKind| {
            let such = runs
                .iter()
                .filter(move |(run, _)| PlanKind::of(&run.strategy) == kind);
            such.copied().collect::<Vec<_>>()
        };
        let kinds = PlanKind::ALL.map(|kind| {
            let all = of(kind);
            let near = all.iter().filter(|(run, _)| run.is_on(generation(device)));
            let near: Vec<f64> = near.map(|(_, error)| *error).collect();
            if near.len() >= ENOUGH {
                return Errors::of(&near);
            }
            let all: Vec<f64> = all.iter().map(|(_, error)| *error).collect();
            Errors::of(&all)
        });
        let alike = PlanKind::ALL.map(|kind| {
            let mut squares = Vec::new();
            let all = of(kind);
            for (i, (one, error)) in all.iter().enumerate() {
                let same = all[..i]
                    .iter()
                    .filter(|(other, _)| one.source == other.source);
                squares.extend(same.map(|(_, second)| (error - second).powi(2)));
            }
            (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
        });
        Accuracy { kinds, alike }
    }

    fn kind(&self, strategy: &Strategy) -> &Errors {
        &self.kinds[PlanKind::of(strategy) as usize]
    }

    /// What to expect of a strategy's prediction. Nothing is known of those that offload.
    pub fn expected(&self, strategy: &Strategy) -> Option<&Errors> {
        (strategy.offload == Offloaded::None).then(|| self.kind(strategy))
    }

    /// The spread of the difference between the predictions of two strategies for one job.
    fn apart(&self, one: &Strategy, other: &Strategy) -> f64 {
        let [a, b] = [one, other].map(|strategy| PlanKind::of(strategy) as usize);
        if a == b {
            return self.alike[a];
        }
        self.kinds[a].spread.hypot(self.kinds[b].spread)
    }

    /// Seconds of a step, as much longer than predicted as those of such plans are in the mean.
    pub fn likely(&self, plan: &Plan) -> f64 {
        plan.time.total() / (1.0 + self.kind(&plan.strategy).mean)
    }

    /// Whether a plan may be as fast as another: its likely step is longer than the other's by less than the spread of their difference.
    pub fn keeps_up(&self, one: &Plan, other: &Plan) -> bool {
        let longer = (self.likely(one) / self.likely(other)).ln();
        longer < self.apart(&one.strategy, &other.strategy)
    }

    /// Whether a plan may be the fastest of all, of which the first is the likely one. Where nothing is known of errors, that one alone.
    pub fn may_win(&self, plan: &Plan, all: &[&Plan]) -> bool {
        if self.expected(&plan.strategy).is_none() {
            return all
                .first()
                .is_some_and(|first| first.strategy == plan.strategy);
        }
        all.iter().all(|other| self.keeps_up(plan, other))
    }
}

/// The errors of runs of a kind of plans, or of all, on a generation of devices, or on all.
pub fn errors_of(kind: Option<PlanKind>, generation: &str) -> Errors {
    let such = compared().iter().filter(|(run, _)| {
        kind.is_none_or(|kind| PlanKind::of(&run.strategy) == kind) && run.is_on(generation)
    });
    let errors: Vec<f64> = such.map(|(_, error)| *error).collect();
    Errors::of(&errors)
}

/// Whether mean errors hold for other sources: those of one half of the sources, as [`Accuracy::on`] takes them, off the runs of the
/// other half, and the other way round. The errors of all runs, before and after.
pub fn held_out() -> [Errors; 2] {
    let mut sources: Vec<&str> = compared()
        .iter()
        .map(|(run, _)| run.source.as_str())
        .collect();
    sources.dedup();
    let half = |run: &Run| {
        let place = sources.iter().position(|&source| source == run.source);
        place.unwrap_or(0) % 2
    };
    let mut before = Vec::new();
    let mut after = Vec::new();
    for (run, error) in compared() {
        let others = |other: &Run| half(other) != half(run);
        let accuracy = Accuracy::from(&run.job.cluster.device.name, others);
        before.push(*error);
        after.push((1.0 + error) / (1.0 + accuracy.kind(&run.strategy).mean) - 1.0);
    }
    [before, after].map(|errors| Errors::of(&errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_sign_and_a_spread() {
        let errors = Errors::of(&[-0.1, -0.2, -0.3]);
        assert!((errors.mean + 0.2).abs() < 1e-12 && (errors.spread - 0.1).abs() < 1e-12);
        // Too fast by 10 to 30%: a step takes 1/0.9 to 1/0.7 of the prediction.
        let [least, most] = errors.longer();
        assert!((least - 0.111).abs() < 1e-3 && (most - 0.429).abs() < 1e-3);
        assert_eq!(Errors::of(&[]).runs, 0);
        assert_eq!(Errors::of(&[0.5]).spread, 0.0);
    }

    /// The bias is known: taken off runs of other sources, little is left of it. Their spread stays.
    #[test]
    fn means_of_one_half_hold_for_the_other() {
        let [before, after] = held_out();
        assert!(before.runs == after.runs && before.runs > 40, "{before:?}");
        assert!(
            before.mean < -0.05 && after.mean.abs() < 0.5 * before.mean.abs(),
            "{before:?}, {after:?}"
        );
        assert!(after.spread < 1.4 * before.spread, "{before:?}, {after:?}");
    }

    #[test]
    fn like_plans_are_told_apart_sooner() {
        use crate::planner::{model, search};
        use crate::strategy::{Cluster, Device, TrainingJob};
        let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
        let job = TrainingJob::new(model("llama-3-70b").unwrap(), cluster, 512);
        let found = search(&job);
        let accuracy = Accuracy::on("h100-80g");
        let best = &found.plans[0];
        let slowest = found.plans.last().unwrap();
        assert!(accuracy.keeps_up(best, best) && accuracy.keeps_up(best, slowest));
        assert!(!accuracy.keeps_up(slowest, best));
        let all = found.by_degrees();
        assert!(accuracy.may_win(all[0], &all));
        assert!(!accuracy.may_win(slowest, &all));
        // ZeRO-3 errs more than TP, and more on H100 than on A100.
        let of = |device, plan: &str| {
            let strategy = plan.parse().unwrap();
            Accuracy::on(device).expected(&strategy).unwrap().mean
        };
        assert!(of("h100-80g", "dp=8,zero=3") < of("h100-80g", "tp=8"));
        assert!(of("h100-80g", "dp=8,zero=3") < of("a100-80g", "dp=8,zero=3"));
    }
}
