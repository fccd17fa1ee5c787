//! lab03 · One model, many ranks
//!
//! How do N ranks train one model, and why is it the same model as with one rank?
//!
//! Every rank holds the whole model and draws its own part of the data. Once per step the ranks
//! average their gradients (an all-reduce). Every rank then applies the same update, so N replicas
//! stay one model. The model is a GPT that learns to write plays, one character at a time.
//!
//! [`step_plainly`] below is such a step in its plainest form; the first check runs it beside the
//! library's, which averages sooner.
//!
//! Run `cargo run --bin lab03`. You will see the loss fall from about 4.2 (65 characters and no
//! idea: ln 65 = 4.17), what the model writes at every evaluation, and the checks: the same bits as
//! one rank that does all the work, the same model on every rank, different data on every rank.
//! Then break it: `cargo run --bin lab03 -- --break no-average`.

use anyhow::Result;
use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kit::Lesson;
use kit::Part::{Backward, Data, Forward, Optimizer};
use kit::flags::{ensure_ranks_can_differ, positive};
use kit::help;
use kit::parity::{self, Trained};
use kit::settings::{Around, Settings};
use kit::show::Screen;
use kit::{
    Beside, Break, Broken, Checks, Clock, End, EvalFlags, Evaluator, Footprint, Journal, LogFlags,
    RunFlags, StepOutcome, Symptoms, TrainFlags, report, speedup,
};
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus, Sampler};
use shardlab::model::Gpt;
use shardlab::parallel::{Averaged, Ddp};
use shardlab::tensor::{Precision, matmul};
use shardlab::train::{self, AdamW, Config, Diverged, EvalConfig, Preset, clip_scale, global_norm};
use shardlab::{checkpoint, launch};
use std::path::PathBuf;
use std::process::ExitCode;

/// One model, many ranks: data-parallel training of a character-level GPT.
#[derive(Parser)]
#[command(name = "lab03", version)]
#[command(after_long_help = help::examples("lab03", &[
    ("--ranks 4 --steps 100", "four ranks, a hundred steps"),
    ("--preset char --steps 200", "a larger model"),
    ("--link 1ms,1GB/s --trace steps.json", "over a slow link, with a timeline of every rank"),
    ("--break no-average", "ranks that train apart, and the check that notices"),
]))]
struct Args {
    /// Number of ranks: threads of this process [default: 2], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    /// Training steps [default: the preset's]
    #[arg(long, value_parser = positive(), help_heading = help::TRAINING)]
    steps: Option<usize>,
    #[command(flatten)]
    train: TrainFlags,
    /// Stop the backward pass while the ranks average a bucket of gradients
    #[arg(long, help_heading = help::STRATEGY)]
    no_overlap: bool,
    /// Average by sends and receives, in the rounds of one of lab01's algorithms
    #[arg(long, value_name = "ALGORITHM", value_parser = averaging(), conflicts_with_all = ["no_overlap", "broken", "eval_only"], help_heading = help::STRATEGY)]
    all_reduce: Option<Algorithm>,
    #[command(flatten)]
    eval: EvalFlags,
    /// Evaluate and sample, but do not train
    #[arg(long, conflicts_with_all = ["metrics", "broken"], hide_short_help = true, help_heading = help::OUTPUT)]
    eval_only: bool,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    broken: Option<Break>,
}

/// All ranks read this, and none changes it.
struct Lab {
    args: Args,
    config: Config,
    eval: EvalConfig,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
    /// One thread's matmul peak, FLOP/s.
    peak: f64,
}

impl Lab {
    /// The folder for weights, unless the run leaves none behind: one that is broken on purpose
    /// must not replace good ones.
    fn save_to(&self) -> Option<PathBuf> {
        let saves = self.args.broken.is_none() && !self.args.eval_only;
        saves.then(|| self.args.run.folder("lab03"))
    }
}

