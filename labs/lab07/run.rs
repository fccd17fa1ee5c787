//! What runs in the lab, and in which order.

use crate::apparatus::{self, Measured, Memory, NumberedBackwards, Plan, logged};
use crate::flags::{Args, Break, Report};
use crate::lesson::compare_first_losses;
use anyhow::Result;
use kit::machine::{allocate_matmul_room, resident_memory};
use kit::show::{folded, only_if};
use kit::trace::{self, Trace};
use kit::{Checks, Footprint, LabRun, progress, report};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::parallel::zero::Mistake;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{ComputedStep, Observer, Setup};
use shardlab::{allocator, launch};
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
    run: LabRun,
}

/// Runs the lab as its flags say.
pub fn run(mut args: Args) -> Result<()> {
    let run = LabRun::of("lab07", &args.run)?;
    if args.axes.report == Some(Report::Source) {
        logged::show(&run.screen);
        return Ok(());
    }
    let corpus = args.train.data.corpus()?;
    let strategy = match args.strategy.of_lab("lab07")? {
        Some(given) => {
            launch::ranks(Some(given.ranks()), 8)?;
            let micro_batches = given.micro_batches.or(Some(args.axes.micro_batches));
            Strategy { micro_batches, ..given }
        }
        None => args.axes.strategy(launch::ranks(args.ranks, 8)?)?,
    };
    args.train.take(&strategy);
    if args.train.data.global_batch.is_none() {
        args.train.data.batch = args.train.data.batch.or(Some(2));
    }
    let config = args.train.resolve(strategy.data, Some(args.steps), &corpus)?;
    args.strategy.ensure_divides(&config.shape)?;
    strategy.check(&config.shape)?;
    args.axes.refuse(&config, &strategy)?;
    let mut zero = config.zero(strategy.zero);
    zero.add_tied = args.axes.broken != Some(Break::Untied);
    zero.mistake = (args.axes.broken == Some(Break::LocalNorm)).then_some(Mistake::LocalNorm);
    if args.axes.broken == Some(Break::EarlyAverage) {
        // So what the mistake does depends on neither the clock nor buckets.
        zero.overlap = false;
        zero.reduce_bucket = 1;
    }
    let broken = args.axes.broken;
    let run = LabRun { ranks: strategy.ranks(), is_broken: broken.is_some(), ..run };
    let lab = Lab {
        plan: Plan { config, strategy },
        zero,
        broken,
        as_a_log: args.axes.report.is_some(),
        waits: args.run.comm.link.is_some(),
        trace: args.trace,
        corpus,
        run,
    };
    lab.run.ensure_fits(&Footprint::new(&lab.plan.config))?; // one rank's, which is compared with
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.run.is_dry {
        return Ok(());
    }
    lab.run.train(&lab.plan.config, |comm, checks| one_rank(&lab, comm, checks))
}

/// One rank's part, and its checks.
fn one_rank(lab: &Lab, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let plan = &lab.plan;
    let screen = &lab.run.screen;
    allocate_matmul_room();
    let before = allocator::live();
    let start = Instant::now();
    kit::neighbours::warn(comm, &plan.layout())?;
    let mut training =
        Setup::new(&plan.config, &plan.strategy).zero(lab.zero.clone()).begin(comm)?;
    let text = &lab.corpus.train;
    let mut observer: Box<dyn Observer> = match lab.broken {
        Some(Break::EarlyAverage) => Box::new(NumberedBackwards::of(&mut training)),
        _ => Box::new(()),
    };
    let mesh = training.mesh.clone();
    let mut measured = Measured {
        set_up: start.elapsed().as_secs_f64(),
        parameters: training.zero.params().numel(),
        ..Measured::default()
    };
    let mut trace = Trace::new(comm, lab.trace.as_deref())?;
    let sent = apparatus::traffic(&mesh);
    let mut seconds = Vec::new();
    for step in 0..plan.config.steps {
        let ranks = comm.size();
        progress(comm, || format!("{ranks} ranks: step {} of {}", step + 1, plan.config.steps));
        let start = Instant::now();
        let taken = training.step_with(text, step, &mut *observer)?;
        measured.add(&taken);
        let ComputedStep { ran, averaged, times, .. } = &taken.computed;
        let optimizer = (times.averaged, times.updated);
        trace.pipelined(step + 1, ran, averaged, optimizer);
        seconds.push(start.elapsed().as_secs_f64());
        if step == 0 {
            let allocated = (allocator::live() - before) as f64;
            let max_allocated = (allocator::peak() - before) as f64;
            let reserved = resident_memory().unwrap_or_default() as f64; // of the process
            measured.memory = Memory { allocated, max_allocated, reserved };
        }
    }
    let after = apparatus::traffic(&mesh);
    measured.traffic = std::array::from_fn(|i| after[i] - sent[i]);
    let few = measured.losses.len().min(3);
    let mut beside = None;
    // The lesson's part shards no sequence, and tiles no matrix.
    if lab.broken.is_none() && !plan.strategy.sequence && plan.strategy.tiles == 1 {
        progress(comm, || format!("the lesson's version: {few} steps"));
        let library = &measured.losses[..few];
        let zero = lab.zero.clone();
        let Plan { config, strategy } = plan;
        beside = Some(compare_first_losses(comm, config, strategy, zero, text, library)?);
    }
    let params = training.stages.chunks[0].params.clone();
    let run = training.zero.whole(|| apparatus::collect(&mesh, &measured, &params))?;
    let traced = trace.write(comm)?;
    if comm.rank() != 0 {
        return Ok(());
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
    if let Some(beside) = beside {
        checks.beside("first losses", beside);
    }
    // Of a mistake nobody asks whether it is only roundings.
    let compared = match lab.broken {
        None => run.steady_steps(plan, &lab.corpus.train, &one)?,
        Some(_) => one.losses.len(),
    };
    run.check(checks, plan, &one, compared);
    checks.end_with("More: --report, --report source, --break untied, --link 1ms,1GB/s");
    Ok(())
}

fn introduce(lab: &Lab) {
    let Lab { plan, run, .. } = lab;
    let screen = &run.screen;
    run.heading(None);
    if lab.as_a_log {
        for line in plan.job().header() {
            screen.say(folded(&line, screen.width));
        }
        return;
    }
    let strategy = &plan.strategy;
    let sizes = plan.layout().sizes;
    let dot = screen.separator();
    report::ranks(screen, strategy.ranks());
    let zero = only_if(
        plan.job().distributed_optimizer,
        format!("{dot}ZeRO-{} over data", strategy.zero.number()),
    );
    let mesh = format!(
        "{} data x {} pipeline x {} tensor{zero}",
        sizes.data, sizes.pipeline, sizes.tensor
    );
    let chunks = match strategy.chunks {
        1 => String::new(),
        chunks => format!(", {chunks} chunks per rank"),
    };
    let schedule = format!("{dot}{}{chunks}", strategy.schedule().name());
    run.row("mesh", &format!("{mesh}{schedule}"));
    let shape = &plan.config.shape;
    let block = format!("block {}{dot}", shape.block);
    run.row("model", &report::model(screen, shape, &block));
    let batch = format!(
        "{} replicas x {} micro-batches x {}",
        sizes.data, plan.config.grad_accum, plan.config.batch
    );
    let sequences = plan.job().global_batch();
    let steps = plan.config.steps;
    run.row("batch", &format!("{sequences} sequences per step ({batch}){dot}{steps} steps"));
    report::precision(screen, &plan.config);
    screen.say(format!("\n{}", plan.map(screen)));
}
