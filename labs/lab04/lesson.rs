//! lab04 · Who holds what
//!
//! What does each rank have to hold, and what does it cost to hold less?
//!
//! Data parallelism keeps N copies of the parameters, the gradients and the optimizer state. ZeRO
//! shards them, stage by stage, and gathers them when they are needed. Its last stage is also
//! called FSDP.
//!
//! [`Shard`] below is the first stage by hand; the first check trains with it, beside the
//! library's.
//!
//! Run `cargo run --bin lab04`. Four ranks train one small GPT in all four stages. The screen
//! compares what a rank holds and sends, beside the formulas, and predicts the stages' step times
//! for a large model on a real network. All stages must train the same model to the last bit. Then
//! draw it: `--show holdings`, `--show timeline`; give each rank less memory: `--memory-limit 6`;
//! break it: `--break local-norm`; or train with one stage, as long as you like: `--zero 3`.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use kit::Lesson;
use kit::flags::{is_positive, number, positive};
use kit::help;
use kit::show::Screen;
use kit::{
    Beside, Checks, Clock, End, EvalFlags, Evaluator, Footprint, Journal, LogFlags, Part, RunFlags,
    StepOutcome, Steps, Symptoms, TrainFlags, ZeroFlags, parity, progress, report,
};
use lab04::{Job, Measured};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus};
use shardlab::error::BadInput;
use shardlab::model::{Gpt, Tiled};
use shardlab::optim::AdamWConfig as Adam;
use shardlab::parallel::Averaged;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::tensor::{Precision, matmul};
use shardlab::train::{self, Config, Diverged, Due, EvalConfig, clip_scale, initial};
use shardlab::{checkpoint, launch};
use std::ops::Range;
use std::process::ExitCode;

/// ZeRO's stages, side by side: what each rank holds, and what it costs to hold less. With --zero,
/// only one stage.
#[derive(Parser)]
#[command(name = "lab04", version)]
// Stages side by side train a few steps to be compared, and write nothing.
#[command(mut_group("EvalFlags", |flags| flags.requires("stage")), mut_group("LogFlags", |flags| flags.requires("stage")))]
#[command(mut_arg("dry_run", |flag| flag.requires("stage")))]
#[command(after_long_help = help::examples("lab04", &[
    ("--show holdings", "what each rank holds, drawn for every stage"),
    ("--zero 3 --steps 50 --trace step.json", "train with one stage, with a timeline"),
    ("--zero 3 --offload cpu", "keep the state in the host's memory"),
]))]
struct Args {
    /// Number of ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    /// Training steps [default: 6; with --zero the preset's]
    #[arg(long, value_parser = positive(), help_heading = help::TRAINING)]
    steps: Option<usize>,
    #[command(flatten)]
    zero: ZeroFlags,
    /// Draw what each rank holds, or one computed step as a timeline
    #[arg(long, value_enum, help_heading = help::INSTEAD)]
    show: Option<Show>,
    /// Leave out stages in which a rank holds more MB of parameters, gradients and optimizer states
    #[arg(long, value_name = "MB", value_parser = number::<f64>(is_positive, "megabytes, a finite number above 0"), help_heading = help::INSTEAD)]
    memory_limit: Option<f64>,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    eval: EvalFlags,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "stage", help_heading = help::BREAK)]
    broken: Option<Break>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Show {
    /// Which rank holds which slice, in every stage
    Holdings,
    /// One step, unit by unit: gathers, passes, reductions and waiting. The step is computed, not
    /// run
    Timeline,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Break {
    /// All padding is recorded on the last rank
    PaddingOnLast,
    /// Each rank clips by the norm of the gradients in its slice
    LocalNorm,
    /// A layer uses a parameter after its release
    UsedAfterRelease,
}

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    config: Config,
    job: Job,
    /// The settings of the first stage; the others differ only in their number.
    zero: ZeroConfig,
    tiles: usize,
    /// Only with one stage, which is trained in full.
    eval: Option<EvalConfig>,
    corpus: Corpus,
    /// The stages to train.
    stages: Vec<Stage>,
    screen: Screen,
    /// One thread's matmul peak, FLOP/s; 0 if no figure needs it.
    peak: f64,
    lesson: Lesson,
}

