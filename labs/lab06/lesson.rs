//! lab06 · Who waits for whom
//!
//! What if the model is divided by layers: who waits for whom?
//!
//! Tensor parallelism sends activations inside every layer. A pipeline sends them only between
//! stages: each rank holds some layers, and micro-batches travel from rank to rank. The order of
//! the passes decides how long ranks wait, and how many activations they keep. One list of
//! operations per rank is checked, simulated, drawn, and then trains the model.
//!
//! [`run_in_order`] below is a pipeline in its plainest form; the first check compares its
//! gradients with those of the library's, which trains.
//!
//! Run `cargo run --bin lab06`. Four ranks train a small GPT for three steps. The screen draws the
//! step as predicted and as measured, with the bubble and each rank's activations, and checks every
//! loss and parameter against one rank's. Compare all schedules: `--compare`; choose one:
//! `--schedule interleaved`; print it as Megatron-LM's log: `--print-order`; break it:
//! `--break early-recv`; save memory: `--recompute 1`; time it: `--bench`.

use anyhow::{Context, Result};
use candle_core::{Device, Tensor, Var};
use clap::Parser;
use kit::busy::Watch;
use kit::flags::{one_micro_step, positive, without};
use kit::help;
use kit::show::Screen;
use kit::trace::{self, Trace};
use kit::{Beside, Checks, Lesson, RunFlags, TrainFlags};
use lab06::{Break, Measured, PipelineFlags, Predicted, Way};
use shardlab::allocator::Counting;
use shardlab::comm::Comm;
use shardlab::data::{Batch, Corpus};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::mesh::{Coordinates, Layout, Mesh, Order};
use shardlab::model::{Gpt, Input, Pass};
use shardlab::parallel::pipeline::{Pipeline, Schedule};
use shardlab::parallel::zero::{Stage, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{Config, PipelinePlan, Pipelined, Unpipelined, unpipelined};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A pipeline: ranks that hold different layers, and micro-batches that travel through them.
#[derive(Parser)]
#[command(name = "lab06", version)]
#[command(mut_arg("grad_accum", |flag| flag.hide(true).value_parser(one_micro_step)))]
#[command(mut_arg("global_batch", |flag| without::<usize>(flag, "give --micro-batches, and --batch for the size of each")))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(after_long_help = help::examples("lab06", &[
    ("--compare", "all schedules, side by side"),
    ("--schedule interleaved --trace step.json", "another schedule, and a timeline of every rank"),
    ("--recompute 1", "less memory for more time"),
]))]
struct Args {
    /// Training steps of each schedule
    #[arg(long, default_value_t = 3, value_parser = positive(), help_heading = help::TRAINING)]
    steps: usize,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Run all schedules, and put them side by side
    #[arg(long, help_heading = help::INSTEAD)]
    compare: bool,
    /// Print every rank's order, or one rank's, as Megatron-LM's log has it
    #[arg(long, value_name = "RANK", help_heading = help::INSTEAD)]
    print_order: Option<Option<usize>>,
    /// Let ranks choose the next pass: each by itself, until two disagree, and together
    #[arg(long, help_heading = help::INSTEAD)]
    dynamic: bool,
    /// Make a mistake, and see what notices
    #[arg(long = "break", value_enum, conflicts_with = "compare", help_heading = help::BREAK)]
    broken: Option<Break>,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", conflicts_with = "bench", help_heading = help::OUTPUT)]
    trace: Option<PathBuf>,
    /// Measure a pipeline's speed beside one rank's
    #[arg(long, conflicts_with_all = ["broken", "compare"], help_heading = help::INSTEAD)]
    bench: bool,
}

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    plans: Vec<PipelinePlan>,
    /// The least seconds of a forward pass, so that ranks on shared cores behave like devices; 0 is
    /// none.
    pace: f64,
    /// A moment before the run, from which the charts' times count.
    epoch: Instant,
    config: Config,
    corpus: Corpus,
    screen: Screen,
    lesson: Lesson,
}

/// An entry of a list: the forward or the backward pass of the micro-batch with this number.
#[derive(Clone, Copy)]
enum Op {
    Forward(usize),
    Backward(usize),
}

// ANCHOR: order
/// GPipe's order, the same for every stage: all micro-batches forward, then all of them backward.
fn gpipe(micro_batches: usize) -> Vec<Op> {
    let forward = (0..micro_batches).map(Op::Forward);
    let backward = (0..micro_batches).map(Op::Backward);
    forward.chain(backward).collect()
}
// ANCHOR_END: order