// ANCHOR: heart
/// One step of data parallelism. Every rank has the whole model, begun with the same weights, and
/// sequences of its own. Averaging is all that they do together. Returns this rank's loss, and the
/// norm of the averaged gradients.
fn step_plainly(
    comm: &Comm,
    gpt: &Gpt,
    adamw: &mut AdamW,
    config: &Config,
    batch: &Batch,
    step: usize,
) -> Result<(f32, f64)> {
    gpt.params.zero_gradients();
    let pass = config.pass(step, &batch.sequences); // this step's dropout
    let loss = gpt.loss(batch, &pass)?;
    loss.backward()?; // the gradients of this rank's sequences

    // The model's own, locked: one parameter after the other.
    let mut gradients = gpt.params.gradients();
    for parameter in gpt.params.specs() {
        comm.all_reduce(&mut gradients[parameter.range()], Reduce::Mean)?;
    }
    // Now every rank has the gradients of all ranks' sequences, and so it takes the step that they
    // all take.
    let norm = global_norm(&gradients);
    drop(gradients); // unlocked, for the optimizer
    let lr = config.schedule.at(step);
    adamw.step(&gpt.params, lr, clip_scale(norm, config.clip)?)?;
    Ok((loss.to_scalar()?, norm))
}
// ANCHOR_END: heart

/// Three steps of a small model in the plainest way; and again with buckets, which are averaged
/// during the backward pass (with --all-reduce after it).
fn compare_with_the_library(lab: &Lab, comm: &Comm) -> Result<Beside> {
    const STEPS: usize = 3;
    let config = Config {
        grad_accum: 1, // the plain step has one backward pass
        ..lab.config.parity_check()
    };
    let text = &lab.corpus.train[..];
    let sampler = config.sampler(comm.rank());
    let model = || -> Result<Gpt> {
        let gpt = Gpt::new(&config.shape)?;
        // One seed on every rank: equal weights without a broadcast.
        gpt.params.allocate(config.seed);
        Ok(gpt)
    };
    let gpt = model()?;
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let mut lesson = Vec::new();
    for step in 0..STEPS {
        let batch = sampler.batch(text, step, 0);
        let taken = step_plainly(comm, &gpt, &mut adamw, &config, &batch, step);
        let (loss, norm) = taken.map_err(|error| Diverged::at(step + 1, error))?;
        // AdamW trains alike with gradients that are twice as large, so losses alone do not show a
        // sum in place of a mean.
        lesson.extend([f64::from(loss), norm]);
    }

    let gpt = model()?;
    let mut replica = Replica {
        config: &config,
        text,
        gpt: &gpt,
        sampler,
        ddp: Ddp::new(&gpt.params, comm)?,
        adamw: AdamW::new(config.adamw, &gpt.params),
    };
    if let Some(algorithm) = lab.args.all_reduce {
        replica.ddp.all_reduce_by(algorithm);
    }
    let mut library = Vec::new();
    for step in 0..STEPS {
        let taken = replica.step(step, &mut Clock::start());
        let (loss, norm, _) = taken.map_err(|error| Diverged::at(step + 1, error))?;
        library.extend([loss, norm]);
    }
    let in_one_order = comm.adds_in_rank_order() && lab.args.all_reduce.is_none();
    Ok(Beside::of_losses(comm, &lesson, &library, in_one_order)?)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let config = args.train.resolve(launch::ranks(args.ranks, 2)?, args.steps, &corpus)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    ensure_ranks_can_differ(args.broken.is_some(), config.ranks)?;
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab03")?;
    let lab = Lab {
        args,
        config,
        eval,
        corpus,
        screen,
        lesson,
        peak: matmul::measured_peak(),
    };
    let footprint = Footprint::new(&lab.config);
    let free = launch::free_memory(launch::ranks_here(lab.config.ranks));
    if lab.args.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, &footprint, free, lab.peak);
        }
        return Ok(());
    }
    footprint.ensure_fits(free)?;
    if let Some(folder) = lab.save_to() {
        checkpoint::ensure_writable(&folder)?;
    }
    let options = lab.args.run.comm.options(&lab.args.run.folder("lab03"));
    kit::run(lab.config.ranks, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| lab.config.explain(error))
    })
}