// ANCHOR: heart
/// One rank of ZeRO-1. It holds all parameters and gradients, but Adam's moments for its slice
/// only.
struct Shard {
    /// A copy of all parameters, one after the other, with zeros after them that make all slices
    /// equally long.
    parameters: Vec<f32>,
    slice: Range<usize>,
    /// The moments of the slice: means of the gradients, and of their squares.
    m: Vec<f32>,
    v: Vec<f32>,
}

impl Shard {
    /// Takes step number `t`, counted from 1. `gradients` are this rank's, of all parameters.
    fn step(&mut self, gradients: &[f32], t: i32, lr: f64, adam: &Adam, comm: &Comm) -> Result<()> {
        let mut padded = gradients.to_vec();
        padded.resize(self.parameters.len(), 0.0);
        let mut mean = vec![0.0; self.slice.len()];
        comm.reduce_scatter(&padded, &mut mean, Reduce::Mean)?; // the mean gradients of my slice

        let mut mine = self.parameters[self.slice.clone()].to_vec();
        let beta1 = adam.beta1 as f32;
        let beta2 = adam.beta2 as f32;
        let rest1 = (1.0 - adam.beta1) as f32;
        let rest2 = (1.0 - adam.beta2) as f32;
        // Both means begin at 0. These divisors make up for it.
        let step_size = (lr / (1.0 - adam.beta1.powi(t))) as f32;
        let inverse_root = (1.0 / (1.0 - adam.beta2.powi(t)).sqrt()) as f32;
        for (i, &g) in mean.iter().enumerate() {
            self.m[i] = beta1 * self.m[i] + rest1 * g;
            self.v[i] = beta2 * self.v[i] + rest2 * g * g;
            let root = self.v[i].sqrt() * inverse_root;
            mine[i] -= step_size * self.m[i] / (root + adam.epsilon as f32);
        }
        comm.all_gather(&mine, &mut self.parameters)?; // everyone's slices
        Ok(())
    }
}
// ANCHOR_END: heart

impl Shard {
    /// This rank's shard before the first step.
    fn new(parameters: &[f32], comm: &Comm) -> Shard {
        let length = parameters.len().div_ceil(comm.size());
        let mut padded = parameters.to_vec();
        padded.resize(length * comm.size(), 0.0);
        Shard {
            parameters: padded,
            slice: comm.rank() * length..(comm.rank() + 1) * length,
            m: vec![0.0; length],
            v: vec![0.0; length],
        }
    }
}

// ANCHOR: plainly
/// Trains `gpt` with ZeRO-1. Returns the losses.
fn train_plainly(comm: &Comm, gpt: &Gpt, config: &Config, text: &[u32]) -> Result<Vec<f64>> {
    let mut shard = Shard::new(&gpt.params.values(), comm);
    let sampler = config.sampler(comm.rank()); // every rank draws its own sequences
    let mut losses = Vec::new();
    for step in 0..config.steps {
        let batch = sampler.batch(text, step, 0);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        loss.backward()?;
        let lr = config.schedule.at(step);
        let t = step as i32 + 1;
        shard.step(&gpt.params.gradients(), t, lr, &config.adamw, comm)?;
        let mut values = gpt.params.values_mut();
        let length = values.len();
        values.copy_from_slice(&shard.parameters[..length]);
        losses.push(f64::from(loss.to_scalar::<f32>()?));
    }
    Ok(losses)
}
// ANCHOR_END: plainly

