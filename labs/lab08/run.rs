//! What runs in the lab, and in which order.

use crate::apparatus::{self, Job, Metrics, Poison, Run, Training, Way, spikes};
use crate::flags::{Args, Break, Mode, Policy};
use crate::lesson::compare_with_the_trainer;
use crate::skipping::Ranges;
use anyhow::Result;
use kit::show::{Screen, thousands};
use kit::{Checks, Footprint, LabRun, report};
use shardlab::comm::Comm;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;

/// Runs the lab as its flags say.
pub fn run(args: Args) -> Result<()> {
    let run = LabRun::of("lab08", &args.run)?;
    let flags = args.survive;
    if let Some(file) = &flags.find_spikes {
        let file = file.clone().unwrap_or_else(|| run.folder.join(apparatus::METRICS));
        return Ok(spikes::report(&run.screen, &file)?);
    }
    let corpus = args.train.data.corpus()?;
    let strategy = match args.strategy.strategy {
        None => Strategy::data(launch::ranks(args.ranks, 2)?, flags.zero),
        Some(_) => args.strategy.or_replicas("lab08", None, 2)?,
    };
    let ranks = strategy.data;
    if flags.scaling.fp16 && strategy.zero >= Stage::Two {
        let stage = strategy.zero.number();
        let what = format!(
            "--fp16 is emulated in a buffer of all gradients, and stage {stage} of ZeRO shards them"
        );
        return Err(BadInput::new(what, "give stage 0 or 1 with --fp16").into());
    }
    let config = args.train.resolve(ranks, Some(args.steps), &corpus)?;
    args.strategy.ensure_divides(&config.shape)?;
    let config = if flags.stall { apparatus::larger(config) } else { config };
    let (draws, ranges) = flags.resolve(&config)?;
    let poison = Poison { draws, vocabulary: config.shape.vocabulary };
    let run = LabRun { ranks, ..run };
    run.ensure_fits(&Footprint::new(&config))?;
    let job = Job {
        flags,
        config,
        strategy,
        poison,
        ranges,
        corpus,
        screen: run.screen.clone(),
        folder: run.folder.clone(),
    };
    // A restarted job has been introduced.
    if launch::is_first_process() && kit::restart_count() == 0 {
        introduce(&run, &job);
    }
    if run.is_dry {
        return Ok(());
    }
    run.train(&job.config, |comm, checks| {
        checks.end_with(
            "More: --find-spikes FILE, --policy one-batch, --log, --fp16, --break one-rank",
        );
        match job.flags.mode() {
            Mode::Story => story(&job, comm, checks),
            Mode::Once => apparatus::once(&job, comm, checks),
            Mode::Restart => apparatus::restart(&job, comm, checks),
            Mode::Stall => apparatus::stall(&job, comm, checks),
            Mode::Scaling => {
                let clip_first = job.flags.broken == Some(Break::ClipFirst);
                apparatus::scaling(&job, comm, clip_first, checks)
            }
        }
    })
}

// ANCHOR: story
/// One rank's part, and its checks.
fn story(job: &Job, comm: &Comm, checks: &mut Checks) -> Result<()> {
    // A run with bad batches. It saves checkpoints, and writes its losses to the metrics file.
    let checkpoints = apparatus::checkpoints(job, comm)?;
    let mut metrics = Metrics::create(job, comm)?;
    let mut saved = Vec::new();
    // With the bad batches.
    let mut training = Training::begin(job, comm, &Way::plain(true))?.traced(job)?;
    while training.steps.len() < job.config.steps {
        let step = training.step()?;
        metrics.write(step)?;
        if step.step.is_multiple_of(job.flags.save_every) {
            saved.push((step.step, training.save(&checkpoints)?));
        }
    }
    let damaged = training.finish(job)?;

    // The spikes in the file, and the steps to skip. Rank 0 reads the file for all ranks.
    let (spikes, ranges) = spikes::agree(comm, &metrics.path)?;
    let Some((first, _)) = ranges.ends().next() else {
        return apparatus::report_no_spike(job, comm, &damaged, checks);
    };

    // The same run without these steps, from the last checkpoint before them.
    let before = saved.iter().rev().find(|(step, _)| *step < first);
    let again = |way: &Way| match before {
        Some((_, folder)) => {
            Training::resume(job, comm, way, (&checkpoints, folder), &damaged)?.run(job)
        }
        None => Training::begin(job, comm, way)?.run(job), // there is none: from the start
    };
    let skipped = again(&Way::skip(Policy::Count, &ranges))?;
    // ANCHOR_END: story

    let from = before.map_or(0, |(step, _)| *step);
    let shown = |screen: &Screen| {
        let spikes_found = spikes::show(screen, &spikes, &metrics.path);
        let resumed = format!("from step {from} with {}", spikes::flag(&spikes));
        format!("\n{spikes_found}\n{}", screen.row("resume", &resumed))
    };
    compare_ways(job, comm, [&damaged, &skipped], (&ranges, from), again, shown, checks)
}

