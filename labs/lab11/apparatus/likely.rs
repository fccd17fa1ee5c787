//! What a prediction probably comes to, in words.

use kit::show::{significant, thousands};
use planner::{Accuracy, Made, Plan, Strategy};

/// From and to, as much longer than predicted as published runs of such plans took; nothing if none
/// are known.
fn range(made: Made, strategy: &Strategy, predicted: f64) -> Option<[f64; 2]> {
    let errors = Accuracy::known().expected(made, strategy)?;
    Some(errors.longer.map(|longer| predicted * (1.0 + longer)))
}

/// What a range is, for the screens that show one: in short, and whole.
pub const IN_SHORT: &str = "of held-out published runs, two thirds fell in such a range";
pub const MEANING: &str = "two thirds of the published runs, each predicted without its publication, fell into such a range";

/// Two digits, or all before the point.
fn digits(number: f64) -> String {
    match number {
        n if n >= 10_000.0 => thousands(n as u64),
        n if n >= 100.0 => format!("{n:.0}"),
        n => significant(n, 2),
    }
}

/// Of a step in a benchmark or a training: `8.2..9.9 s`, or the prediction with a question mark.
pub fn seconds(made: Made, plan: &Plan) -> String {
    let predicted = plan.time.total();
    let (unit, name) = match predicted {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "µs"),
    };
    match range(made, &plan.strategy, predicted / unit) {
        Some([least, most]) => format!("{}..{} {name}", digits(least), digits(most)),
        None => format!("{} {name}?", digits(predicted / unit)),
    }
}

/// Of a number that grows with the time of a training's steps: `29..35`, `350..420k`.
pub fn number(strategy: &Strategy, predicted: f64) -> String {
    let (unit, name) = match predicted {
        n if n >= 1e6 => (1e6, "M"),
        n if n >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    match range(Made::Production, strategy, predicted / unit) {
        Some([least, most]) => format!("{}..{}{name}", digits(least), digits(most)),
        None => format!("{}{name}?", digits(predicted / unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::model;
    use planner::{Cluster, Device, TrainingJob};

    #[test]
    fn ranges_have_the_unit_of_their_value() {
        let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
        let job = TrainingJob::new(model("gpt2").unwrap(), cluster, 8);
        let mut plan = job.plan("dp=8".parse().unwrap());
        for (step, unit) in [(20.0, "s"), (0.2, "ms"), (2e-4, "µs"), (2e6, "s")] {
            plan.time = Default::default();
            plan.time.compute = step;
            let words = seconds(Made::Benchmark, &plan);
            assert!(words.contains("..") && words.ends_with(unit), "{words}");
        }
        let days = number(&plan.strategy, 25.9);
        let hours = number(&plan.strategy, 318_153.0);
        let dollars = number(&plan.strategy, 5_954_458.0);
        assert!(!days.ends_with(['k', 'M']), "{days}");
        assert!(hours.ends_with('k') && dollars.ends_with('M'), "{hours}, {dollars}");
        plan.strategy = "dp=8,zero=1,offload=optimizer".parse().unwrap();
        assert!(seconds(Made::Benchmark, &plan).ends_with("s?"));
    }
}