/// Three steps of a small model, as above and with the library's ZeRO-1, which cuts gradients into
/// buckets and reduces them during the backward pass.
fn compare_with_the_library(lab: &Lab, comm: &Comm) -> Result<Beside> {
    let small = lab.config.parity_check();
    let config = Config {
        steps: 3,
        grad_accum: 1,
        // What the plain step leaves out: weight decay, and clipping. That needs the norm of all
        // slices; an exercise asks for it.
        clip: 0.0,
        adamw: Adam { weight_decay: 0.0, ..small.adamw },
        ..small
    };
    let text = &lab.corpus.train[..];
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    let lesson = train_plainly(comm, &gpt, &config, text)?;

    let gpt = Gpt::new(&config.shape)?;
    let zero = ZeroConfig::new(Stage::One, Precision::F32, config.adamw);
    let mut zero = Zero::init(&gpt.params, comm, zero, config.seed)?;
    let sampler = config.sampler(comm.rank());
    let mut library = Vec::new();
    for step in 0..config.steps {
        let draw = |micro| sampler.batch(text, step, micro);
        let taken = one_step(&config, &gpt, &mut zero, step, draw, &mut Clock::start());
        let (outcome, _) = taken.map_err(|error| Diverged::at(step + 1, error))?;
        library.push(outcome.loss);
    }
    let in_one_order = comm.adds_in_rank_order();
    Ok(Beside::of_losses(comm, &lesson, &library, in_one_order)?)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let alone = args.zero.stage();
    if alone.is_none() && args.show != Some(Show::Timeline) {
        lab04::default_to_many_small_blocks(&mut args.train.model, &mut args.zero);
    }
    let steps = if alone.is_some() {
        args.steps
    } else {
        args.steps.or(Some(6))
    };
    let config = args.train.resolve(launch::ranks(args.ranks, 4)?, steps, &corpus)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    let mut zero = args.zero.resolve(config.adamw)?;
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab04")?;
    if args.show == Some(Show::Timeline) {
        zero.stage = alone.unwrap_or(Stage::Three);
        if launch::is_first_process() {
            screen.say(lab04::timeline(&screen, &config, &zero, args.run.comm.link));
        }
        return Ok(());
    }
    let tiles = args.zero.tiles(config.shape.embd)?;
    let fitting = lab04::within(args.memory_limit.map(|mb| mb * 1e6), alone, &config, &zero)?;
    let stages = match alone {
        Some(stage) => vec![stage],
        None => {
            lab04::ensure_padding_is_little(&config)?;
            fitting
        }
    };
    refuse_breaking_nothing(&args, &config, &stages)?;
    zero.stage = stages[0];
    // One reduction in flight at a time: then the peak of memory does not depend on timing.
    zero.overlap &= alone.is_some();
    let eval = alone.map(|_| eval);
    let peak = alone.map_or(0.0, |_| matmul::measured_peak());
    let lab = Lab {
        job: Job::of(&config, &zero),
        args,
        config,
        zero,
        tiles,
        eval,
        corpus,
        stages,
        screen,
        peak,
        lesson,
    };
    let footprint = Footprint::sharded(&lab.config, &lab.zero);
    let free = launch::free_memory(launch::ranks_here(lab.config.ranks));
    if lab.args.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, &footprint, free, lab.peak);
        }
        return Ok(());
    }
    footprint.ensure_fits(free)?;
    let folder = lab.args.run.folder("lab04");
    if lab.eval.is_some() {
        checkpoint::ensure_writable(&folder)?;
    }
    let options = lab.args.run.comm.options(&folder);
    kit::run(lab.config.ranks, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| lab.config.explain(error))
    })
}

