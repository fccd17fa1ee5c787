//! What a reader predicts before the run.

use crate::apparatus::Found;
use crate::flags::Args;
use anyhow::{Context, Result};
use clap::Parser;
use kit::Question;
use kit::show::{seconds, thousands};
use planner::too_large;
use planner::{Degrees, Strategy};

/// Plans that readers may choose beside the best one.
const OTHERS: [&str; 4] = [
    "dp=512,zero=3,mb=1,recompute=full",
    "dp=8,tp=4,pp=16,mb=1,zero=1,sp",
    "dp=8,tp=64,mb=1,zero=1,sp",
    "dp=512,mb=1,recompute=full",
];

/// Which plan is the fastest.
///
/// # Errors
/// If the job cannot be planned.
pub fn prediction() -> Result<Question> {
    let decide = Args::parse_from(["lab11"]).decide;
    let (_, shape, _) = decide.model.described()?;
    let found = Found::new(decide.job(shape)?);
    let job = &found.job;
    let best = found.search.plans.first().context("a plan fits")?;
    let mut wrong = Vec::new();
    for other in OTHERS {
        let strategy: Strategy = other.parse()?;
        let plan = job.plan(strategy);
        let mistake = match too_large(job, &plan.load) {
            Some(refusal) => format!("It does not fit: {}.", refusal.what),
            None => format!("It fits, and a step takes {}.", seconds(plan.time.total())),
        };
        wrong.push((strategy.words(), mistake));
    }
    let wrong: Vec<(String, &str)> =
        wrong.iter().map(|(words, mistake)| (words.clone(), mistake.as_str())).collect();
    let step = seconds(best.time.total());
    Ok(Question::words(
        ["lab11", "The run"],
        format!(
            "Llama 3 70B trains on {} H100 of 80 GB, eight to a node, with {} sequences of {} tokens per step. NVLink joins the GPUs of a \
             node, and each has a fast card to the others. Which plan is fastest?",
            job.devices,
            job.batch,
            thousands(job.model.block as u64)
        ),
        best.strategy.words(),
        &wrong,
        format!(
            "A step takes {step}, by the planner. Tensor ranks stay inside a node, all ranks have work all the time, and little is computed \
             twice."
        ),
    )
    .shown(step))
}