/// Two more ways to skip, a run without bad batches, and a run that skips and was never stopped,
/// beside the story's two runs.
fn compare_ways(
    job: &Job,
    comm: &Comm,
    [damaged, skipped]: [&Run; 2],
    (ranges, from): (&Ranges, usize),
    again: impl Fn(&Way) -> Result<Run>,
    shown: impl FnOnce(&Screen) -> String,
    checks: &mut Checks,
) -> Result<()> {
    let one_batch = again(&Way::skip(Policy::OneBatch, ranges))?;
    let auto = again(&Way::skip(Policy::Auto, ranges))?;
    // Up to its checkpoint, the damaged run had no bad batch either.
    let clean = again(&Way::plain(false))?;
    let unstopped = Training::begin(job, comm, &Way::skip(Policy::Count, ranges))?.run(job)?;
    let beside = compare_with_the_trainer(comm, job)?;

    let names = ["skips nothing", "count", "one-batch", "auto", "clean text"];
    let mut runs = Vec::new();
    for (name, run) in names.into_iter().zip([damaged, skipped, &one_batch, &auto, &clean]) {
        runs.push((name, run, apparatus::counts(job, comm, run, ranges.after())?));
    }
    let bitwise =
        !comm.any(skipped.state != unstopped.state || skipped.steps != unstopped.steps)?;
    if comm.rank() > 0 {
        return Ok(());
    }
    let screen = &job.screen;
    screen.say(apparatus::overlaid(screen, damaged, skipped, from));
    screen.say(shown(screen));
    screen.say(format!("\n{}\n", apparatus::compared(job, ranges, &runs)));

    checks.beside("losses around a skip", beside);
    let bad = job.poison.steps(&job.config);
    let found: Vec<String> =
        ranges.ends().map(|(first, last)| format!("{first} to {last}")).collect();
    let found = found.join(", ");
    let whole = bad.clone().all(|step| ranges.contains(step));
    // How well random text stands out is a matter of the text.
    if !whole && job.corpus.own {
        checks.note(&format!("bad are steps {bad:?}, and in this text {found} stand out"));
    } else {
        checks.check(
            whole,
            "the range has every bad step",
            &found,
            &format!("bad are {bad:?}, found were {found}"),
        );
    }
    let (_, skipped, counts) = &runs[1];
    counts.check(checks, job, whole || !job.corpus.own);
    checks.check_bits(
        bitwise,
        "resumed at a checkpoint = trained without a stop",
        "a resumed run is not the run that was never stopped",
    );
    checks.one_model(&skipped.models);
    Ok(())
}

fn introduce(run: &LabRun, job: &Job) {
    let Job { screen, config, poison, .. } = job;
    let dot = screen.separator();
    let shape = &config.shape;
    run.heading(None);
    report::ranks(screen, config.ranks);
    let parameters = thousands(shape.parameters());
    let model =
        format!("{} layers{dot}{} wide{dot}{parameters} parameters", shape.layers, shape.embd);
    run.row("model", &model);
    let bad = match poison.steps(config) {
        bad if bad.is_empty() => "no text is random".to_string(),
        bad => format!("steps {} to {} have random text", bad.start(), bad.end()),
    };
    run.row(
        "steps",
        &format!("{} x {} micro-batches; {bad}", config.steps, config.grad_accum),
    );
    report::precision(screen, config);
    screen.say("");
}
