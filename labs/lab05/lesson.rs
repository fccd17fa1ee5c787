//! lab05 · One layer, many ranks
//!
//! What if one layer is too large for a rank, even while it computes?
//!
//! ZeRO shards what a rank holds, but each rank still computes whole layers. Tensor parallelism
//! shards the computation: each rank multiplies with its slice of every matrix. The ranks then add
//! up their results, twice per block and pass. Sequence parallelism also shards what lies between
//! the matrices.
//!
//! [`mlp`] below is one shared layer in its plainest form; the first check runs it beside the
//! library's, which trains the GPT.
//!
//! Run `cargo run --bin lab05`. Two ranks share every layer of a small GPT: the screen compares
//! what a rank holds, keeps and sends with one rank's figures, and the checks compare every
//! gradient. Draw it: `--show gemm`, `--show mesh`; break it: `--break no-g`; time it: `--bench`;
//! or train with it, together with data parallelism and ZeRO: `--tp 2 --ranks 4 --zero 1`.

use anyhow::Result;
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor};
use clap::Parser;
use kit::Lesson;
use kit::flags::{ensure_ranks_can_differ, positive, without};
use kit::help;
use kit::show::Screen;
use kit::{
    Checks, Clock, End, EvalFlags, Evaluator, Footprint, Journal, LogFlags, Part, Rates, RunFlags,
    StepOutcome, Symptoms, TrainFlags, ZeroFlags, report,
};
use lab05::{Break, Shared, TensorFlags, Way};
use shardlab::allocator::Counting;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus};
use shardlab::mesh::{self, Axis, Mesh};
use shardlab::model::Gpt;
use shardlab::parallel::tensor::padded;
use shardlab::parallel::{Averaged, TensorParallel, ZeroConfig};
use shardlab::plan::Shards;
use shardlab::tensor::matmul;
use shardlab::train::{self, Config, Diverged, EvalConfig, Preset, clip_scale};
use shardlab::{checkpoint, launch};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tensor and sequence parallelism: ranks that share every layer. With --tp, the model is trained
/// in full.
#[derive(Parser)]
#[command(name = "lab05", version)]
// The comparison trains a few steps, and writes nothing.
#[command(mut_group("EvalFlags", |flags| flags.requires("full")), mut_group("LogFlags", |flags| flags.requires("full")))]
#[command(mut_group("ZeroFlags", |flags| flags.requires("full")), mut_arg("dry_run", |flag| flag.requires("full")))]
#[command(mut_arg("tiles", |flag| without::<usize>(flag, "tensor ranks cut every matrix anyway: leave it out")))]
#[command(mut_arg("init_from", |flag| flag.requires("full")))]
#[command(after_long_help = help::examples("lab05", &[
    ("--tp 2 --ranks 4 --zero 1", "tensor, data and ZeRO together, in full"),
    ("--show mesh --ranks 16", "which ranks are neighbours"),
    ("--break no-g", "a missing all-reduce, and the check that notices"),
]))]
struct Args {
    /// Ranks: threads of this process [default: 2, or --tp], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    /// Training steps [default: 50, with --tp the preset's]
    #[arg(long, value_parser = positive(), help_heading = help::TRAINING)]
    steps: Option<usize>,
    #[command(flatten)]
    tensor: TensorFlags,
    #[command(flatten)]
    zero: ZeroFlags,
    #[command(flatten)]
    train: TrainFlags,
    #[command(flatten)]
    eval: EvalFlags,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    run: RunFlags,
    /// Make a mistake, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "full", help_heading = help::BREAK)]
    broken: Option<Break>,
    /// Measure tokens per second beside one rank and beside DDP, here and over a slow link
    #[arg(long, conflicts_with_all = ["broken", "full", "steps"], help_heading = help::INSTEAD)]
    bench: bool,
}

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    layout: mesh::Layout,
    config: Config,
    zero: ZeroConfig,
    /// Only with --tp, where the model is trained in full.
    eval: Option<EvalConfig>,
    corpus: Corpus,
    screen: Screen,
    /// One thread's matmul peak, FLOP/s; 0 if no figure needs it.
    peak: f64,
    lesson: Lesson,
}