/// Refuses a --break that no check could notice.
fn refuse_breaking_nothing(args: &Args, config: &Config, stages: &[Stage]) -> Result<(), BadInput> {
    use Break::{LocalNorm, PaddingOnLast};
    let (what, help) = match args.broken {
        Some(PaddingOnLast) if config.ranks < 3 => {
            ("padding spans ranks only from 3 ranks on", "give --ranks 3")
        }
        Some(LocalNorm) if config.ranks < 2 => {
            ("--break needs ranks that can differ", "give --ranks 2 or more")
        }
        Some(LocalNorm) if config.clip == 0.0 => {
            ("--break local-norm clips, and --clip is 0", "leave --clip out")
        }
        Some(LocalNorm) if stages[0] != Stage::Ddp => {
            ("--break local-norm shows beside stage 0", "leave --memory-limit out")
        }
        _ => return Ok(()),
    };
    Err(BadInput::new(what, help))
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    if comm.rank() == 0 {
        introduce(lab);
    }
    if lab.args.broken == Some(Break::PaddingOnLast) {
        return Ok(lab04::padding_on_last(comm, &lab.screen));
    }
    let config = &lab.config;
    let corpus = &lab.corpus;
    let screen = &lab.screen;
    let folder = lab.args.run.folder("lab04");
    let _claim = if lab.eval.is_some() {
        Some(checkpoint::Claim::take(comm, &folder)?)
    } else {
        None
    };
    let save_to = Some(folder);
    let evaluator =
        lab.eval
            .as_ref()
            .map(|eval| Evaluator { config, eval, corpus, screen, comm, save_to });
    let mut beside = None;
    let mut same_as_one_rank = true;
    if evaluator.is_none() {
        progress(comm, || "the lesson's version and the library's: 3 steps each".into());
        beside = Some(compare_with_the_library(lab, comm)?);
    } else {
        let text = &corpus.train[..];
        same_as_one_rank = lab04::same_as_one_rank(comm, screen, config, text, &lab.zero)?;
    }
    let (due, log) = lab
        .eval
        .as_ref()
        .map_or((Due::NEVER, None), |eval| (eval.due, Some(&lab.args.log)));
    let mut all = Vec::new();
    let mut end = None;
    let mut steps = Steps::new(lab.stages.len() * config.steps);
    for &stage in &lab.stages {
        let mut journal = Journal::new(comm, screen, kit::Rates::of(config, lab.peak), due, log)?;
        let trained = train(lab, comm, stage, evaluator.as_ref(), (&mut journal, &mut steps));
        let (gpt, mut zero, symptoms) =
            trained.map_err(|error| Diverged::at(journal.records.len() + 1, error))?;
        if stage == Stage::Three && lab.args.broken == Some(Break::UsedAfterRelease) {
            // Stage 3 has freed the parameters: this pass must be refused.
            parity::loss(&gpt, config, &corpus.train, comm.rank(), 0, 0)?.backward()?;
        }
        let losses = journal.records.iter().map(|r| r.loss).collect();
        let norm = journal.records[0].grad_norm;
        let measured = Measured::look(comm, stage, &mut zero, losses, norm, journal.sent())?;
        if evaluator.is_some() {
            journal.expect(report::bytes_of_zero(&zero, stage));
            journal.show(!lab.zero.overlap || lab.args.run.comm.link.is_some())?;
            let hashes = zero.whole(|| train::all_hashes(comm, &gpt.params))?;
            end = Some((
                journal,
                End {
                    hashes,
                    drawn: symptoms.drawn_by_all(comm)?,
                    same_as_one_rank,
                },
            ));
        }
        all.push(measured);
    }
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    lab04::show(
        screen,
        &all,
        &lab.job,
        lab.eval.is_some() || lab.args.show == Some(Show::Holdings),
    );
    Ok(check(lab, comm, &all, end.as_ref(), beside))
}

