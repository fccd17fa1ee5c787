//! The planner beside published runs.

use crate::planner::published::{Run, sources};
use crate::planner::{Errors, PlanKind, compared, errors_of, held_out};
use kit::Checks;
use kit::show::{Screen, table};

/// The largest mean error of a kind of plans, and their largest spread, that the check allows.
const MEAN: f64 = 0.15;
const SPREAD: f64 = 0.20;

/// An error in per cent, with its sign.
fn signed(error: f64) -> String {
    match (100.0 * error).round() {
        0.0 => "0%".to_string(),
        percent => format!("{percent:+.0}%"),
    }
}

/// The check of the lab.
pub fn check_published(checks: &mut Checks) {
    let kinds = PlanKind::ALL.map(|kind| errors_of(Some(kind), ""));
    let all = errors_of(None, "");
    let what = format!("steps of {} published runs", all.runs);
    let result = format!("{}, spread {:.0}%", signed(all.mean), 100.0 * all.spread);
    let worst: Vec<String> = PlanKind::ALL
        .into_iter()
        .zip(&kinds)
        .map(|(kind, errors)| {
            let spread = 100.0 * errors.spread;
            format!(
                "{} {}, spread {spread:.0}%",
                kind.words(),
                signed(errors.mean)
            )
        })
        .collect();
    let otherwise = format!(
        "the planner is off from published runs: {}",
        worst.join("; ")
    );
    let holds = |errors: &Errors| errors.mean.abs() < MEAN && errors.spread < SPREAD;
    checks.check(kinds.iter().all(holds), &what, &result, &otherwise);
}

/// Every published run beside the planner's figure, and the errors by kind of plan.
pub fn published(screen: &Screen) -> String {
    let mut lines = vec!["  Published runs: the source's figure and the planner's.".to_string()];
    for source in sources() {
        let such: Vec<&(Run, f64)> = compared()
            .iter()
            .filter(|(run, _)| run.source == source.id)
            .collect();
        lines.push(String::new());
        lines.push(screen.wrap(&format!("{}: {}", source.id, source.title), 2));
        let rows: Vec<Vec<String>> = such.iter().map(|(run, error)| row(run, *error)).collect();
        let head = [
            "model", "on", "t p d", "again", "source", "planner", "", "step",
        ];
        lines.push(table(screen, &head, &rows));
    }
    lines.push(String::new());
    lines.push(errors_by_kind(screen));
    lines.join("\n")
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
        replicas => format!("{}x{replicas}", s.shard()),
    };
    let zero = match s.zero {
        0 => String::new(),
        zero => format!(" Z{zero}"),
    };
    vec![
        run.name.clone(),
        run.job.devices.to_string(),
        format!("{} {} {data}{zero}", s.tensor, s.pipeline),
        s.recompute.cell(),
        number(figure),
        number(planned),
        run.unit().words().to_string(),
        format!("{:+.1}%", 100.0 * error),
    ]
}

/// Sign, mean and spread of the errors, by kind of plan and of device, and whether the means hold for other runs.
fn errors_by_kind(screen: &Screen) -> String {
    let mut rows = Vec::new();
    for kind in PlanKind::ALL {
        for device in ["a100", "h100", ""] {
            let errors = errors_of(Some(kind), device);
            rows.push(vec![
                kind.words().to_string(),
                if device.is_empty() { "all" } else { device }.to_string(),
                errors.runs.to_string(),
                signed(errors.mean),
                format!("{:.0}%", 100.0 * errors.spread),
            ]);
        }
    }
    let head = ["plans", "devices", "runs", "mean", "spread"];
    let [before, after] = held_out();
    let words = format!(
        "t p d: tensor, pipeline and data ranks, Z: ZeRO. again: what the backward pass computes once more. step: how much longer the \
         planner's step is; negative: it is too fast. Constants were fitted to one layer of one model (Korthikanti and others, \
         table 4) and to products that others measured, not to these runs. Do the means hold for other sources? Those of one half \
         of the sources, taken off the runs of the other half, and the other way round: the mean error of all goes from {} to {}, \
         the spread from {:.0}% to {:.0}%.",
        signed(before.mean),
        signed(after.mean),
        100.0 * before.spread,
        100.0 * after.spread
    );
    format!(
        "{}\n{}",
        table(screen, &head, &rows),
        screen.wrap(&words, 2)
    )
}
