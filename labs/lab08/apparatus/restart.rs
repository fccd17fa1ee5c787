//! One training that outlives a kill: it saves checkpoints, and a restarted job continues from the
//! newest.
//!
//! A restart trains the steps after the checkpoint again. Their bits are not lost: the resumed run
//! ends with the weights of a run that was never stopped. The lab trains that run as well, and
//! compares.

use super::Job;
use super::iterations::Interval;
use super::once::say_line;
use super::progress::{Lost, Progress};
use super::training::{Run, Training, Way, checkpoints_in};
use crate::flags::{LoadOn, RestartFlags};
use anyhow::Result;
use kit::flags::with_flags;
use kit::show::{Screen, bytes_decimal, complain, counted, only_if, thousands};
use kit::{Checks, restart_count, short_hash};
use shardlab::checkpoint::{Checkpoints, Resume, Writing};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch::is_mpi;
use shardlab::parallel::zero::Stage;
use shardlab::train::Config;
use std::time::Instant;

/// Trains, saves and resumes as the flags say. All ranks call it.
pub fn restart(job: &Job, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let flags = &job.flags.restart;
    let dir = flags.checkpoints.clone().unwrap_or_else(|| job.folder.join("restart"));
    let mut all = checkpoints_in(dir, flags.keep.unwrap_or(3), job, comm);
    all.anyway = flags.resume_anyway;
    if flags.load_on == Some(LoadOn::Rank0) {
        all.rank0_reads = true;
        // A group of their own counts their bytes apart from the training's.
        all.comm = comm.split(0, comm.rank() as i64)?.named("checkpoints");
    }
    all.claim()?;
    let way = Way::of(job);
    let mut training = Training::begin(job, comm, &way)?;
    let from = begin(job, &all, &mut training)?;
    train(job, &all, &mut training)?;
    let end = training.finish(job)?;
    let never_stopped = from.map(|_| Training::begin(job, comm, &way)?.run(job)).transpose()?;
    check(comm, &end, from.zip(never_stopped.as_ref()), checks)
}

/// Resumes, and says what a kill has cost. Returns the step after which the training continues an
/// earlier one, if a run that was never stopped would be the same.
fn begin(job: &Job, all: &Checkpoints, training: &mut Training) -> Result<Option<usize>> {
    let which = job.flags.restart.begin();
    let first = all.comm.rank() == 0;
    let dir = all.dir.display();
    let before = all.comm.traffic();
    let resumed = training.trainer.resume(all, &which)?;
    let sent = (all.comm.traffic() - before).bytes;
    let mut what_was_loaded = None;
    if all.rank0_reads {
        let rejected = resumed.as_ref().map_or(0, |resumed| resumed.rejected.len());
        what_was_loaded = Some(loaded(job, all, sent, rejected)?);
    }
    let from = resumed.as_ref().map(|resumed| resumed.step);
    let from = from.or((restart_count() > 0).then_some(0));
    let say = |label: &str, text: String| {
        if first {
            job.screen.say(job.screen.row(label, &text));
        }
    };
    let every = job.flags.save_every;
    say("save", format!("every {every} steps to {dir}; the newest {} stay", all.keep));
    match &resumed {
        Some(resumed) => {
            for error in &resumed.rejected {
                say("rejected", with_flags(&error.what));
            }
            let done = only_if(resumed.step >= job.config.steps, ": no step is left to train");
            let folder = resumed.folder.display();
            say("resumed", format!("after step {}, from {folder}{done}", resumed.step));
            if let Some(scaler) = &training.trainer.scaler {
                say("scale", scaler.in_words());
            }
            if let Some(loaded) = what_was_loaded {
                say("loaded", loaded);
            }
            for change in &resumed.changes {
                say("changed", with_flags(change));
            }
        }
        None if which == Resume::Auto => {
            say("start", format!("at step 1: no checkpoint is in {dir}"));
        }
        None => say("start", "at step 1".to_string()),
    }
    let progress = Progress::of(all);
    if let Some(from) = from.filter(|_| first)
        && let Some(lost) = progress.lost(from, resumed.is_some())
        && (lost.last > from || restart_count() > 0)
    {
        say("lost", lost_in_words(&job.screen, &job.config, from, &lost));
    }
    if first && restart_count() == 0 && (resumed.is_none() || which != Resume::Auto) {
        progress.clear();
    }
    // Otherwise a restart before the next save would continue from whatever an older run has left
    // in the folder.
    if which != Resume::Auto {
        training.trainer.start_save(all)?.finish()?;
    }
    Ok(from.filter(|_| resumed.is_none_or(|resumed| resumed.changes.is_empty())))
}

/// What rank 0 has read, and what the others got from it and have read themselves, with `rejected`
/// checkpoints. All ranks call it.
fn loaded(job: &Job, all: &Checkpoints, sent: u64, rejected: usize) -> Result<String> {
    let here = all.bytes_read.get() as u64;
    let read = all.comm.reduced(here, Reduce::Sum)?;
    let [here, elsewhere, sent] =
        [here, read - here, sent].map(|bytes| bytes_decimal(bytes as f64));
    let (of, how) = if job.strategy.zero == Stage::Ddp {
        ("one file for all ranks", "broadcast it:")
    } else {
        ("the files of all ranks", "sent")
    };
    let also = if rejected > 0 { "; also of those rejected" } else { "" };
    let others = match all.comm.size() - 1 {
        0 => return Ok(format!("rank 0 read {here}, and is the only rank")),
        others => counted(others, "rank", "ranks"),
    };
    Ok(format!(
        "rank 0 read {here} ({of}{also}), and {how} {sent} to {others}, which read {elsewhere}"
    ))
}

