//! lab04 · Who holds what
//!
//! What does each rank have to hold, and what does it cost to hold less?
//!
//! Data parallelism keeps N copies of everything: parameters, gradients, the optimizer's state. A rank needs most of it for a
//! moment only. ZeRO divides it, stage by stage, and brings it together when it is needed; its last stage is called FSDP.
//!
//! Run `cargo run --bin lab04`. Four ranks train the same small GPT in all four stages. You will see who holds
//! what, measured beside the formula; what each stage sends, which is the same for the first three and half as much again
//! for the last; losses that are equal to the last bit; and a step of the last stage, unit by unit. Then give each
//! rank less memory: `--memory-limit 6`; store in fewer bits: `--dtype bf16`; break it: `--break local-norm`; or train
//! with one stage, as long as you like: `--zero 3`.

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use shardlab::checkpoint;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::model::{Gpt, Tiled};
use shardlab::parallel::zero::{Event, Stage, Zero, ZeroConfig};
use shardlab::show::Screen;
use shardlab::study::zero::{self, Measured};
use shardlab::tensor::matmul;
use shardlab::train::parity::{self, ZeroReplica};
use shardlab::train::{
    self, Checks, Clock, Config, Diverged, Due, End, EvalConfig, EvalFlags, Evaluator, Footprint, Journal, LogFlags,
    Part, RunFlags, StepOutcome, Symptoms, TrainFlags, ZeroFlags, clip_scale, report,
};
use shardlab::workbook::Lesson;
use std::process::ExitCode;

/// ZeRO's stages, side by side: what each rank holds, and what it costs to hold less. With --zero, one of them alone.
#[derive(Parser)]
#[command(name = "lab04", version)]
// Stages side by side train a few steps to be compared, and write nothing.
#[command(mut_group("EvalFlags", |flags| flags.requires("stage")), mut_group("LogFlags", |flags| flags.requires("stage")))]
#[command(mut_arg("dry_run", |flag| flag.requires("stage")))]
struct Args {
    /// Ranks that train together: threads of this process [default: 4], or the launcher's processes
    #[arg(long)]
    ranks: Option<usize>,
    /// Training steps [default: 6, with --zero the preset's]
    #[arg(long)]
    steps: Option<usize>,
    #[command(flatten)]
    zero: ZeroFlags,
    /// Leave out stages in which a rank's parameters, gradients and optimizer take more than this
    #[arg(long, value_name = "MB")]
    memory_limit: Option<f64>,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    eval: EvalFlags,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Get something wrong, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "stage")]
    broken: Option<Break>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Break {
    /// All padding is booked on the last rank
    PaddingOnLast,
    /// Each rank clips by the norm of its own share of the gradients
    LocalNorm,
    /// A parameter is used after its release
    UsedAfterRelease,
}

/// What all ranks read and none changes.
struct Lab {
    args: Args,
    config: Config,
    /// Stage 0's, or that of the one stage.
    zero: ZeroConfig,
    tiles: usize,
    /// With one stage alone: it is trained in full.
    eval: Option<EvalConfig>,
    corpus: Corpus,
    /// Those that fit, and are wanted.
    stages: Vec<Stage>,
    screen: Screen,
    /// One thread's matmul peak, FLOP/s; 0 where nobody asks.
    peak: f64,
    lesson: Lesson,
}

fn main() -> ExitCode {
    launch::main(|| run(launch::arguments()?))
}

fn run(args: Args) -> Result<()> {
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let alone = args.zero.stage();
    let steps = if alone.is_some() { args.steps } else { args.steps.or(Some(6)) };
    let config = args.train.resolve(launch::ranks(args.ranks, 4)?, steps, &corpus)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(&corpus), &corpus)?;
    args.log.check()?;
    let zero = args.zero.resolve(config.adamw)?;
    let tiles = args.zero.tiles(config.shape.embd)?;
    let mut stages = zero::within(args.memory_limit.map(|mb| mb * 1e6), alone, &config, &zero)?;
    match alone {
        Some(stage) => stages = vec![stage],
        None => zero::ensure_padding_is_little(&config)?,
    }
    refuse_breaking_nothing(&args, &config, &stages)?;
    let (eval, peak) = (alone.map(|_| eval), alone.map_or(0.0, |_| matmul::measured_peak()));
    let (screen, lesson) = (Screen::detect(args.run.ascii), Lesson::of("lab04")?);
    let lab = Lab { args, config, zero, tiles, eval, corpus, stages, screen, peak, lesson };
    let first = ZeroConfig { stage: lab.stages[0], ..lab.zero.clone() };
    let (footprint, free) =
        (Footprint::sharded(&lab.config, &first), launch::free_memory(launch::ranks_here(lab.config.ranks)));
    if lab.args.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, &footprint, free, lab.peak);
        }
        return Ok(());
    }
    free.map_or(Ok(()), |free| footprint.ensure_fits(free))?;
    let folder = lab.args.run.folder("lab04");
    lab.eval.as_ref().map_or(Ok(()), |_| checkpoint::ensure_writable(&folder))?;
    let options = lab.args.run.comm.options(&folder);
    let rank = |comm| one_rank(&lab, &comm).map_err(|error| lab.config.explain(error));
    let failed = launch::run_with(lab.config.ranks, &options, rank)?;
    ensure!(failed[0].is_empty(), "{}", failed[0].join("; "));
    Ok(())
}