/// One rank's part, from the first check to the last. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    let config = &lab.config;
    let screen = &lab.screen;
    // No other job may save to this folder meanwhile.
    let _claim = match lab.save_to() {
        Some(folder) => Some(checkpoint::Claim::take(comm, &folder)?),
        None => None,
    };
    let mut journal = Journal::new(
        comm,
        screen,
        kit::Rates::of(config, lab.peak),
        lab.eval.due,
        Some(&lab.args.log),
    )?;
    if comm.rank() == 0 {
        introduce(lab);
    }
    let evaluator = Evaluator {
        config,
        eval: &lab.eval,
        corpus: &lab.corpus,
        screen,
        comm,
        save_to: lab.save_to(),
    };
    let gpt = Gpt::new(&config.shape)?;
    // Each rank starts with its own random seed; the broadcast makes them one model.
    gpt.params.allocate(config.seed_of(comm.rank()));
    if let Some(dir) = lab.args.train.model.init_from.as_deref().filter(|_| comm.rank() == 0) {
        checkpoint::load(dir, &gpt.params)?;
    }
    if lab.args.eval_only {
        comm.broadcast(&mut gpt.params.values_mut(), 0)?;
        evaluator.run(&gpt, 0, &mut journal)?;
        return Ok(Vec::new());
    }
    let beside = compare_with_the_library(lab, comm)?;
    let same_as_one_rank = compare_with_one_rank(lab, comm)?;
    let symptoms = train(lab, comm, &gpt, &evaluator, &mut journal);
    let symptoms = symptoms.map_err(|error| Diverged::at(journal.records.len() + 1, error))?;
    journal.show(
        lab.args.no_overlap || lab.args.all_reduce.is_some() || lab.args.run.comm.link.is_some(),
    )?;
    let hashes = train::all_hashes(comm, &gpt.params)?;
    let drawn = symptoms.drawn_by_all(comm)?;
    if lab.args.broken.is_none() {
        speedup::show(
            comm,
            screen,
            &gpt,
            config,
            &lab.corpus.train,
            &journal.records,
            &journal.watch,
        )?;
    }
    Ok(check(
        lab,
        comm,
        &journal,
        &symptoms,
        beside,
        &End { hashes, drawn, same_as_one_rank },
    ))
}

/// The algorithms that average: an all-reduce's own, and those that reduce to rank 0 and broadcast
/// from there.
fn averaging() -> impl TypedValueParser<Value = Algorithm> {
    let all = [Collective::AllReduce, Collective::Broadcast];
    let names = all.iter().flat_map(|collective| collective.algorithms());
    let names: Vec<&str> = names.map(|algorithm| algorithm.name()).collect();
    let of_name = |name: String| Algorithm::ALL.iter().copied().find(|a| a.name() == name);
    PossibleValuesParser::new(names).try_map(move |name| of_name(name).ok_or("not an algorithm"))
}

/// Trains with the library's `Ddp`, and watches it: what is said about the run is said here, and
/// the step is [`Replica::step`].
fn train(
    lab: &Lab,
    comm: &Comm,
    gpt: &Gpt,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<Symptoms> {
    let config = &lab.config;
    let text = &lab.corpus.train[..];
    // Rank 0's weights to every rank; gradients will be averaged.
    let ddp = Ddp::new(&gpt.params, comm)?;
    let Broken { ddp, data_rank } =
        kit::apply_break(lab.args.broken, comm, ddp, &gpt.params, config.seed_of(comm.rank()))?;
    ddp.overlap(!lab.args.no_overlap);
    match lab.args.all_reduce {
        Some(algorithm) => {
            ddp.all_reduce_by(algorithm);
            let place = [comm.rank(), comm.size()];
            journal.expect(report::all_reduced_by(algorithm, &ddp.buckets(), place)?);
        }
        None => {
            journal.expect_on_link(lab.args.run.comm.link, &ddp.buckets());
            journal.expect(report::all_reduced(gpt.params.numel(), comm.size()));
        }
    }
    // Each rank draws its own sequences, unless --break says otherwise.
    let sampler = config.sampler(data_rank);
    let mut replica = Replica {
        config,
        text,
        gpt,
        sampler,
        ddp,
        adamw: AdamW::new(config.adamw, &gpt.params),
    };
    let mut symptoms = Symptoms::of(lab.args.broken);
    evaluator.run(gpt, 0, journal)?;
    symptoms.look(comm, &gpt.params, 0)?;

    for step in 0..config.steps {
        let mut clock = Clock::start();
        let before = comm.traffic();
        let (loss, grad_norm, averaged) = replica.step(step, &mut clock)?;
        let sent = comm.traffic() - before;

        for micro in 0..config.grad_accum {
            symptoms.draw(sampler.batch(text, step, micro).numbers());
        }
        let lr = config.schedule.at(step);
        let step = step + 1;
        journal.step(StepOutcome { step, loss, grad_norm, lr }, &clock, sent, &averaged)?;
        if lab.eval.due.after(step) {
            evaluator.run(gpt, step, journal)?;
        }
        symptoms.look(comm, &gpt.params, step)?;
    }
    Ok(symptoms)
}

/// One rank's replica: a whole model, and its own part of the data.
struct Replica<'a> {
    config: &'a Config,
    text: &'a [u32],
    gpt: &'a Gpt,
    sampler: Sampler,
    ddp: Ddp,
    adamw: AdamW,
}