// ANCHOR: heart
/// The MLP of a transformer block on one of the ranks that share it: gelu(x·A)·B, where the rank
/// has some columns of A and the same rows of B. Shapes: x [rows, width], the same on all ranks; a
/// [width, inner / ranks]; b [inner / ranks, width].
fn mlp(x: &Tensor, a: &Tensor, b: &Tensor, group: &Comm) -> candle_core::Result<Tensor> {
    let x = f(x, group)?;
    // My columns of x·A: they are whole sums, so gelu may be applied.
    let h = x.matmul(a)?.gelu_erf()?;
    let y = h.matmul(b)?; // my summand of the result
    g(&y, group)
}

/// Megatron's f, before the first matrix. Forward, nothing: every rank uses the same x. Backward,
/// it adds up the ranks' gradients of x.
fn f(x: &Tensor, group: &Comm) -> candle_core::Result<Tensor> {
    add_up(x, In::Backward, group)
}

/// Megatron's g, after the second matrix. Forward, it adds up the ranks' summands. Backward,
/// nothing: the gradient of a sum is the gradient of each summand.
fn g(y: &Tensor, group: &Comm) -> candle_core::Result<Tensor> {
    add_up(y, In::Forward, group)
}
// ANCHOR_END: heart

fn add_up(x: &Tensor, pass: In, group: &Comm) -> candle_core::Result<Tensor> {
    let group = group.clone();
    x.contiguous()?.apply_op1(Sum { pass, group })
}

/// The pass in which ranks add up.
#[derive(PartialEq)]
enum In {
    Forward,
    Backward,
}

// ANCHOR: sum
/// Adds up the ranks' tensors in one of the two passes, and leaves them as they are in the other.
struct Sum {
    pass: In,
    group: Comm,
}

impl CustomOp1 for Sum {
    fn name(&self) -> &'static str {
        "sum over the tensor group"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let from = layout.start_offset();
        let mut sum = x.as_slice::<f32>()?[from..from + layout.shape().elem_count()].to_vec();
        if self.pass == In::Forward {
            let summed = self.group.all_reduce(&mut sum, Reduce::Sum);
            summed.map_err(candle_core::Error::wrap)?;
        }
        Ok((CpuStorage::F32(sum), layout.shape().clone()))
    }

    fn bwd(&self, _x: &Tensor, _y: &Tensor, dy: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let mut sum = dy.flatten_all()?.to_vec1::<f32>()?;
        if self.pass == In::Backward {
            let summed = self.group.all_reduce(&mut sum, Reduce::Sum);
            summed.map_err(candle_core::Error::wrap)?;
        }
        Ok(Some(Tensor::from_vec(sum, dy.shape(), dy.device())?))
    }
}
// ANCHOR_END: sum

fn main() -> ExitCode {
    kit::main(run)
}

fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab05")?;
    if let Some(show) = args.tensor.show {
        return args.tensor.draw(&screen, show, args.ranks);
    }
    let corpus = Corpus::find(args.train.data.data.as_deref())?;
    let full = args.tensor.tp.is_some();
    let ranks = launch::ranks(args.ranks, args.tensor.tp.unwrap_or(2).max(1))?;
    let layout = args.tensor.layout(ranks)?;
    if args.bench && args.train.model.preset == Preset::Baby {
        args.train.model.preset = Preset::Char;
    }
    if !full && !args.bench && args.train.model.dropout == 0.0 {
        args.train.model.dropout = 0.1; // the comparison covers the masks
    }
    let few = if args.bench { 2 } else { 50 };
    let config =
        args.train
            .resolve(layout.sizes.data, args.steps.or((!full).then_some(few)), &corpus)?;
    TensorParallel::check(&config.shape, layout.sizes.tensor, args.tensor.sp || !full)?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    let zero = args.zero.resolve(config.adamw)?;
    let peak = if full { matmul::measured_peak() } else { 0.0 };
    let lab = Lab {
        args,
        layout,
        config,
        zero,
        eval: full.then_some(eval),
        corpus,
        screen,
        peak,
        lesson,
    };
    let footprint = Footprint::sharded(&lab.config, &lab.zero);
    let free = launch::free_memory(launch::ranks_here(ranks));
    if lab.args.run.dry_run {
        if launch::is_first_process() {
            introduce(&lab);
            report::dry_run(&lab.screen, &lab.config, &footprint, free, lab.peak);
        }
        return Ok(());
    }
    footprint.ensure_fits(free)?;
    let folder = lab.args.run.folder("lab05");
    if lab.eval.is_some() {
        checkpoint::ensure_writable(&folder)?;
    }
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.args.bench {
        return lab05::benchmark(
            &lab.screen,
            &lab.config,
            &lab.corpus,
            ranks,
            lab.args.run.comm.link,
        );
    }
    let options = lab.args.run.comm.options(&folder);
    kit::run(ranks, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| lab.config.explain(error))
    })
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    kit::neighbours::warn(comm, &lab.layout)?;
    let mesh = Mesh::new(comm, lab.layout)?;
    match &lab.eval {
        Some(eval) => train_in_full(lab, &mesh, eval),
        None => compare(lab, mesh.group(Axis::Tensor)),
    }
}