/// Refuses a --break that no check could notice.
fn refuse_breaking_nothing(args: &Args, config: &Config, stages: &[Stage]) -> Result<(), BadInput> {
    use Break::{LocalNorm, PaddingOnLast};
    let (what, help) = match args.broken {
        Some(PaddingOnLast) if config.ranks < 3 => ("padding spans ranks only from 3 ranks on", "give --ranks 3"),
        Some(LocalNorm) if config.ranks < 2 => ("--break needs ranks that can differ", "give --ranks 2 or more"),
        Some(LocalNorm) if config.clip == 0.0 => ("--break local-norm clips, and --clip is 0", "leave --clip out"),
        Some(LocalNorm) if stages[0] != Stage::Zero => {
            ("--break local-norm shows beside stage 0", "leave --memory-limit out")
        }
        _ => return Ok(()),
    };
    Err(BadInput::new(what, help))
}

/// What one rank does. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    if comm.rank() == 0 {
        introduce(lab);
    }
    if lab.args.broken == Some(Break::PaddingOnLast) {
        return Ok(zero::padding_on_last(comm, &lab.screen));
    }
    let (config, corpus, screen) = (&lab.config, &lab.corpus, &lab.screen);
    let save_to = Some(lab.args.run.folder("lab04"));
    let evaluator = lab.eval.as_ref().map(|eval| Evaluator { config, eval, corpus, screen, comm, save_to });
    let same_as_one_rank = evaluator.is_none() || compare_with_one_rank(lab, comm)?;
    let (due, log) = lab.eval.as_ref().map_or((Due::NEVER, None), |eval| (eval.due, Some(&lab.args.log)));
    let (mut all, mut end) = (Vec::new(), None);
    for &stage in &lab.stages {
        let mut journal = Journal::new(comm, screen, config.rates(lab.peak), due, log)?;
        let trained = train(lab, comm, stage, evaluator.as_ref(), &mut journal);
        let (gpt, mut zero, symptoms, events) =
            trained.map_err(|error| Diverged::at(journal.records.len() + 1, error))?;
        if stage == Stage::Three && lab.args.broken == Some(Break::UsedAfterRelease) {
            parity::backward(&gpt, config, &corpus.train, comm.rank(), 0)?;
        }
        let measured = Measured::look(comm, stage, &mut zero, journal.own_steps(), journal.sent(), events)?;
        if let Some(evaluator) = &evaluator {
            journal.expect(report::bytes_of_zero(&zero, stage));
            journal.show()?;
            let hashes = zero.whole(|| {
                evaluator.last_words(&gpt)?;
                train::all_hashes(comm, &gpt.params)
            })?;
            end = Some((journal, End { hashes, drawn: symptoms.drawn_by_all(comm)?, same_as_one_rank }));
        }
        if comm.rank() == 0 {
            zero::show_holdings(screen, config, &measured, lab.zero.precision);
            all.push(measured);
        }
    }
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    zero::show_costs(screen, config, &all, lab.zero.precision);
    Ok(check(lab, comm, &all, end.as_ref()))
}

