//! lab08 · Surviving bad steps
//!
//! One bad batch makes the loss jump. How does a run survive it?
//!
//! A batch of damaged text makes the loss jump, and its gradients damage the weights. The run is
//! then started again from a checkpoint before the spike, and skips these steps. All other steps
//! must train on the tokens that they would have had: a skipped step uses up its data, counts, and
//! teaches nothing, on all ranks or on none.
//!
//! [`train_plainly`] below is such a training in its plainest form; the first check runs it beside
//! the library's trainer, with which all runs on the screen are made.
//!
//! Run `cargo run --bin lab08`. Two ranks train a tiny GPT on a text with four bad steps. The lab
//! finds the spike in the metrics file, resumes without these steps, and compares three ways to
//! skip them. Find spikes in any metrics file: `--find-spikes FILE`; skip other steps:
//! `--train-range-to-skip 10 20 25 30`; print what is drawn: `--print-tokens`; break it:
//! `--break one-rank`. Train in fp16 with a loss scale: `--fp16`.

use anyhow::Result;
use clap::Parser;
use kit::flags::{positive, without};
use kit::help;
use kit::show::{Plot, Screen, Series, thousands};
use kit::{Beside, Checks, Footprint, Lesson, RunFlags, TrainFlags, report};
use lab08::{Break, Counts, Job, Metrics, Mode, Policy, Run, SurviveFlags, Training, Way, spikes};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::parallel::{Zero, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{Ranges, SkippingTrainer, Trainer};
use std::path::PathBuf;
use std::process::ExitCode;

/// A run that survives bad steps.
#[derive(Parser)]
#[command(name = "lab08", version)]
#[command(mut_arg("layers", |flag| flag.default_value("2")), mut_arg("heads", |flag| flag.default_value("2")))]
#[command(mut_arg("embd", |flag| flag.default_value("64")), mut_arg("block", |flag| flag.default_value("32")))]
#[command(mut_arg("batch", |flag| flag.default_value("2")), mut_arg("grad_accum", |flag| flag.default_value("4")))]
#[command(mut_arg("lr", |flag| flag.default_value("0.004")), mut_arg("warmup", |flag| flag.default_value("10")))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab's runs begin together: leave it out")))]
#[command(after_long_help = help::examples("lab08", &[
    ("--train-range-to-skip 10 20 25 30 --log", "skip two ranges, and print every step"),
    ("--policy count --steps 80 --trace steps.json", "one training that skips steps, and a timeline"),
    ("--fp16 --steps 60", "gradients in fp16, with a loss scale"),
]))]
struct Args {
    /// Ranks: threads of this process [default: 2], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    /// Training steps
    #[arg(long, default_value_t = 120, value_parser = positive(), help_heading = help::TRAINING)]
    steps: usize,
    #[command(flatten)]
    survive: SurviveFlags,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    run: RunFlags,
}

struct Lab {
    job: Job,
    lesson: Lesson,
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab08")?;
    let flags = args.survive;
    let folder = args.run.folder("lab08");
    if let Some(file) = &flags.find_spikes {
        let file = file.clone().unwrap_or_else(|| folder.join(lab08::METRICS));
        return Ok(spikes::report(&screen, &file)?);
    }
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let ranks = launch::ranks(args.ranks, 2)?;
    let config = args.train.resolve(ranks, Some(args.steps), &corpus)?;
    let config = if flags.stall { lab08::larger(&config) } else { config };
    let (poison, ranges) = flags.resolve(&config)?;
    let free = launch::free_memory(launch::ranks_here(ranks));
    Footprint::new(&config).ensure_fits(free)?;
    let zero = ZeroConfig::new(flags.zero, Precision::F32, config.adamw);
    let options = args.run.comm.options(&folder);
    let lab = Lab {
        job: Job { flags, config, zero, poison, ranges, corpus, screen, folder },
        lesson,
    };
    // A restarted job has been introduced.
    if launch::is_first_process() && kit::restarts::restart_count() == 0 {
        introduce(&lab);
    }
    if args.run.dry_run {
        return Ok(());
    }
    kit::run(ranks, &options, |comm| {
        let result = match lab.job.flags.mode() {
            Mode::Story => story(&lab.job, &comm),
            Mode::Once => lab08::once(&lab.job, &comm),
            Mode::Restart => lab08::restart(&lab.job, &comm),
            Mode::Stall => lab08::stall(&lab.job, &comm),
            Mode::Scaling => {
                lab08::scaling(&lab.job, &comm, lab.job.flags.broken == Some(Break::ClipFirst))
            }
        };
        result.map_err(|error| lab.job.config.explain(error))
    })?;
    let more = "More: --find-spikes FILE, --policy one-batch, --log, --fp16, --break one-rank";
    if launch::is_first_process() {
        lab.job.screen.say(lab.lesson.ending(&lab.job.screen, more));
    }
    Ok(())
}