/// Compares the MLP above with the library's. Then trains a few steps on one rank, and shared by
/// all ranks, and compares.
fn compare(lab: &Lab, group: &Comm) -> Result<Vec<String>> {
    let config = &lab.config;
    let multiple = lab.args.tensor.make_vocab_size_divisible_by;
    let measure = |way, broken, reference: Option<&_>| {
        lab05::measure(group, (way, multiple, broken), config, &lab.corpus.train, reference)
    };
    // The MLP above, beside the library's: the same x, and the same slices of A and B.
    let beside = lab05::compare_mlps(group, config.seed, mlp)?;
    let (one, reference) = measure(Way::OneRank, None, None)?;
    let mut all = vec![one];
    let mut masks = Vec::new();
    // A mistake is shown in plain tensor parallelism alone.
    let ways = if lab.args.broken.is_some() {
        &[Way::Tensor][..]
    } else {
        &[Way::Tensor, Way::Sequence]
    };
    for &way in ways {
        all.push(measure(way, lab.args.broken, reference.as_ref())?.0);
        masks.push(lab05::same_masks(group, config, way == Way::Sequence)?);
    }
    if group.rank() != 0 {
        return Ok(Vec::new());
    }
    lab.screen.say(format!("\n{}\n", lab05::compared(&lab.screen, &all)));
    let mut checks = Checks::new(&lab.screen);
    checks.beside("MLP and its input's gradient", beside);
    lab05::check(&mut checks, &all, &masks);
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --show sum, --show gemm, --show mesh, --break no-g, --bench, --tp 2";
        lab.screen.say(lab.lesson.ending(&lab.screen, more));
    }
    Ok(failed)
}

/// Trains the model that each tensor group shares, with ZeRO in each data group.
fn train_in_full(lab: &Lab, mesh: &Mesh, eval: &EvalConfig) -> Result<Vec<String>> {
    let config = &lab.config;
    let corpus = &lab.corpus;
    let screen = &lab.screen;
    let world = mesh.world();
    let folder = lab.args.run.folder("lab05");
    let _claim = checkpoint::Claim::take(world, &folder)?;
    let same_as_one_rank =
        lab05::same_as_one_rank(mesh, screen, config, &corpus.train, lab.sharing(), &lab.zero)?;
    let rates = Rates { ranks: world.size(), ..Rates::of(config, lab.peak) };
    let mut journal = Journal::new(world, screen, rates, eval.due, Some(&lab.args.log))?;
    let save_to = Some(folder);
    let evaluator = Evaluator { config, eval, corpus, screen, comm: world, save_to };
    let whole = Gpt::new(&config.shape)?; // for evaluation, on every rank
    whole.params.allocate(config.seed);
    let trained = train(lab, mesh, &whole, &evaluator, &mut journal);
    let (mut shared, symptoms) =
        trained.map_err(|error| Diverged::at(journal.records.len() + 1, error))?;
    journal.expect(lab.expected_bytes(&mut shared));
    journal.show(!lab.zero.overlap || lab.args.run.comm.link.is_some())?;
    let seconds = mesh.group(Axis::Tensor).traffic().seconds;
    let hashes = shared.whole(&whole, |whole| train::all_hashes(world, &whole.params))?;
    let drawn = symptoms.drawn_by_all(mesh.group(Axis::Data))?;
    if world.rank() != 0 {
        return Ok(Vec::new());
    }
    let text = format!("{} in the tensor group's collectives", screen.seconds(seconds));
    screen.say(format!("\n{}\n", screen.row("tensor", &text)));
    let mut checks = Checks::new(screen);
    checks.training(config, &journal, &End { hashes, drawn, same_as_one_rank });
    Ok(checks.failed())
}