// ANCHOR: heart
/// Runs one rank's list on its layers. Backward passes add the weights' gradients to
/// `stage.params`.
fn run_in_order(
    order: &[Op],
    stage: &Gpt,
    micro_batches: &[(Batch, Pass)],
    shape: [usize; 3], // of activations: sequences, length, width
    comm: &Comm,
) -> Result<()> {
    let rank = comm.rank();
    let is_last = rank + 1 == comm.size();
    let mut kept = HashMap::new(); // what backward passes need of forward passes
    for op in order {
        match *op {
            Op::Forward(i) => {
                let x = match rank {
                    0 => None,
                    _ => Some(recv(comm, rank - 1, shape)?),
                };
                // The last stage's is the loss.
                let y = forward(stage, x.as_ref(), &micro_batches[i])?;
                if !is_last {
                    send(comm, rank + 1, &y)?;
                }
                kept.insert(i, (x, y));
            }
            Op::Backward(i) => {
                let (x, y) = kept.remove(&i).context("backward before forward")?;
                let gradients = if is_last {
                    (y / micro_batches.len() as f64)?.backward()? // of the mean loss
                } else {
                    let dy = recv(comm, rank + 1, shape)?;
                    (y * dy.as_tensor())?.sum_all()?.backward()? // a sum whose gradient in y is dy
                };
                if let Some(x) = x {
                    send(comm, rank - 1, gradients.get(&x).context("x is not used")?)?;
                }
            }
        }
    }
    Ok(())
}
// ANCHOR_END: heart

/// A stage's forward pass: of tokens on the first stage, of activations on the others. The last
/// stage returns the loss.
fn forward(stage: &Gpt, x: Option<&Var>, (batch, pass): &(Batch, Pass)) -> Result<Tensor> {
    let input = match x {
        Some(x) => Input::Hidden(x),
        None => Input::Tokens { ids: &batch.inputs, length: batch.length },
    };
    Ok(stage.forward(input, &batch.targets, pass)?)
}

/// Sends activations or their gradient.
fn send(comm: &Comm, to: usize, x: &Tensor) -> Result<()> {
    let numbers = x.flatten_all()?.to_vec1::<f32>()?;
    Ok(comm.send(&numbers, to)?)
}

/// Receives activations or their gradient: a variable, so that a backward pass computes its
/// gradient.
fn recv(comm: &Comm, from: usize, shape: [usize; 3]) -> Result<Var> {
    let mut numbers = vec![0f32; shape.iter().product()];
    comm.recv(&mut numbers, from)?;
    Ok(Var::from_vec(numbers, &shape, &Device::Cpu)?)
}

