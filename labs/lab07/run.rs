//! What runs in the lab, and in which order.

use crate::apparatus::{self, Measured, Memory, Plan, logged};
use crate::flags::{Args, Break, Report};
use crate::lesson::compare_first_losses;
use anyhow::Result;
use kit::show::{Screen, folded};
use kit::trace::{self, Trace};
use kit::{Checks, Footprint, Lesson, progress, report};
use shardlab::allocator;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::mesh::Mesh;
use shardlab::parallel::ZeroConfig;
use shardlab::tensor::{Precision, matmul};
use shardlab::train::{Diverged, Pipelined, clip_scale};
use std::path::PathBuf;
use std::time::Instant;

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

/// Runs the lab as its flags say.
pub fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab07")?;
    if args.axes.report == Some(Report::Source) {
        logged::show(&screen);
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
    let sent = apparatus::traffic(&mesh);
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
    let after = apparatus::traffic(&mesh);
    measured.traffic = std::array::from_fn(|i| after[i] - sent[i]);
    let few = measured.losses.len().min(3);
    let mut beside = None;
    if lab.broken.is_none() {
        progress(comm, || format!("the lesson's version: {few} steps"));
        let library = &measured.losses[..few];
        let text = &lab.corpus.train;
        beside = Some(compare_first_losses(comm, plan, lab.zero.clone(), text, library)?);
    }
    let run = apparatus::collect(&mesh, &measured, pipelined.zero.params())?;
    let traced = trace.write(comm)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    progress(comm, || "the same steps on one rank".into());
    let one = apparatus::one_rank(&plan.config, &lab.corpus.train)?;
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
