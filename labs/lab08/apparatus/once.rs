//! One training, with its log, its tokens and its checks.

use super::iterations::{Interval, LoggedRun, drawn, mean_speed};
use super::training::{Run, Training, Way};
use super::{Job, Metrics, counts};
use crate::flags::{Break, Policy};
use crate::skipping::{Outcome, Ranges, SkippingTrainer, caught};
use anyhow::Result;
use kit::Checks;
use kit::show::{folded, significant, thousands};
use shardlab::comm::Comm;
use std::time::Instant;

/// Trains once as the flags say. All ranks call it.
pub fn once(job: &Job, comm: &Comm, checks: &mut Checks) -> Result<()> {
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
    let mut lines = Vec::new();
    let mut trained = (0, 0.0); // steps, and their seconds
    while training.trainer.counters.global_steps < config.steps {
        let start = Instant::now();
        let step = training.step()?.clone();
        metrics.write(&step)?;
        let seconds = start.elapsed().as_secs_f64();
        interval.add(&step.outcome, seconds);
        if step.outcome.loss().is_some() {
            trained = (trained.0 + 1, trained.1 + seconds);
        } else if flags.log_skipped {
            interval.count_skipped_time(seconds);
        }
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
        if flags.prints_log() {
            lines.push(say_line(job, &mut interval, &training.trainer));
        }
    }
    let run = training.finish(job)?;
    let counts = counts(job, comm, &run, job.ranges.after())?;
    if !speaks {
        return Ok(());
    }
    if !flags.prints_log() && !flags.print_tokens {
        screen.say(format!("\n{}\n", run.curve(screen)));
    }
    checks.one_model(&run.models);
    counts.check(checks, job, !job.ranges.is_empty() || way.policy == Policy::Auto);
    if flags.log_skipped {
        let run = LoggedRun::of(config);
        let tokens = (trained.0 * run.samples * run.block) as f64 / run.ranks as f64;
        check_speed(checks, &lines, tokens / trained.1);
    }
    Ok(())
}

/// Checks that the lines with a loss give the run's own speed, and says what a mean over all lines
/// would give.
fn check_speed(checks: &mut Checks, lines: &[String], expected: f64) {
    let Some(speed) = mean_speed(lines.iter().map(String::as_str)) else {
        checks.note("no step trained: the log has no speed");
        return;
    };
    let found = format!(
        "{} tokens/s per rank; a mean over all lines: {} times as much",
        thousands(speed.trained as u64),
        significant(speed.of_all_lines / speed.trained, 2)
    );
    checks.check(
        (speed.trained / expected - 1.0).abs() < 0.01,
        "lines with a loss give the speed",
        &found,
        &format!("the trained steps computed {} tokens/s per rank", thousands(expected as u64)),
    );
}

/// Shows a run without a spike, which needs no second one.
pub fn report_no_spike(job: &Job, comm: &Comm, run: &Run, checks: &mut Checks) -> Result<()> {
    let counts = counts(job, comm, run, 0)?;
    if comm.rank() > 0 {
        return Ok(());
    }
    job.screen.say(format!("{}\n", run.curve(&job.screen)));
    let bad = !job.poison.steps(&job.config).is_empty();
    if bad && job.corpus.own {
        checks.note(
            "no spike was found: random text is as hard as this text, or was for so few steps",
        );
    } else {
        checks.check(!bad, "no spike was found", "", "the bad batches made no spike");
    }
    counts.check(checks, job, false);
    Ok(())
}

/// Prints the log line of the interval that ends with the last step. Returns it.
pub(super) fn say_line(job: &Job, interval: &mut Interval, trainer: &SkippingTrainer) -> String {
    let counters = &trainer.counters;
    let lr = job.config.schedule.at(counters.schedule.saturating_sub(1));
    let line = interval.line(&LoggedRun::of(&job.config), counters, lr, trainer.scale());
    job.screen.say(folded(&line, job.screen.width));
    line
}

/// Compares the ranks' steps, after a step in which they have averaged their gradients. Returns
/// whether they are different, and says so on rank 0. All ranks call it.
fn tell_apart(job: &Job, comm: &Comm, step: usize) -> Result<bool> {
    let steps = comm.gathered(&[step as u64])?;
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
