//! lab07 · Three axes, one job
//!
//! How do the three axes share one job?
//!
//! Large models train on a mesh of ranks. Tensor ranks share every layer, pipeline ranks hold
//! different layers, data ranks hold the same layers and take different sequences. Each axis has
//! its own groups of ranks, its own bytes and its own link. With ZeRO-1, data ranks also divide the
//! optimizer's state.
//!
//! [`Part`] below is one rank's share of all three; the first check trains with it, beside the
//! library's trainer.
//!
//! Run `cargo run --bin lab07`. Eight ranks, two on each axis, train one small GPT. The screen
//! shows the map of the mesh, the bytes on each axis, and one rank's losses beside theirs. Read it
//! as a Megatron-LM log: `--report`; rebuild a real log: `--report source`; break it:
//! `--break local-norm`; factor the ranks in a different way: `--tp 1 --pp 4`.

use anyhow::Result;
use clap::Parser;
use kit::flags::{one_micro_step, positive, without};
use kit::help;
use kit::show::{Screen, folded};
use kit::trace::{self, Trace};
use kit::{Beside, Checks, Footprint, Lesson, RunFlags, TrainFlags, progress, report};
use lab07::{AxesFlags, Break, Measured, Memory, Plan, Report, logged};
use shardlab::allocator::{self, Counting};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::mesh::Mesh;
use shardlab::parallel::pipeline::Stages;
use shardlab::parallel::{TensorParallel, Zero, ZeroConfig};
use shardlab::tensor::{Precision, matmul};
use shardlab::train::{Diverged, PipelinePlan, Pipelined, clip_scale};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Data, pipeline and tensor parallelism in one job, with ZeRO-1.
#[derive(Parser)]
#[command(name = "lab07", version)]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab keeps no weights: leave it out")))]
#[command(mut_arg("grad_accum", |flag| flag.hide(true).value_parser(one_micro_step)))]
#[command(after_long_help = help::examples("lab07", &[
    ("--tp 1 --pp 4", "eight ranks on two axes: data and pipeline"),
    ("--report", "this run as Megatron-LM's log has it"),
    ("--steps 5 --trace steps.json", "a timeline of every rank"),
]))]
struct Args {
    /// Ranks: threads of this process [default: 8], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    /// Training steps
    #[arg(long, default_value_t = 20, value_parser = positive(), help_heading = help::TRAINING)]
    steps: usize,
    #[command(flatten)]
    axes: AxesFlags,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    trace: Option<PathBuf>,
}

/// The run's settings, which all ranks share.
struct Lab {
    plan: Plan,
    zero: ZeroConfig,
    broken: Option<Break>,
    as_a_log: bool,
    /// Whether there is a simulated link, so that times on the axes are worth showing.
    waits: bool,
    /// The file of `--trace`.
    trace: Option<PathBuf>,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
}

// ANCHOR: heart
/// One rank's part of a model that is divided along three axes.
struct Part {
    layers: TensorParallel,
    stage: Stages,
    zero: Zero,
}

impl Part {
    fn new(world: &Comm, plan: &Plan, zero: ZeroConfig) -> Result<Part> {
        // A rank has a place on each axis. Ranks whose places differ on one axis alone are a group:
        // `split` joins ranks that name the same number, and here the places on the other two axes
        // make that number.
        let at = plan.layout.coordinates(world.rank());
        let color = |a: usize, b: usize| (a * world.size() + b) as u64;
        let tensor = world.split(color(at.pipeline, at.data), at.tensor as i64)?;
        let pipeline = world.split(color(at.data, at.tensor), at.pipeline as i64)?;
        let data = world.split(color(at.pipeline, at.tensor), at.data as i64)?;

        // Tensor ranks cut every matrix: this makes such layers. They do not shard the sequence.
        let layers = TensorParallel::new(tensor, false, plan.multiple);
        // Pipeline ranks divide the layers that are made of these matrices.
        let shape = &plan.config.shape;
        let PipelinePlan { pipeline: stages, partition, .. } = plan.pipeline;
        let stage = Stages::new(stages, &pipeline, shape, partition, &layers)?;
        // Data ranks hold the same slices of the same layers: they average gradients, and with
        // ZeRO-1 divide the optimizer's state.
        let zero = Zero::init(&stage.chunks[0].params, &data, zero, plan.config.seed)?;
        // Where the axes meet: one norm of all gradients, and the token table of the first and the
        // last stage.
        let zero = zero.with_tensor(&layers)?.with_pipeline(&pipeline)?;
        Ok(Part { layers, stage, zero })
    }
}
// ANCHOR_END: heart