// ANCHOR: heart
/// Trains, and skips the steps in `ranges`. Returns the losses of the steps that were taken.
fn train_plainly(job: &Job, comm: &Comm, ranges: &Ranges, steps: usize) -> Result<Vec<f64>> {
    let config = &job.config;
    let text = &job.corpus.train;
    let gpt = Gpt::new(&config.shape)?;
    let mut zero = Zero::init(&gpt.params, comm, job.zero.clone(), config.seed)?;
    let mut trainer = Trainer::new(&mut zero, config.grad_accum, config.clip);
    let sampler = config.sampler(comm.rank());
    let mut drawn = 0; // micro-batches that are used up
    let mut losses = Vec::new();
    for step in 1..=steps {
        // A skipped step uses up its micro-batches, and its learning rate. So each later step has
        // the data and the learning rate that it would have had. All ranks know the ranges: all of
        // them skip, or none.
        let first = drawn;
        drawn += config.grad_accum;
        if ranges.contains(step) {
            continue;
        }
        // The learning rate's schedule and dropout count steps from 0.
        let trained = trainer.step(config.schedule.at(step - 1), |micro| {
            let batch = sampler.nth(text, first + micro, config.grad_accum);
            Ok(gpt.loss(&batch, &config.pass(step - 1, &batch.sequences))?)
        })?;
        let mut loss = [trained.loss];
        comm.all_reduce(&mut loss, Reduce::Mean)?;
        losses.push(loss[0]);
    }
    Ok(losses)
}
// ANCHOR_END: heart

/// The losses of four steps without the second one, as above and with the library's
/// [`SkippingTrainer`].
fn compare_with_the_library(job: &Job, comm: &Comm) -> Result<Beside> {
    const STEPS: usize = 4;
    let ranges = Ranges::parse(&[2, 2])?;
    let lesson = train_plainly(job, comm, &ranges, STEPS)?;

    let text = &job.corpus.train;
    let mut trainer = SkippingTrainer::new(comm, &job.config, text, job.zero.clone(), false)?;
    trainer.ranges = ranges;
    let mut library = Vec::new();
    for _ in 0..STEPS {
        library.extend(trainer.step()?.outcome.loss());
    }
    Ok(Beside::of(comm, &lesson, &library, 0.0)?)
}

// ANCHOR: story
/// One rank's part. Returns what the checks found wrong.
fn story(job: &Job, comm: &Comm) -> Result<Vec<String>> {
    // A run with bad batches. It saves checkpoints, and writes its losses to the metrics file.
    let checkpoints = lab08::checkpoints(job, comm)?;
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
        return report_no_spike(job, comm, &damaged);
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
    compare_ways(job, comm, [&damaged, &skipped], (&ranges, from), again, shown)
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
) -> Result<Vec<String>> {
    let one_batch = again(&Way::skip(Policy::OneBatch, ranges))?;
    let auto = again(&Way::skip(Policy::Auto, ranges))?;
    // Up to its checkpoint, the damaged run had no bad batch either.
    let clean = again(&Way::plain(false))?;
    let unstopped = Training::begin(job, comm, &Way::skip(Policy::Count, ranges))?.run(job)?;
    let beside = compare_with_the_library(job, comm)?;

    let names = ["skips nothing", "count", "one-batch", "auto", "clean text"];
    let mut runs = Vec::new();
    for (name, run) in names.into_iter().zip([damaged, skipped, &one_batch, &auto, &clean]) {
        runs.push((name, run, lab08::counts(job, comm, run, ranges.after())?));
    }
    let bitwise =
        !comm.any(skipped.state != unstopped.state || skipped.steps != unstopped.steps)?;
    if comm.rank() > 0 {
        return Ok(Vec::new());
    }
    let screen = &job.screen;
    screen.say(overlaid(screen, damaged, skipped, from));
    screen.say(shown(screen));
    screen.say(format!("\n{}\n", lab08::compared(job, ranges, &runs)));
    Ok(check(job, ranges, &runs, bitwise, beside))
}

