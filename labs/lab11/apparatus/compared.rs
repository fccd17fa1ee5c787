//! The planner beside published runs.

use kit::Checks;
use kit::show::{Plot, Screen, Series, explained, significant, table};
use planner::published::{Run, sources};
use planner::{HeldOut, Made, PlanKind, cell, compared, errors_of, held_out};

/// The largest mean error of a kind of plans, and their largest spread, that the check allows.
const MEAN: f64 = 0.15;
const SPREAD: f64 = 0.20;

/// The part of held-out runs that ranges must hold: about two thirds.
const COVERAGE: std::ops::RangeInclusive<f64> = 0.60..=0.75;

/// An error in per cent, with its sign.
fn signed(error: f64) -> String {
    match (100.0 * error).round() {
        0.0 => "0%".to_string(),
        percent => format!("{percent:+.0}%"),
    }
}

/// The checks of the lab: how far the planner is off benchmarks, and whether its ranges hold for
/// runs that they do not know.
pub fn check_published(checks: &mut Checks) {
    let of = |kind| errors_of(Made::Benchmark, kind);
    let all = of(None);
    let what = format!("steps of {} published benchmarks", all.runs);
    let result = format!("{}, spread {:.0}%", signed(all.mean), 100.0 * all.spread);
    let worst = PlanKind::ALL.map(|kind| {
        let errors = of(Some(kind));
        let spread = 100.0 * errors.spread;
        format!("{} {}, spread {spread:.0}%", kind.name(), signed(errors.mean))
    });
    let otherwise = format!("the planner is off from published benchmarks: {}", worst.join("; "));
    let holds = |kind| {
        let errors = of(Some(kind));
        errors.mean.abs() < MEAN && errors.spread < SPREAD
    };
    let near = PlanKind::ALL.into_iter().all(holds);
    checks.check(near, &what, &result, &otherwise);

    let [benchmarks, trainings] = Made::ALL.map(|made| held_out(made, None));
    let says = |found: &HeldOut| format!("{} of {}", found.inside, found.runs);
    let result = format!("{}, {}", says(&benchmarks), says(&trainings));
    let hold = [benchmarks, trainings].iter().all(|found| COVERAGE.contains(&found.coverage()));
    let what = "benchmarks and trainings in held-out ranges";
    checks.check(hold, what, &result, "the ranges should hold two thirds of them");
}

/// Every published run beside the planner's figure, and the errors by kind of plan.
pub fn published(screen: &Screen) -> String {
    let mut lines = vec!["  Published runs: the source's figure and the planner's.".to_string()];
    for source in sources() {
        let such: Vec<&(Run, f64)> =
            compared().iter().filter(|(run, _)| run.source == source.id).collect();
        lines.push(String::new());
        lines.push(screen.wrap(&format!("{}: {}", source.id, source.title), 2));
        let head = ["model", "on", "t p d", "again", "source", "planner", "", "step"];
        lines.push(table(screen, &head, such.iter().map(|(run, error)| row(run, *error))));
    }
    lines.push(String::new());
    lines.push(errors_by_kind(screen));
    lines.join("\n")
}

/// The seconds of each published step, and the planner's.
pub fn scatter() -> Plot<'static> {
    let seconds = |run: &Run, error: f64| {
        let planned = run.job.time(&run.planned()).total();
        (planned / (1.0 + error), planned)
    };
    let all: Vec<f64> = compared().iter().map(|(run, error)| seconds(run, *error).0).collect();
    let ends = [
        all.iter().copied().fold(f64::INFINITY, f64::min),
        all.iter().copied().fold(0.0, f64::max),
    ];
    let mut plot = Plot::new("a step in seconds, planned", "as published")
        .log_x()
        .log_y()
        .labels(|x| significant(x, 2), |y| significant(y, 2))
        .series(Series::line("equal", ends.map(|end| (end, end))));
    for kind in PlanKind::ALL {
        let such = compared().iter().filter(|(run, _)| PlanKind::of(&run.strategy) == kind);
        plot =
            plot.series(Series::dots(kind.name(), such.map(|(run, error)| seconds(run, *error))));
    }
    plot
}

fn row(run: &Run, error: f64) -> Vec<String> {
    let (planned, figure) = run.compared();
    let s = run.planned();
    let number = |value: f64| match value {
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.0}"),
    };
    let data = match s.replicas {
        1 => s.data.to_string(),
        replicas => format!("{}x{replicas}", s.shard_ranks()),
    };
    let zero = match s.zero.number() {
        0 => String::new(),
        zero => format!(" Z{zero}"),
    };
    vec![
        run.name.clone(),
        run.job.devices.to_string(),
        format!("{} {} {data}{zero}", s.tensor, s.pipeline),
        cell(s.recompute),
        number(figure),
        number(planned),
        run.unit().words().to_string(),
        format!("{:+.1}%", 100.0 * error),
    ]
}

/// The errors by kind of plan, of benchmarks and of trainings, and whether ranges hold for
/// publications that they do not know.
fn errors_by_kind(screen: &Screen) -> String {
    let mut rows = Vec::new();
    for made in Made::ALL {
        for kind in PlanKind::ALL.map(Some).into_iter().chain([None]) {
            let errors = errors_of(made, kind);
            let out = held_out(made, kind);
            rows.push(vec![
                kind.map_or("all", PlanKind::name).to_string(),
                made.name().to_string(),
                errors.runs.to_string(),
                signed(errors.mean),
                format!("{:.0}%", 100.0 * errors.median),
                format!("{} of {}", out.inside, out.runs),
                format!("{:.0}%", 100.0 * out.width),
            ]);
        }
    }
    let head = ["plans", "of", "runs", "mean", "median", "held out", "width"];
    let words = "t p d: tensor, pipeline and data ranks, Z: ZeRO. again: what the backward pass computes once more. step: how much longer the \
         planner's step is; negative: it is too fast. Constants were fitted to one layer of one model (Korthikanti and others, \
         table 4) and to products that others measured, not to these runs. median: how far off, without the sign. held out: runs \
         inside the range that the other publications give, of those of such plans from 10 runs and 3 publications on, and else of all; \
         width: the range's in the median, as a part of the prediction.";
    explained(screen, &head, &rows, words)
}