fn lost_in_words(screen: &Screen, config: &Config, from: usize, lost: &Lost) -> String {
    let steps = lost.last - from;
    let down = screen.seconds(lost.down);
    if steps == 0 {
        return format!("no step: the checkpoint is of the last one; the restart took {down}");
    }
    let samples = steps * config.samples_per_step();
    let [samples, tokens] =
        [samples, samples * config.shape.block].map(|count| thousands(count as u64));
    let what = if steps == 1 {
        format!("step {}", lost.last)
    } else {
        format!("steps {} to {}", from + 1, lost.last)
    };
    format!(
        "{what}: {samples} samples ({tokens} tokens) and {} of training are repeated; the restart took {down} more",
        screen.seconds(lost.seconds)
    )
}

/// Trains to the last step. Checkpoints are written while the next steps train.
fn train(job: &Job, all: &Checkpoints, training: &mut Training) -> Result<()> {
    let config = &job.config;
    let first = all.comm.rank() == 0;
    let mut interval = Interval::default();
    let progress = Progress::of(all);
    let mut writing: Option<Writing> = None;
    while training.trainer.counters.global_steps < config.steps {
        if restart_count() == 0
            && job.flags.restart.at_step == Some(training.trainer.counters.next_step())
        {
            // A kill may come in the middle of a save. Here it does not, so that the lab's figures
            // are the same in every run.
            if let Some(save) = writing.take() {
                told(first, saved(job, all, save));
            }
            kill(job, &all.comm)?;
        }
        let start = Instant::now();
        let step = training.step()?.clone();
        let seconds = start.elapsed().as_secs_f64();
        interval.add(&step.outcome, seconds);
        if first {
            progress.add(step.step, seconds);
        }
        let due = step.step.is_multiple_of(job.flags.save_every) || step.step == config.steps;
        if let Some(save) = writing.take() {
            match save.advance()? {
                (save, done) if due || done => {
                    told(first, saved(job, all, save));
                }
                (save, _) => writing = Some(save),
            }
        }
        if due {
            writing = told(first, training.trainer.start_save(all));
        }
        if first && (due || job.flags.log) {
            say_line(job, &mut interval, &training.trainer);
        }
    }
    match writing {
        Some(save) => saved(job, all, save),
        None => Ok(()),
    }
}

/// Completes a save.
fn saved(job: &Job, all: &Checkpoints, save: Writing) -> Result<()> {
    let folder = save.finish()?;
    if all.comm.rank() == 0 {
        job.screen.say(job.screen.row("saved", &folder.display().to_string()));
    }
    Ok(())
}

/// Prints an error. A save that fails, because the disk is full, does not end the training.
fn told<T>(first: bool, result: Result<T>) -> Option<T> {
    if let Err(error) = &result
        && first
    {
        complain(&format!("error: {error:#}"));
    }
    result.ok()
}

/// Kills the rank that the flags name, when all ranks have made the step before.
fn kill(job: &Job, comm: &Comm) -> Result<()> {
    comm.barrier()?;
    let RestartFlags { kill_rank, at_step, .. } = job.flags.restart;
    if let (Some(rank), Some(step)) = (kill_rank, at_step)
        && rank == comm.rank()
    {
        let others = only_if(!is_mpi(), ", and with it all ranks: they are its threads");
        complain(&format!("rank {rank} kills its process before step {step}{others}"));
        kill_this_process();
    }
    Ok(())
}

/// Kills this process as nothing can prevent: no destructor runs, no file is flushed, no other rank
/// is told.
fn kill_this_process() -> ! {
    #[cfg(unix)]
    // SAFETY: this call ends the process.
    unsafe {
        libc::raise(libc::SIGKILL);
    }
    std::process::abort()
}

/// Runs the checks. A training that continued an earlier one is compared with a run that was never
/// stopped.
fn check(
    comm: &Comm,
    end: &Run,
    compared: Option<(usize, &Run)>,
    checks: &mut Checks,
) -> Result<()> {
    if comm.rank() == 0 {
        checks.one_model(&end.models);
    }
    if let Some((from, never)) = compared {
        let later = never.steps.get(from..).unwrap_or_default();
        let here = end.state == never.state
            && end.counters == never.counters
            && end.scaler == never.scaler
            && end.steps == later;
        let same = !comm.any(!here)?;
        if comm.rank() == 0 {
            let ends = |run: &Run| short_hash(&run.models[0]);
            let sign = if same { "=" } else { "and" };
            checks.check(
                same,
                "final weights: resumed = never stopped",
                &format!("{} {sign} {}", ends(end), ends(never)),
                "the resumed run is not the run that was never stopped: did all attempts have the same flags?",
            );
        }
    }
    Ok(())
}