// ANCHOR: train
/// The lesson: the same loop for every stage. `zero` decides where gradients go and where parameters come from.
fn train(
    lab: &Lab,
    comm: &Comm,
    stage: Stage,
    evaluator: Option<&Evaluator>,
    journal: &mut Journal,
) -> Result<(Gpt, Zero, Symptoms, Vec<Event>)> {
    let config = &lab.config;
    let gpt = Gpt::build(&config.shape, &Tiled(if stage == Stage::Three { lab.tiles } else { 1 }))?;
    let mut zero = begin(lab, comm, stage, &gpt)?; // each rank makes its own share of the model, and no rank the whole
    let (sampler, mut symptoms, mut events) = (config.sampler(comm.rank()), Symptoms::default(), Vec::new());
    if let Some(evaluator) = evaluator {
        zero.whole(|| evaluator.run(&gpt, 0, journal))?;
    }

    for step in 0..config.steps {
        let (mut clock, before) = (Clock::start(), comm.traffic());
        let mut loss = 0.0;
        zero.begin()?; // from here on, a layer that asks for a parameter gets it, wherever it is
        for micro in 0..config.grad_accum {
            let batch = sampler.batch(&lab.corpus.train, step, micro);
            symptoms.draw(batch.starts.iter().map(|&start| start as u64));
            clock.lap(Part::Data);
            let share = (gpt.loss(&batch, &config.pass(step, &batch.sequences))? / config.grad_accum as f64)?;
            loss += f64::from(share.to_scalar::<f32>()?);
            clock.lap(Part::Forward);
            zero.synchronise(micro + 1 == config.grad_accum);
            share.backward()?; // gradients leave for their owners while this goes on
            clock.lap(Part::Backward);
        }
        let averaged = zero.finish()?; // each rank has the averaged gradients of what it owns
        clock.lap(Part::Backward);
        let (lr, grad_norm) = (config.schedule.at(step), zero.norm()?); // all ranks agree on the norm of all gradients
        zero.update(lr, clip_scale(grad_norm, config.clip)?)?; // each rank updates what it owns
        clock.lap(Part::Optimizer);
        events = zero.events();

        let step = step + 1;
        journal.step(StepOutcome { step, loss, grad_norm, lr }, &clock, comm.traffic() - before, &averaged)?;
        if let Some(evaluator) = evaluator.filter(|evaluator| evaluator.eval.due.after(step)) {
            zero.whole(|| evaluator.run(&gpt, step, journal))?; // every rank has all parameters meanwhile
        }
    }
    Ok((gpt, zero, symptoms, events))
}
// ANCHOR_END: train

/// The model as it begins: made from a random seed; or, with --init-from, read by rank 0 and then divided.
fn begin(lab: &Lab, comm: &Comm, stage: Stage, gpt: &Gpt) -> Result<Zero> {
    let local_norm = lab.args.broken == Some(Break::LocalNorm);
    let zero = ZeroConfig { stage, local_norm, ..lab.zero.clone() };
    let Some(dir) = &lab.args.train.model.init_from else {
        return Zero::init(&gpt.params, comm, zero, lab.config.seed);
    };
    gpt.params.allocate(lab.config.seed);
    if comm.rank() == 0 {
        checkpoint::load(dir, &gpt.params)?;
    }
    Zero::new(&gpt.params, comm, zero)
}

/// With --zero: three steps of the small model by all ranks, divided; and by one rank that takes their batches in turns.
fn compare_with_one_rank(lab: &Lab, comm: &Comm) -> Result<bool> {
    const STEPS: usize = 3;
    let (config, text, precision) = (lab.config.parity_check(), &lab.corpus.train, lab.zero.precision);
    let replica = ZeroReplica::new(&config, text, comm, lab.zero.clone())?;
    let parallel = parity::parallel_zero(comm, replica, STEPS)?;
    let serial = || parity::serial(ZeroReplica::alone(&config, text, precision)?, comm.size(), STEPS);
    let same = parity::compare(comm, &lab.screen, precision.loss_bound(), &parallel, serial)?;
    if comm.rank() == 0 {
        report::legend(&lab.screen);
    }
    Ok(same)
}

fn introduce(lab: &Lab) {
    let (screen, config) = (&lab.screen, &lab.config);
    screen.say(lab.lesson.heading(screen, lab.eval.as_ref().map(|_| "--dry-run says how long")));
    report::data(screen, &lab.corpus);
    report::run(screen, config);
    screen.say(screen.row("holds", &zero::holds(screen, config.shape.parameters(), lab.zero.precision)));
    if lab.eval.is_some() {
        return screen.say(screen.row("divided", zero::divided(lab.stages[0])));
    }
    for stage in Stage::ALL.into_iter().filter(|stage| !lab.stages.contains(stage)) {
        screen.say(screen.row("", &format!("--zero {} does not fit", stage.number())));
    }
}

/// The checks, for the reader and for the exit code.
fn check(lab: &Lab, comm: &Comm, all: &[Measured], end: Option<&(Journal, End)>) -> Vec<String> {
    let (screen, config) = (&lab.screen, &lab.config);
    screen.say("");
    let mut checks = Checks::new(screen);
    zero::compare(&mut checks, comm, all, lab.zero.precision.loss_bound(), config.grad_accum > 1, lab.tiles > 1);
    if let Some((journal, end)) = end {
        checks.training(config, journal, end);
    }
    zero::check_memory(&mut checks, config, all, lab.zero.precision, lab.args.memory_limit);
    let failed = checks.failed();
    if failed.is_empty() {
        screen.say(lab.lesson.ending(screen, ""));
    }
    failed
}