/// Runs the checks, for the reader and for the exit code.
fn check(
    job: &Job,
    ranges: &Ranges,
    runs: &[(&str, &Run, Counts)],
    bitwise: bool,
    beside: Beside,
) -> Vec<String> {
    let mut checks = Checks::new(&job.screen);
    checks.beside("losses around a skip", beside);
    let bad = job.poison.steps(&job.config);
    let found = ranges
        .ends()
        .map(|(first, last)| format!("{first} to {last}"))
        .collect::<Vec<_>>()
        .join(", ");
    let whole = bad.clone().all(|step| ranges.contains(step));
    checks.check(
        whole,
        "the range has every bad step",
        &found,
        &format!("bad are {bad:?}, found were {found}"),
    );
    let (_, skipped, counts) = &runs[1];
    counts.check(&mut checks, job, true);
    checks.check_bits(
        bitwise,
        "resumed at a checkpoint = trained without a stop",
        "a resumed run is not the run that was never stopped",
    );
    checks.one_model(&skipped.models);
    checks.failed()
}

/// Both curves in one plot. The second begins where the run was resumed.
fn overlaid(screen: &Screen, damaged: &Run, skipped: &Run, from: usize) -> String {
    let points = |run: &Run, from: usize| {
        let losses = run.losses().into_iter().filter(move |&(step, _)| step > from);
        losses.map(|(step, loss)| (step as f64, loss))
    };
    let plot =
        Plot::new("loss", "step").series(Series::line("with bad batches", points(damaged, 0)));
    plot.series(Series::dots("resumed, skipping them", points(skipped, from)))
        .height(7)
        .render(screen)
}

/// Shows a run without a spike, which needs no second one. Returns what the checks found wrong.
fn report_no_spike(job: &Job, comm: &Comm, run: &Run) -> Result<Vec<String>> {
    let counts = lab08::counts(job, comm, run, 0)?;
    if comm.rank() > 0 {
        return Ok(Vec::new());
    }
    let points = run.losses().into_iter().map(|(step, loss)| (step as f64, loss));
    let plot = Plot::new("loss", "step").series(Series::line("train", points));
    job.screen.say(format!("{}\n", plot.height(8).render(&job.screen)));
    let mut checks = Checks::new(&job.screen);
    let bad = !job.poison.steps(&job.config).is_empty();
    checks.check(!bad, "no spike was found", "", "the bad batches made no spike");
    counts.check(&mut checks, job, false);
    Ok(checks.failed())
}

fn introduce(lab: &Lab) {
    let Job { screen, config, poison, .. } = &lab.job;
    let dot = screen.separator();
    let shape = &config.shape;
    screen.say(lab.lesson.heading(screen, None));
    report::ranks(screen, config.ranks);
    let parameters = thousands(shape.parameters());
    let model =
        format!("{} layers{dot}{} wide{dot}{parameters} parameters", shape.layers, shape.embd);
    screen.say(screen.row("model", &model));
    let bad = match poison.steps(config) {
        bad if bad.is_empty() => "no text is random".to_string(),
        bad => format!("steps {} to {} have random text", bad.start(), bad.end()),
    };
    screen.say(screen.row(
        "steps",
        &format!("{} x {} micro-batches; {bad}", config.steps, config.grad_accum),
    ));
    screen.say("");
}