fn train(
    lab: &Lab,
    mesh: &Mesh,
    whole: &Gpt,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<(Shared, Symptoms)> {
    let config = &lab.config;
    let text = &lab.corpus.train;
    let init_from = lab.args.train.model.init_from.as_deref();
    let mut shared = Shared::new(config, mesh, lab.sharing(), lab.zero.clone(), init_from)?;
    let sampler = config.sampler(mesh.at.data);
    let mut symptoms = Symptoms::default(); // tensor ranks draw the same
    shared.whole(whole, |whole| evaluator.run(whole, 0, journal))?;
    for step in 0..config.steps {
        let mut clock = Clock::start();
        let before = mesh.world().total_traffic();
        let draw = |micro| {
            let batch = sampler.batch(text, step, micro);
            symptoms.draw(batch.numbers());
            batch
        };
        let (outcome, averaged) = one_step(config, &mut shared, step, draw, &mut clock)?;
        journal.step(outcome, &clock, mesh.world().total_traffic() - before, &averaged)?;
        if evaluator.eval.due.after(step + 1) {
            shared.whole(whole, |whole| evaluator.run(whole, step + 1, journal))?;
        }
    }
    Ok((shared, symptoms))
}

// ANCHOR: train
/// One step. The layers communicate in both passes; ZeRO, in the data group, sees only this rank's
/// slices.
fn one_step(
    config: &Config,
    shared: &mut Shared,
    step: usize,
    mut draw: impl FnMut(usize) -> Batch,
    clock: &mut Clock,
) -> Result<(StepOutcome, Vec<Averaged>)> {
    let mut loss = 0.0;
    shared.zero.begin()?;
    for micro in 0..config.grad_accum {
        let batch = draw(micro); // the same on all tensor ranks of a replica
        clock.lap(Part::Data);
        let share = (shared.loss(config, step, &batch)? / config.grad_accum as f64)?;
        loss += f64::from(share.to_scalar::<f32>()?);
        clock.lap(Part::Forward);
        shared.zero.synchronise(micro + 1 == config.grad_accum);
        share.backward()?;
        clock.lap(Part::Backward);
    }
    let averaged = shared.zero.finish()?;
    clock.lap(Part::Backward);
    let lr = config.schedule.at(step);
    let grad_norm = shared.zero.norm()?; // of all slices on all ranks
    shared.zero.update(lr, clip_scale(grad_norm, config.clip)?)?;
    clock.lap(Part::Optimizer);
    Ok((StepOutcome { step: step + 1, loss, grad_norm, lr }, averaged))
}
// ANCHOR_END: train

impl Lab {
    /// Whether with sequence parallelism, and what the table's rows on each rank are a multiple of.
    fn sharing(&self) -> (bool, usize) {
        (self.args.tensor.sp, self.args.tensor.make_vocab_size_divisible_by)
    }

    fn expected_bytes(&self, shared: &mut Shared) -> (String, f64) {
        let ranks = self.layout.sizes.tensor;
        let (sequence, multiple) = self.sharing();
        let rows = padded(self.config.shape.vocabulary, ranks, multiple);
        let shards = Shards {
            shape: self.config.shape,
            tensor: ranks,
            pipeline: 1,
            sequence,
            rows,
        };
        lab05::expected_bytes(&self.config, &self.layout, shared, &self.zero, &shards)
    }
}

fn introduce(lab: &Lab) {
    let time = match (&lab.eval, lab.args.bench) {
        (Some(_), _) => Some("--dry-run predicts how long"),
        (None, bench) => bench.then_some("about 1 minute"),
    };
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    let corpus = lab.eval.as_ref().map(|_| &lab.corpus);
    lab05::introduce(
        &lab.screen,
        corpus,
        &lab.config,
        &lab.layout,
        (lab.args.tensor.sp, &lab.zero),
    );
}
