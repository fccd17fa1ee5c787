//! One plan in detail: what is wrong with it, or what it costs.

use super::likely;
use super::report::{ending, memory, time, usable};
use kit::show::{Screen, bytes_decimal, percent, table, thousands};
use planner::{Accuracy, AxisTraffic, Degrees, Made, Strategy, TrainingJob, explained, too_large};
use shardlab::error::BadInput;

/// The cost of a plan, on a screen; or why the job cannot use it.
pub fn detail(
    screen: &Screen,
    job: &TrainingJob,
    strategy: &Strategy,
    all: f64,
) -> Result<String, BadInput> {
    if let Some(refusal) = explained(job, strategy) {
        return Err(refusal);
    }
    let plan = job.plan(*strategy);
    let fits = match too_large(job, &plan.load) {
        None => format!("fits: {} of {}", bytes_decimal(plan.load.total()), usable(job)),
        Some(refusal) => format!("does not fit: {}; {}", refusal.what, refusal.help),
    };
    let cost = job.cost(plan.time.total(), all);
    let m = strategy.micro_batches_of(job.batch);
    let words = format!("{}, {m} micro-batches per replica", strategy.words());
    let speed = format!(
        "{} a step predicted, {} tokens/s, MFU {}",
        screen.seconds(plan.time.total()),
        thousands(cost.tokens_per_second as u64),
        percent(cost.mfu)
    );
    let known = Made::ALL.map(|made| {
        let errors = Accuracy::known().expected(made, strategy)?;
        let seconds = likely::seconds(made, &plan);
        Some(format!("{seconds} by {} {}", errors.runs, made.name()))
    });
    let probably = match known {
        [Some(benchmarks), Some(trainings)] => {
            format!("{benchmarks}, {trainings}: {}", likely::MEANING)
        }
        _ if strategy.context > 1 => {
            "not known: no published run of the list shares sequences".to_string()
        }
        _ => "not known: no published run offloads".to_string(),
    };
    let lines = [
        screen.row("plan", &words),
        screen.row("--plan", &strategy.to_string()),
        screen.row("memory", &fits),
        screen.row("speed", &speed),
        screen.row("probably", &probably),
        String::new(),
        memory(screen, job, &plan).replace("The best plan's bytes", "Bytes"),
        String::new(),
        axes(screen, job, strategy),
        String::new(),
        time(screen, &plan),
        ending(screen, job, &plan, all),
    ];
    Ok(lines.join("\n"))
}

/// The bytes of each axis, its links, and its time if nothing hides it.
fn axes(screen: &Screen, job: &TrainingJob, strategy: &Strategy) -> String {
    let row = |traffic: &AxisTraffic| {
        let ranks = match traffic.axis {
            "tensor" => strategy.tensor,
            "context" => strategy.context,
            "pipeline" => strategy.pipeline,
            _ => strategy.gradient_ranks(),
        };
        let place = match (ranks, traffic.between_nodes) {
            (1, _) => "-",
            (_, false) => "within a node",
            (_, true) => "between nodes",
        };
        let seconds = screen.seconds(traffic.seconds);
        vec![
            traffic.axis.to_string(),
            ranks.to_string(),
            place.to_string(),
            bytes_decimal(traffic.bytes),
            seconds,
        ]
    };
    let mut rows: Vec<Vec<String>> = job.traffic(strategy).iter().map(row).collect();
    if strategy.context > 1 {
        rows.push(row(&job.context_traffic(strategy)));
    }
    if strategy.replicas > 1 {
        // Of the data ranks, those that divide the model, and the groups of them.
        rows[2][1] = strategy.shard_ranks().to_string();
        let mut groups = row(&job.replica_traffic(strategy));
        groups[0] = "replicas".into();
        groups[1] = strategy.replicas.to_string();
        rows.push(groups);
    }
    let head = ["axis", "ranks", "links", "bytes per rank", "seconds if nothing hides them"];
    table(screen, &head, &rows)
}