impl Replica<'_> {
    // ANCHOR: step
    /// Every rank takes this step. It returns the rank's loss, the gradients' norm, and the time of
    /// each all-reduce.
    fn step(&mut self, step: usize, clock: &mut Clock) -> Result<(f64, f64, Vec<Averaged>)> {
        let Replica { config, text, gpt, sampler, ddp, adamw } = self;
        let mut mean = 0.0;
        gpt.params.zero_gradients();
        for micro in 0..config.grad_accum {
            // This rank's own sequences.
            let batch = clock.time(Data, || sampler.batch(text, step, micro));
            let loss =
                clock.time(Forward, || gpt.loss(&batch, &config.pass(step, &batch.sequences)))?;
            let share = (loss / config.grad_accum as f64)?; // the shares' gradients add up
            mean += f64::from(share.to_scalar::<f32>()?);
            ddp.synchronise(micro + 1 == config.grad_accum); // average in the last micro-step only
            clock.time(Backward, || share.backward())?; // averages each complete bucket
        }
        // Now all ranks have the same gradients.
        let averaged = clock.time(Backward, || ddp.finish())?;
        let norm = global_norm(&gpt.params.gradients());
        let scale = clip_scale(norm, config.clip)?;
        // So they take the same step.
        clock.time(Optimizer, || adamw.step(&gpt.params, config.schedule.at(step), scale))?;
        Ok((mean, norm, averaged))
    }
    // ANCHOR_END: step
}

/// Trains the small model for three steps on all ranks, and again on one rank that processes all
/// their batches.
fn compare_with_one_rank(lab: &Lab, comm: &Comm) -> Result<bool> {
    const STEPS: usize = 3;
    let config = lab.config.parity_check();
    let replica = |comm: &Comm| parity::Replica::ddp(&config, &lab.corpus.train, comm);
    let by = lab.args.all_reduce;
    let ours = parity::parallel(comm, replica(comm)?.all_reduce_by(by), STEPS)?;
    let serial = || parity::serial(replica(&Comm::alone())?, comm.size(), STEPS);
    let bound = Precision::F32.loss_bound();
    let Trained { losses, values, .. } = &ours;
    // The rounds of an algorithm add in an order of their own.
    let values = if by.is_none() { Some(&values[..]) } else { None };
    let same = parity::compare(comm, comm, &lab.screen, bound, losses, values, serial)?;
    if comm.rank() == 0 && lab.args.log.all {
        report::legend(&lab.screen);
    }
    Ok(same)
}

/// The checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    comm: &Comm,
    journal: &Journal,
    symptoms: &Symptoms,
    beside: Beside,
    end: &End,
) -> Vec<String> {
    if comm.rank() != 0 {
        return Vec::new();
    }
    lab.screen.say("");
    symptoms.show(&lab.screen, "sequences", lab.config.batch * lab.config.ranks);
    let mut checks = Checks::new(&lab.screen);
    checks.beside("losses and norms", beside);
    checks.training(&lab.config, journal, end);
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --all, --dry-run, --link 100us,62MB/s, --break no-average";
        lab.screen.say(lab.lesson.ending(&lab.screen, more));
    }
    failed
}

fn introduce(lab: &Lab) {
    let small = lab.args.train.model.preset == Preset::Baby && lab.config.steps <= 1000;
    let time = (!small).then_some("--dry-run says how long");
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    report::data(&lab.screen, &lab.corpus);
    if lab.args.log.all {
        report::alphabet(&lab.screen, &lab.corpus);
        report::splits(&lab.screen, &lab.corpus);
    }
    report::run(&lab.screen, &lab.config);
    if let Some(algorithm) = lab.args.all_reduce {
        let words = format!(
            "{}, in the rounds that lab01 draws; the backward pass waits",
            algorithm.name()
        );
        lab.screen.say(lab.screen.row("all-reduce", &words));
    }
    // A dry run prints them anyway.
    if lab.args.log.all && !lab.args.run.dry_run {
        report::settings(&lab.screen, &lab.config);
    }
    if lab.args.log.all {
        let around = Around {
            eval: &lab.eval,
            eval_only: lab.args.eval_only,
            log_interval: lab.args.log.interval(lab.config.steps),
            init_from: lab.args.train.model.init_from.as_deref(),
            dataset: &lab.corpus.name,
            out: &lab.args.run.folder("lab03"),
        };
        lab.screen.say(Settings::of(&lab.config, &around).show(&lab.screen));
    }
}