/// Trains with one stage.
fn train(
    lab: &Lab,
    comm: &Comm,
    stage: Stage,
    evaluator: Option<&Evaluator>,
    (journal, steps): (&mut Journal, &mut Steps),
) -> Result<(Gpt, Zero, Symptoms)> {
    let gpt =
        Gpt::build(&lab.config.shape, &Tiled(if stage == Stage::Three { lab.tiles } else { 1 }))?;
    let local_norm = lab.args.broken == Some(Break::LocalNorm);
    let zero = ZeroConfig { stage, local_norm, ..lab.zero.clone() };
    let mut zero =
        initial(&gpt, comm, zero, lab.config.seed, lab.args.train.model.init_from.as_deref())?;
    let sampler = lab.config.sampler(comm.rank());
    let mut symptoms = Symptoms::default();
    if let Some(evaluator) = evaluator {
        if stage == Stage::Three && comm.rank() == 0 {
            lab.screen.say(lab04::persistent(zero.units()));
        }
        zero.whole(|| evaluator.run(&gpt, 0, journal))?;
    }
    for step in 0..lab.config.steps {
        let mut clock = Clock::start();
        let before = comm.traffic();
        let draw = |micro| {
            let batch = sampler.batch(&lab.corpus.train, step, micro);
            symptoms.draw(batch.numbers());
            batch
        };
        let (outcome, averaged) = one_step(&lab.config, &gpt, &mut zero, step, draw, &mut clock)?;
        journal.step(outcome, &clock, comm.traffic() - before, &averaged)?;
        journal.gathered(step + 1, &zero.events());
        if evaluator.is_none() {
            lab04::progress(comm, steps, (&lab.stages, stage), step + 1);
        }
        if let Some(evaluator) = evaluator.filter(|evaluator| evaluator.eval.due.after(step + 1)) {
            // Every rank holds all parameters meanwhile.
            zero.whole(|| evaluator.run(&gpt, step + 1, journal))?;
        }
    }
    Ok((gpt, zero, symptoms))
}

// ANCHOR: train
/// One step, the same for every stage: `zero` decides where gradients go and where parameters come
/// from.
fn one_step(
    config: &Config,
    gpt: &Gpt,
    zero: &mut Zero,
    step: usize,
    mut draw: impl FnMut(usize) -> Batch,
    clock: &mut Clock,
) -> Result<(StepOutcome, Vec<Averaged>)> {
    let mut loss = 0.0;
    zero.begin()?; // from here on, a layer that asks for a parameter gets it
    for micro in 0..config.grad_accum {
        let batch = draw(micro);
        clock.lap(Part::Data);
        let share =
            (gpt.loss(&batch, &config.pass(step, &batch.sequences))? / config.grad_accum as f64)?;
        loss += f64::from(share.to_scalar::<f32>()?);
        clock.lap(Part::Forward);
        zero.synchronise(micro + 1 == config.grad_accum);
        share.backward()?; // gradients leave for their owners meanwhile
        clock.lap(Part::Backward);
    }
    let averaged = zero.finish()?; // each rank has the averaged gradients of its slice
    clock.lap(Part::Backward);
    let lr = config.schedule.at(step);
    let grad_norm = zero.norm()?; // the norm of all gradients
    zero.update(lr, clip_scale(grad_norm, config.clip)?)?; // each rank updates its slice
    clock.lap(Part::Optimizer);
    Ok((StepOutcome { step: step + 1, loss, grad_norm, lr }, averaged))
}
// ANCHOR_END: train

fn introduce(lab: &Lab) {
    lab.screen.say(
        lab.lesson
            .heading(&lab.screen, lab.eval.as_ref().map(|_| "--dry-run predicts how long")),
    );
    let corpus = lab.eval.as_ref().map(|_| &lab.corpus);
    lab04::introduce(&lab.screen, corpus, &lab.config, &lab.job, &lab.stages);
}

/// Runs the checks, for the reader and for the exit code.
fn check(
    lab: &Lab,
    comm: &Comm,
    all: &[Measured],
    end: Option<&(Journal, End)>,
    beside: Option<Beside>,
) -> Vec<String> {
    let screen = &lab.screen;
    let config = &lab.config;
    screen.say("");
    let mut checks = Checks::new(screen);
    if let Some(beside) = beside {
        checks.beside("3 losses with ZeRO-1", beside);
    }
    lab04::compare(
        &mut checks,
        comm,
        all,
        lab.zero.precision.loss_bound(),
        config.grad_accum > 1,
        lab.tiles > 1,
    );
    lab04::check_norms(&mut checks, screen, all, config.clip);
    if let Some((journal, end)) = end {
        checks.training(config, journal, end);
    }
    lab04::check_memory(&mut checks, config, all, &lab.job, lab.args.memory_limit);
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --show holdings, --show timeline, --grad-accum 4, --dtype bf16, --zero 3";
        screen.say(lab.lesson.ending(screen, more));
    }
    failed
}