/// Trains the first steps with the part above: this rank's share of the mesh. Returns the losses.
fn train_plainly(lab: &Lab, world: &Comm, steps: usize) -> Result<Vec<f64>> {
    let plan = &lab.plan;
    let config = &plan.config;
    let Part { layers, stage, mut zero } = Part::new(world, plan, lab.zero.clone())?;
    let pipeline = stage.group();
    let order = plan.pipeline.schedule.order(&plan.pipeline.pipeline, pipeline.rank());
    let program = plan.pipeline.pipeline.with_messages(pipeline.rank(), &order);
    let shape = [config.batch, config.shape.block, config.shape.embd];
    // One replica, one batch.
    let sampler = config.sampler(plan.layout.coordinates(world.rank()).data);
    let mut losses = Vec::new();
    for step in 0..steps {
        let draw = |micro| {
            let batch = sampler.batch(&lab.corpus.train, step, micro);
            let pass = layers.pass(config.pass(step, &batch.sequences), batch.length);
            (batch, pass)
        };
        let micro_batches: Vec<_> = (0..config.grad_accum).map(draw).collect();
        zero.begin()?;
        let ran = stage.step(&program, &micro_batches, shape, &zero)?;
        zero.finish()?; // both ends add up the token table, data ranks average
        zero.step(config.schedule.at(step), config.clip)?;
        let mut loss = [ran.losses.iter().sum::<f64>() / config.grad_accum as f64];
        pipeline.broadcast(&mut loss, pipeline.size() - 1)?; // the last stage has computed it
        losses.push(loss[0]);
    }
    Ok(losses)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab07")?;
    if args.axes.report == Some(Report::Source) {
        source(&screen);
        return Ok(());
    }
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let layout = args.axes.layout(launch::ranks(args.ranks, 8)?)?;
    args.train.data.grad_accum = args.axes.micro_batches;
    if args.train.data.global_batch.is_none() {
        args.train.data.batch = args.train.data.batch.or(Some(2));
    }
    let config = args.train.resolve(layout.sizes.data, Some(args.steps), &corpus)?;
    let pipeline = args.axes.plan(&config)?;
    let stage = args.axes.stage();
    let free = launch::free_memory(launch::ranks_here(layout.ranks()));
    let mut zero = ZeroConfig::new(stage, Precision::F32, config.adamw);
    zero.local_norm = args.axes.broken == Some(Break::LocalNorm);
    zero.local_tied = args.axes.broken == Some(Break::Untied);
    if args.axes.broken == Some(Break::EarlyAverage) {
        // So what the mistake does depends on neither the clock nor buckets.
        zero.overlap = false;
        zero.reduce_bucket = 1;
    }
    let multiple = args.axes.make_vocab_size_divisible_by;
    let plan = Plan { config, layout, pipeline, zero: stage, multiple };
    let lab = Lab {
        plan,
        zero,
        broken: args.axes.broken,
        as_a_log: args.axes.report.is_some(),
        waits: args.run.comm.link.is_some(),
        trace: args.trace,
        corpus,
        screen,
        lesson,
    };
    let footprint = Footprint::new(&lab.plan.config); // one rank's, which is compared with
    footprint.ensure_fits(free)?;
    if launch::is_first_process() {
        introduce(&lab);
    }
    if args.run.dry_run {
        return Ok(());
    }
    let options = args.run.comm.options(&args.run.folder("lab07"));
    kit::run(layout.ranks(), &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| lab.plan.config.explain(error))
    })
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    let plan = &lab.plan;
    let screen = &lab.screen;
    matmul::allocate_room();
    let before = allocator::live();
    let start = Instant::now();
    kit::neighbours::warn(comm, &plan.layout)?;
    let mesh = Mesh::new(comm, plan.layout)?;
    let mut pipelined = Pipelined::new(
        &plan.config,
        &mesh,
        &plan.pipeline,
        (false, plan.multiple),
        lab.zero.clone(),
    )?;
    pipelined.stages.averages_early = lab.broken == Some(Break::EarlyAverage);
    let mut measured = Measured {
        set_up: start.elapsed().as_secs_f64(),
        parameters: pipelined.zero.params().numel(),
        ..Measured::default()
    };
    let mut trace = Trace::new(comm, lab.trace.as_deref())?;
    let sent = lab07::traffic(&mesh);
    let mut seconds = Vec::new();
    for step in 0..plan.config.steps {
        let ranks = comm.size();
        progress(comm, || format!("{ranks} ranks: step {} of {}", step + 1, plan.config.steps));
        let start = Instant::now();
        one_step(lab, &mut pipelined, step, &mut measured, &mut trace)
            .map_err(|error| Diverged::at(step + 1, error))?;
        seconds.push(start.elapsed().as_secs_f64());
        if step == 0 {
            let allocated = (allocator::live() - before) as f64;
            let max_allocated = (allocator::peak() - before) as f64;
            let reserved = launch::resident_memory().unwrap_or_default() as f64; // of the process
            measured.memory = Memory { allocated, max_allocated, reserved, max_reserved: reserved };
        }
    }
    let after = lab07::traffic(&mesh);
    measured.traffic = std::array::from_fn(|i| after[i] - sent[i]);
    let few = measured.losses.len().min(3);
    let mut beside = None;
    if lab.broken.is_none() {
        progress(comm, || format!("the lesson's version: {few} steps"));
        let lesson = train_plainly(lab, comm, few)?;
        beside = Some(Beside::of(comm, &lesson, &measured.losses[..few], 0.0)?);
    }
    let run = lab07::collect(&mesh, &measured, pipelined.zero.params())?;
    let traced = trace.write(comm)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    progress(comm, || "the same steps on one rank".into());
    let one = lab07::one_rank(&plan.config, &lab.corpus.train)?;
    if lab.as_a_log {
        for line in run.log(plan, &seconds) {
            screen.say(folded(&line, screen.width));
        }
    } else {
        screen.say(format!("\n{}", run.axes(screen, plan, lab.waits)));
        screen.say(format!("\n{}", run.steps(screen, &one)));
        screen.say(run.memory(screen, plan));
    }
    if let Some(path) = traced {
        screen.say(trace::row(screen, path));
    }
    screen.say("");
    let mut checks = Checks::new(screen);
    if let Some(beside) = beside {
        checks.beside("first losses", beside);
    }
    run.check(&mut checks, plan, &one);
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --report, --report source, --break untied, --link 1ms,1GB/s";
        screen.say(lab.lesson.ending(screen, more));
    }
    Ok(failed)
}

