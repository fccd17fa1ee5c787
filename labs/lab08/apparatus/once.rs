//! One training, with its log, its tokens and its checks.

use super::iterations::{Interval, LoggedRun, drawn};
use super::training::{Run, Training, Way};
use super::{Job, Metrics, counts};
use crate::flags::{Break, Policy};
use crate::skipping::{Counters, Outcome, Ranges, caught};
use anyhow::Result;
use kit::Checks;
use kit::show::{Plot, Series, folded};
use shardlab::comm::Comm;
use std::time::Instant;

/// Trains once as the flags say. Returns what the checks found wrong. All ranks call it.
pub fn once(job: &Job, comm: &Comm) -> Result<Vec<String>> {
    let config = &job.config;
    let screen = &job.screen;
    let flags = &job.flags;
    let mut way = Way::of(job);
    if flags.broken == Some(Break::OneRank) && comm.rank() + 1 < comm.size() {
        way.ranges = Ranges::default();
    }
    let mut metrics = Metrics::create(job, comm)?;
    let mut training = Training::begin(job, comm, &way)?.traced(job)?;
    let mut interval = Interval::default();
    let speaks = comm.rank() == 0;
    let mut apart = false;
    while training.trainer.counters.global_steps < config.steps {
        let start = Instant::now();
        let step = training.step()?.clone();
        metrics.write(&step)?;
        interval.add(&step.outcome, start.elapsed().as_secs_f64());
        if flags.broken.is_some() && step.outcome.loss().is_some() && !apart {
            apart = tell_apart(job, comm, step.step)?;
        }
        if !speaks {
            continue;
        }
        match step.outcome {
            Outcome::InRange => screen.say(caught(step.step)),
            Outcome::PastBound { loss, .. } => screen.say(format!(
                "step {}: the loss of a rank is above its limit (mean {loss:.3}), skipping",
                step.step
            )),
            _ => {}
        }
        if flags.print_tokens {
            let batches = training.drawn.borrow();
            for (micro, batch) in batches.iter().enumerate() {
                screen.say(drawn(step.step, micro, batches.len(), batch, &job.corpus.vocabulary));
            }
        }
        if flags.log {
            say_line(job, &mut interval, &training.trainer.counters);
        }
    }
    let run = training.finish(job)?;
    let counts = counts(job, comm, &run, job.ranges.after())?;
    if !speaks {
        return Ok(Vec::new());
    }
    if !flags.log && !flags.print_tokens {
        let points = run.losses().into_iter().map(|(step, loss)| (step as f64, loss));
        let plot = Plot::new("loss", "step").series(Series::line("train", points));
        screen.say(format!("\n{}\n", plot.height(8).render(screen)));
    }
    let mut checks = Checks::new(screen);
    checks.one_model(&run.models);
    counts.check(&mut checks, job, !job.ranges.is_empty() || way.policy == Policy::Auto);
    Ok(checks.failed())
}

/// Shows a run without a spike, which needs no second one. Returns what the checks found wrong.
pub fn report_no_spike(job: &Job, comm: &Comm, run: &Run) -> Result<Vec<String>> {
    let counts = counts(job, comm, run, 0)?;
    if comm.rank() > 0 {
        return Ok(Vec::new());
    }
    let points = run.losses().into_iter().map(|(step, loss)| (step as f64, loss));
    let plot = Plot::new("loss", "step").series(Series::line("train", points));
    job.screen.say(format!("{}\n", plot.height(8).render(&job.screen)));
    let mut checks = Checks::new(&job.screen);
    let bad = !job.poison.steps(&job.config).is_empty();
    if bad && job.corpus.own {
        let why =
            "no spike was found: random text is as hard as this text, or was for so few steps";
        checks.note(why);
    } else {
        checks.check(!bad, "no spike was found", "", "the bad batches made no spike");
    }
    counts.check(&mut checks, job, false);
    Ok(checks.failed())
}

/// Prints the log line of the interval that ends with the last step.
pub(super) fn say_line(job: &Job, interval: &mut Interval, counters: &Counters) {
    let lr = job.config.schedule.at(counters.schedule.saturating_sub(1));
    let line = interval.line(&LoggedRun::of(&job.config), counters, lr, 1.0);
    job.screen.say(folded(&line, job.screen.width));
}

/// Compares the ranks' steps, after a step in which they have averaged their gradients. Returns
/// whether they are different, and says so on rank 0. All ranks call it.
fn tell_apart(job: &Job, comm: &Comm, step: usize) -> Result<bool> {
    let mut steps = vec![0; comm.size()];
    comm.all_gather(&[step as u64], &mut steps)?;
    let apart = steps.iter().any(|&other| other != steps[0]);
    if apart && comm.rank() == 0 {
        let of_ranks: Vec<String> = steps.iter().map(u64::to_string).collect();
        let text = format!(
            "the ranks averaged gradients of steps {}, and no call failed",
            of_ranks.join(" and ")
        );
        job.screen.say(job.screen.row("symptom", &text));
    }
    Ok(apart)
}