/// One step as above, and with the library's pipeline in the same order: every gradient of this
/// rank's stage.
fn compare_with_the_library(lab: &Lab, comm: &Comm) -> Result<Beside> {
    let config = &lab.config;
    let text = &lab.corpus.train[..];
    let pipeline = Pipeline {
        ranks: comm.size(),
        chunks: 1,
        micro_batches: config.grad_accum,
    };
    let plan = PipelinePlan {
        pipeline,
        schedule: Schedule::GPipe,
        partition: lab.plans[0].partition,
        recompute: 0,
    };
    let sizes = Coordinates { data: 1, pipeline: comm.size(), tensor: 1 };
    let layout = Layout { sizes, order: Order::default() };
    let mesh = Mesh::new(comm, layout)?;
    // One replica: nothing for ZeRO to divide. And no tensor ranks.
    let zero = ZeroConfig::new(Stage::Ddp, Precision::F32, config.adamw);
    let mut pipelined = Pipelined::new(config, &mesh, &plan, (false, 1), zero)?;
    pipelined.forward_backward(text, 0)?;
    let stage = &pipelined.stages.chunks[0];
    let library = stage.params.gradients().to_vec();

    stage.params.zero_gradients();
    let sampler = config.sampler(0);
    let draw = |micro| {
        let batch = sampler.batch(text, 0, micro);
        let pass = config.pass(0, &batch.sequences);
        (batch, pass)
    };
    let micro_batches: Vec<_> = (0..config.grad_accum).map(draw).collect();
    let shape = [config.batch, config.shape.block, config.shape.embd];
    let order = gpipe(config.grad_accum);
    run_in_order(&order, stage, &micro_batches, shape, comm)?;
    let lesson = stage.params.gradients().to_vec();
    Ok(Beside::of(comm, &lesson, &library, 0.0)?)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab06")?;
    if args.bench {
        args.pipeline.for_benchmark(&mut args.train);
    }
    let shape = args.pipeline.pipeline()?;
    let mut plan = args.pipeline.plan(shape)?;
    if let Some(rank) = args.print_order {
        return Ok(lab06::print_order(&screen, &plan, rank)?);
    }
    if args.dynamic {
        return lab06::dynamic::dynamic(&screen, &Corpus::find(args.train.data.data.as_deref())?);
    }
    if shape.ranks < 2 {
        let what = "one rank waits for no other: a pipeline has at least 2";
        return Err(BadInput::new(what, "give --stages 2 or more").into());
    }
    if args.broken == Some(Break::SmallGroup) {
        plan.pipeline.chunks = shape.chunks.max(2);
        plan.schedule = Schedule::Interleaved { group: shape.ranks / 2 };
    } else if !args.compare {
        plan.schedule.check(&plan.pipeline)?;
    }
    let plans = match (args.compare, args.pipeline.recompute) {
        (true, _) => args.pipeline.plans(shape.ranks),
        (_, 0) => vec![plan],
        _ => vec![PipelinePlan { recompute: 0, ..plan }, plan],
    };
    let most = plans.iter().map(|plan| plan.pipeline.stages()).max().unwrap_or(1);
    args.pipeline.default_to_many_small_blocks(&mut args.train, most);
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let mut config = args.train.resolve(1, Some(args.steps), &corpus)?;
    config.grad_accum = shape.micro_batches;
    let ranks = shape.ranks;
    let lab = Lab {
        pace: args.pipeline.pace(ranks),
        epoch: Instant::now(),
        args,
        plans,
        config,
        corpus,
        screen,
        lesson,
    };
    for plan in &lab.plans {
        plan.partition.layers(&lab.config.shape, plan.pipeline.stages())?;
        // Refuses what would never end, before anything runs.
        lab06::programs(plan, lab.args.broken)?;
    }
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.args.bench {
        return lab06::benchmark(&lab.screen, &lab.config, &lab.corpus, ranks);
    }
    if lab.args.run.dry_run {
        return plan_only(&lab);
    }
    let options = lab.args.run.comm.options(&lab.args.run.folder("lab06"));
    launch::one_compute_thread_a_rank();
    // Once per process: every rank compares its own stages.
    let one = unpipelined(&lab.config, &lab.corpus.train, lab.config.steps)
        .map_err(|e| lab.config.explain(e))?;
    kit::run(ranks, &options, |comm| {
        one_rank(&lab, &one, &comm).map_err(|e| lab.config.explain(e))
    })
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, one: &Unpipelined, comm: &Comm) -> Result<Vec<String>> {
    let config = &lab.config;
    let screen = &lab.screen;
    let text = &lab.corpus.train;
    let beside = compare_with_the_library(lab, comm)?;
    let mut trace = Trace::new(comm, lab.args.trace.as_deref())?;
    let mut all: Vec<(Predicted, Measured)> = Vec::new();
    let watch = Watch::start();
    for &plan in &lab.plans {
        let way = Way {
            plan,
            pace: lab.pace,
            broken: lab.args.broken,
            epoch: lab.epoch,
        };
        let measured = lab06::measure(comm, way, config, text, Some(one), &mut trace)?;
        all.push((measured.predicted(lab.pace)?, measured));
    }
    let traced = trace.write(comm)?;
    if comm.rank() != 0 {
        return Ok(Vec::new());
    }
    let busy = watch.row(screen, launch::ranks_here(comm.size()));
    match &all[..] {
        [(predicted, measured)] => {
            screen.say(format!("\n{}", lab06::charts(screen, predicted, measured)));
            screen.say(lab06::bubble(screen, predicted));
            if let Some(busy) = busy {
                screen.say(busy);
            }
            if config.steps >= 10 {
                screen.say(lab06::losses(screen, measured));
            }
            screen.say(format!("\n{}\n", lab06::holdings(screen, config, predicted, measured)));
        }
        several => {
            let table = if lab.args.compare {
                lab06::compared(screen, several)
            } else {
                lab06::recomputed(screen, several)
            };
            let busy = busy.map_or(String::new(), |busy| format!("\n{busy}"));
            screen.say(format!("\n{table}{busy}\n"));
        }
    }
    if let Some(path) = traced {
        screen.say(trace::row(screen, path));
    }
    let mut checks = Checks::new(screen);
    checks.beside("gradients under GPipe", beside);
    lab06::check(&mut checks, config, &all);
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --compare, --schedule gpipe, --print-order, --break untied, --bench";
        screen.say(lab.lesson.ending(screen, more));
    }
    Ok(failed)
}

/// Draws the predicted steps. Without a pace, a forward pass is given 5 ms.
fn plan_only(lab: &Lab) -> Result<()> {
    let pace = if lab.pace > 0.0 { lab.pace } else { 5e-3 };
    for plan in lab.plans.iter().filter(|_| launch::is_first_process()) {
        let predicted = Predicted::paced(plan.schedule, plan.pipeline, pace)?;
        lab.screen.say(format!("\n{}", lab06::planned(&lab.screen, plan, &predicted)));
    }
    Ok(())
}

fn introduce(lab: &Lab) {
    let time = lab.args.bench.then_some("about 1 minute");
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    lab06::introduce(&lab.screen, &lab.config, &lab.plans, lab.pace);
}
