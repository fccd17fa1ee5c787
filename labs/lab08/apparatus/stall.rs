//! The time for which a save stops the training: written at once, and written in the background.
//!
//! A training has to stop while its state is copied, because the next step changes the state. It
//! does not have to stop while the copy is hashed and written. The writing thread shares the
//! machine with the training, so the steps meanwhile are slower: the lab measures this cost, too.

use super::training::checkpoints_in;
use super::{Job, spikes};
use crate::skipping::SkippingTrainer;
use anyhow::{Context, Result};
use kit::Checks;
use kit::show::{bytes_decimal, table};
use shardlab::checkpoint::rank_file;
use shardlab::comm::{Comm, Reduce};
use shardlab::plan::ModelShape;
use shardlab::sha256;
use shardlab::train::Config;
use std::path::Path;
use std::time::Instant;

/// Saves of each kind.
const SAVES: usize = 7;

/// The run with a model whose state is large enough to measure.
pub fn larger(config: Config) -> Config {
    let shape = ModelShape { layers: 4, heads: 8, embd: 384, ..config.shape };
    Config { shape, ..config }
}

/// Measures both kinds of saves. All ranks call it.
pub fn stall(job: &Job, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let all = checkpoints_in(job.folder.join("stall"), 2, job, comm).scratch();
    all.claim()?;
    let mut training = SkippingTrainer::new(job.begin(comm)?, &job.corpus.train);
    training.step()?;
    // The first saves find cold memory, and are not measured.
    let at_once = training.start_save(&all)?.finish()?;
    let later = training.start_save(&all)?;
    let file = rank_file(comm.rank());
    let at_once = read(&at_once.join(&file))?;
    let later = read(&later.finish()?.join(&file))?;
    let same = !comm.any(sha256::hex(&at_once) != sha256::hex(&later))?;

    let [mut step, mut blocking, mut copy, mut finish, mut slow, mut meanwhile] =
        [const { Vec::new() }; 6];
    for _ in 0..SAVES {
        step.push(timed(comm, || training.step())?.0);
        blocking.push(timed(comm, || training.start_save(&all)?.finish())?.0);
        let (seconds, mut save) = timed(comm, || training.start_save(&all))?;
        copy.push(seconds);
        let mut done = false;
        let mut stepping = Vec::new();
        let mut waiting = 0.0;
        while !done {
            stepping.push(timed(comm, || training.step())?.0);
            let (seconds, advanced) = timed(comm, || save.advance())?;
            ((save, done), waiting) = (advanced, waiting + seconds);
        }
        slow.push(stepping.iter().sum::<f64>() / stepping.len() as f64);
        meanwhile.push(stepping.len() as f64);
        finish.push(waiting + timed(comm, || save.finish())?.0);
    }
    comm.barrier()?;
    if comm.rank() > 0 {
        return Ok(());
    }
    // The measurement's own files.
    std::fs::remove_dir_all(&all.dir)
        .with_context(|| format!("cannot remove {}", all.dir.display()))?;
    let screen = &job.screen;
    let pause: Vec<f64> = copy.iter().zip(&finish).map(|(copy, finish)| copy + finish).collect();
    let row = |what: &str, seconds: &[f64]| {
        let (least, most) = seconds
            .iter()
            .fold((f64::MAX, 0f64), |(least, most), &s| (least.min(s), most.max(s)));
        let [median, least, most] = [median(seconds), least, most].map(|x| screen.seconds(x));
        [what.to_string(), median, least, most]
    };
    let rows = [
        row("save at once: the training waits", &blocking),
        row("save in the background: the training waits", &pause),
        row("  to copy the state", &copy),
        row("  to complete the save", &finish),
        row("step without a save", &step),
        row("step while the copy is written", &slow),
    ];
    let state = bytes_decimal(at_once.len() as f64);
    screen.say(screen.row("state", &format!("{state} per rank, saved {SAVES} times each way")));
    screen.say(format!("\n{}\n", table(screen, &["", "median", "least", "most"], &rows)));
    let wait = median(&blocking);
    let short = median(&pause);
    let cost = (median(&slow) - median(&step)) * median(&meanwhile);
    let stall = format!(
        "{} instead of {}: {:.1} times shorter. The steps meanwhile took {} longer in all.",
        screen.seconds(short),
        screen.seconds(wait),
        wait / short,
        screen.seconds(cost.max(0.0))
    );
    screen.say(screen.row("stall", &stall));
    screen.say("");
    let size = format!("{} bytes", kit::show::thousands(at_once.len() as u64));
    checks.check(
        same,
        "both kinds of saves write the same bytes",
        &size,
        "the two saves of one state differ",
    );
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the seconds that a call takes on the slowest rank, and its result. All ranks call it.
fn timed<T>(comm: &Comm, call: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    comm.barrier()?;
    let start = Instant::now();
    let result = call()?;
    Ok((comm.reduced(start.elapsed().as_secs_f64(), Reduce::Max)?, result))
}

fn median(values: &[f64]) -> f64 {
    spikes::median(values.iter().copied())
}