// ANCHOR: train
/// One step, and who communicates in it.
fn one_step(
    lab: &Lab,
    pipelined: &mut Pipelined,
    step: usize,
    measured: &mut Measured,
    trace: &mut Trace,
) -> Result<()> {
    let config = &lab.plan.config;
    let start = Instant::now();
    // Tensor ranks, inside every layer. Pipeline ranks, between stages. Data ranks, in the last
    // backward pass.
    let ran = pipelined.forward_backward(&lab.corpus.train, step)?;
    let passed = start.elapsed();
    // First and last stage add up their gradients of the token table. Then data ranks average the
    // table, too.
    let reduced = pipelined.zero.finish()?;
    let averaged = start.elapsed();
    let norm = pipelined.zero.norm()?; // of all gradients, on all three axes
    pipelined
        .zero
        // Data ranks gather the parameters.
        .update(config.schedule.at(step), clip_scale(norm, config.clip)?)?;
    let updated = start.elapsed();
    let phases = [passed, averaged - passed, updated - averaged];
    measured.phases.push(phases.map(|time| time.as_secs_f64()));
    measured.losses.push(pipelined.loss(&ran)?); // only the last stage has computed it
    measured.norms.push(norm);
    trace.pipelined(step + 1, &ran, &reduced, (start + averaged, start + updated));
    Ok(())
}
// ANCHOR_END: train

fn introduce(lab: &Lab) {
    let Lab { plan, screen, .. } = lab;
    screen.say(lab.lesson.heading(screen, None));
    if lab.as_a_log {
        for line in plan.job().header() {
            screen.say(folded(&line, screen.width));
        }
        return;
    }
    let sizes = plan.layout.sizes;
    let dot = screen.separator();
    report::ranks(screen, plan.layout.ranks());
    let zero = if plan.job().distributed_optimizer {
        format!("{dot}ZeRO-1 over data")
    } else {
        String::new()
    };
    let mesh = format!(
        "{} data x {} pipeline x {} tensor{zero}",
        sizes.data, sizes.pipeline, sizes.tensor
    );
    let chunks = match plan.pipeline.pipeline.chunks {
        1 => String::new(),
        chunks => format!(", {chunks} chunks per rank"),
    };
    let schedule = format!("{dot}{}{chunks}", plan.pipeline.schedule.name());
    screen.say(screen.row("mesh", &format!("{mesh}{schedule}")));
    let shape = &plan.config.shape;
    let block = format!("block {}{dot}", shape.block);
    screen.say(screen.row("model", &report::model(screen, shape, &block)));
    let batch = format!(
        "{} replicas x {} micro-batches x {}",
        sizes.data, plan.config.grad_accum, plan.config.batch
    );
    let sequences = plan.job().global_batch();
    screen.say(screen.row(
        "batch",
        &format!("{sequences} sequences per step ({batch}){dot}{} steps", plan.config.steps),
    ));
    screen.say(format!("\n{}", plan.map(screen)));
}

/// Rebuilds the log of a real job, and shows why its memory lies below its estimate.
fn source(screen: &Screen) {
    if launch::is_first_process() {
        let job = logged::job();
        let memory = logged::memory();
        let memory = memory.iter().enumerate().map(|(rank, memory)| memory.line(rank, 1));
        let header = job.header().into_iter();
        let counts = header.chain(job.counts());
        let begin = counts.chain(job.begin());
        for line in begin.chain(job.estimate()).chain(memory) {
            screen.say(folded(&line, screen.width));
        }
        screen.say(format!("\n{}", logged::below_the_estimate(screen)));
    }
}
