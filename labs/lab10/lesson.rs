//! lab10 · Back to libraries
//!
//! A library divides a model by a few settings: which, and at what cost?
//!
//! Libraries such as DeepSpeed hide the strategies of the last labs behind a configuration. This
//! lab takes the same settings, runs one Llama under each strategy, and measures what a rank holds
//! and sends, and how long a step takes.
//!
//! [`Part`] below makes a rank's share of a model from the settings. The first check takes two
//! steps with it, beside the jobs that are measured: these have code of their own.
//!
//! Run `cargo run --bin lab10`. The screen compares the strategies on four ranks. All must train
//! the model that one rank trains. Then choose your own: `--tp 2 --pp 2`; print DeepSpeed's
//! settings for it: `--emit-deepspeed`; or rebuild the source's figures: `--source`.

use anyhow::Result;
use clap::Parser;
use kit::busy::Watch;
use kit::help;
use kit::show::{self, Screen, bytes_decimal, complain, thousands};
use kit::{Beside, Checks, Lesson, Peaks, RunFlags, report};
use lab10::{
    Benchmark, Break, Harness, Job, LeftOut, LibraryFlags, Measured, Model, Point, Strategy,
    make_ds_config, run_distributed_benchmark,
};
use shardlab::allocator::{Counting, process_live};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::mesh::{Axis, Mesh};
use shardlab::model::Llama;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Stages};
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{TensorParallel, Zero, ZeroConfig};
use std::ops::Range;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One model under every strategy, with a library's settings.
#[derive(Parser)]
#[command(name = "lab10", version)]
#[command(after_long_help = help::examples("lab10", &[
    ("--tp 2 --pp 2", "your own strategy for four ranks"),
    ("--emit-deepspeed --tp 2 --zero 1", "DeepSpeed's settings for it"),
    ("--finale", "a model that only some strategies fit"),
]))]
struct Args {
    /// Ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    ranks: Option<usize>,
    #[command(flatten)]
    library: LibraryFlags,
    #[command(flatten)]
    run: RunFlags,
}

/// Steps of the fine-tuning.
const FINE_TUNING: usize = 40;

/// Steps that the lesson's own training takes. The second one sees what the optimizer did.
const FIRST_STEPS: usize = 2;

/// Bytes that the comparison's own figures may take.
const LEFT: isize = 100_000;

struct Lab {
    flags: LibraryFlags,
    model: Model,
    ranks: usize,
    /// Whether the user or a launcher chose the number of ranks.
    is_fixed: bool,
    harness: Harness,
    screen: Screen,
    lesson: Lesson,
}

// ANCHOR: heart
/// What one rank holds of a job's model.
struct Part {
    mesh: Mesh,
    pipeline: Pipeline,
    model: Stages<Llama>,
    zero: Zero,
}

impl Part {
    /// The settings become a mesh, the mesh gives the rank its layers, and ZeRO divides what
    /// replicas would all hold.
    fn of(job: &Benchmark, comm: &Comm, seed: u64) -> Result<Part> {
        let config = &job.config;
        let shape = &job.model.shape;
        // Tensor ranks x stages hold the model together. All further ranks hold further copies of
        // it: the replicas.
        let mesh = Mesh::new(comm, config.mesh(comm.size())?)?;
        let [replicas, stages, cut] =
            [Axis::Data, Axis::Pipeline, Axis::Tensor].map(|axis| mesh.group(axis));

        // This rank's layers: those of its stage, and of each matrix its part.
        // No sequence parallelism, no padding.
        let tensor = TensorParallel::new(cut.clone(), false, 1);
        let pipeline = Pipeline {
            ranks: stages.size(),
            chunks: 1,
            micro_batches: config.accumulation,
        };
        let declare = |layers: &[Range<usize>]| Ok(Llama::chunks(shape, layers, &tensor)?);
        let model = Stages::of(pipeline, stages, &config.layers(shape)?, declare)?;

        // Replicas hold the same parameters. `zero_stage` says what of their state each of them
        // keeps.
        let divide = ZeroConfig::new(config.zero_stage, job.dtype, config.adamw);
        let zero = job.model.begin(&model.chunks[0].params, replicas, divide, seed)?;
        let zero = zero.with_tensor(&tensor)?.with_pipeline(stages)?;
        Ok(Part { mesh, pipeline, model, zero })
    }
}
// ANCHOR_END: heart

/// Takes the first steps of a job on one of its ranks: the same code under every strategy. Returns
/// their losses.
fn train_plainly(job: &Benchmark, comm: &Comm, steps: usize, seed: u64) -> Result<Vec<f64>> {
    let mut part = Part::of(job, comm, seed)?;
    let stages = part.mesh.group(Axis::Pipeline);
    let order = Schedule::OneForwardOneBackward.order(&part.pipeline, stages.rank());
    let program = part.pipeline.with_messages(stages.rank(), &order);
    let micro_batches = job.micro_batches(&part.mesh, job.batch_sizes[0], true)?;
    let sequences = micro_batches[0].0.sequences.len();
    let activations = [sequences, job.seq_len, job.model.shape.embd];
    let mut losses = Vec::new();
    for _ in 0..steps {
        part.zero.begin()?;
        let ran = part.model.step(&program, &micro_batches, activations, &part.zero)?;
        part.zero.finish()?;
        part.zero.step(job.config.lr, job.config.clip)?;
        losses.push(ran.losses.iter().sum::<f64>() / micro_batches.len() as f64);
    }
    // The last stage alone has computed losses, each replica those of its own sequences.
    stages.broadcast(&mut losses, stages.size() - 1)?;
    part.mesh.group(Axis::Data).all_reduce(&mut losses, Reduce::Mean)?;
    Ok(losses)
}

/// Trains plainly under each strategy, and compares the first losses with those of the benchmarks.
fn compare_with_the_jobs(lab: &Lab, all: &[(Strategy, Measured)]) -> Result<Beside> {
    let mut lesson = Vec::new();
    let mut library = Vec::new();
    for (strategy, measured) in all {
        let job = lab.benchmark(strategy);
        lesson.extend(lab10::on_ranks(strategy.ranks, &lab.harness.options, |comm| {
            train_plainly(&job, &comm, FIRST_STEPS, lab.harness.seed)
        })?);
        library.extend(measured.losses.iter().take(FIRST_STEPS));
    }
    Ok(Beside::of(&Comm::alone(), &lesson, &library, 0.0)?)
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab10")?;
    let flags = args.library;
    if flags.source {
        if launch::is_first_process() {
            screen.say(lab10::source::note(&screen, flags.price_per_hour));
        }
        return Ok(());
    }
    let options = args.run.comm.options(&args.run.folder("lab10"));
    let reads_ungathered = flags.broken == Some(Break::Ungathered);
    let repeats = if flags.finale { 2 } else { 5 };
    let harness = Harness { options, repeats, seed: 1337, limit: None, reads_ungathered };
    let model = if flags.finale {
        Model::larger()
    } else {
        Model::find(&flags.model, &flags.hub)?
    };
    let replicas = if flags.zero == Some(3) { 2 } else { 1 };
    let few = flags.tp.unwrap_or(1) * flags.pp.unwrap_or(1) * replicas;
    let default = if flags.generation.asked() || flags.life_cycle {
        few
    } else if flags.finale {
        8
    } else {
        4
    };
    let ranks = launch::ranks(args.ranks, default)?;
    let is_fixed = args.ranks.is_some() || launch::is_mpi();
    let lab = Lab { flags, model, ranks, is_fixed, harness, screen, lesson };
    let own = lab.own_strategy()?;
    let data_parallel = Strategy::new(ranks, [1, 1], Stage::Ddp, 1);
    if lab.flags.emit_deepspeed {
        return lab.emit_deepspeed(&own.unwrap_or(data_parallel));
    }
    if lab.flags.generation.asked() || lab.flags.life_cycle {
        let strategy = own.unwrap_or(data_parallel);
        let text = lab.text();
        lab10::check_reference(text)?;
        return if lab.flags.generation.compare {
            lab.compare_texts(text)
        } else if lab.flags.life_cycle {
            lab.life_cycle(&strategy)
        } else {
            lab.generate_text(&strategy, text)
        };
    }
    compare_strategies(&lab, own.as_ref(), args.run.dry_run)
}

/// Trains under each strategy, measures, and checks that all train one rank's model. With a
/// strategy of the user's `own`, only under that one.
fn compare_strategies(lab: &Lab, own: Option<&Strategy>, dry_run: bool) -> Result<()> {
    let ranks = lab.ranks;
    let one_rank = Strategy::new(1, [1, 1], Stage::Ddp, 1);
    let (mut strategies, mut left_out) = match own {
        Some(strategy) => (vec![one_rank.clone(), strategy.clone()], Vec::new()),
        None if lab.flags.finale => (lab10::for_finale(&lab.model.shape, lab.ranks), Vec::new()),
        None => lab10::all(&lab.model.shape, lab.ranks, lab.flags.batch),
    };
    if launch::is_mpi() {
        let (all_ranks, some): (Vec<_>, Vec<_>) = strategies
            .into_iter()
            .partition(|strategy| [1, ranks].contains(&strategy.ranks));
        let why = format!("all {ranks} processes of a launcher take part in each job");
        left_out.extend(
            some.into_iter()
                .map(|strategy| LeftOut { name: strategy.name, why: why.clone() }),
        );
        strategies = all_ranks;
    }
    let here = launch::ranks_here(ranks);
    let free = launch::free_memory(launch::ranks_here(ranks));
    for strategy in &strategies {
        let benchmark = lab.benchmark(strategy);
        benchmark.check()?;
        benchmark.check_memory(here, free)?;
    }
    let first = launch::is_first_process();
    if first {
        introduce(lab, &left_out);
    }
    if dry_run {
        return Ok(());
    }
    if first {
        show::progress(|| "this machine's peaks".into());
    }
    let peaks = first.then(Peaks::measure);
    if let Some(peaks) = &peaks {
        lab.screen.say(lab.screen.row("peaks", &peaks.in_words()));
    }
    let mut all = Vec::new();
    let mut live = Vec::new();
    let watch = Watch::start();
    let jobs = strategies.len();
    for (i, strategy) in strategies.into_iter().enumerate() {
        if first {
            show::progress(|| format!("strategy {} of {jobs}: {}", i + 1, strategy.name));
        }
        // The first job is what the others must compute: it runs without a limit.
        let limit = lab.limit().filter(|_| !all.is_empty());
        let harness = Harness { limit, ..lab.harness.clone() };
        let measured = run_distributed_benchmark(&harness, &lab.benchmark(&strategy))?;
        if first && own.is_some() {
            as_the_source_prints(lab, &strategy, &measured);
        }
        all.push((strategy, measured));
        live.push(process_live()); // all ranks have ended
    }
    let mut batches = None;
    if lab.flags.roofline {
        let benchmark = Benchmark {
            seq_len: 1,
            batch_sizes: lab10::BATCHES.to_vec(),
            ..lab.benchmark(&one_rank)
        };
        batches = Some(run_distributed_benchmark(&lab.harness, &benchmark)?);
    }
    if first {
        show::progress(|| "the lesson's version under each strategy".into());
    }
    let beside = match lab.limit() {
        Some(_) => None, // most jobs have stopped before their first step
        None => Some(compare_with_the_jobs(lab, &all)?),
    };
    let Some(peaks) = peaks else {
        return Ok(());
    };
    if own.is_some() {
        lab.screen.say(lab.screen.wrap(lab10::MEMORY_MEANS, 2));
    }
    let most = all.iter().map(|(strategy, _)| strategy.ranks).max();
    compare(lab, &all, watch.remark(launch::ranks_here(most.unwrap_or(1))));
    if let Some(batches) = &batches {
        draw(lab, &all, batches, &peaks);
    }
    // The job on one rank sends nothing. MPI's buffers come with the first whole job on all ranks,
    // and stay.
    let sends = |one: &(Strategy, Measured)| one.0.ranks > 1 && one.1.stopped.is_none();
    let before = all.iter().position(sends).filter(|_| launch::is_mpi()).unwrap_or(0);
    let left = live[live.len() - 1] - live[before];
    let failed = check(lab, &all, beside, left);
    kit::ensure_passed(&failed)
}

impl Lab {
    // ANCHOR: benchmark
    /// The job of one strategy, as a user of a library writes it.
    fn benchmark(&self, strategy: &Strategy) -> Benchmark {
        Benchmark {
            model: self.model.clone(),
            seq_len: self.flags.seq(),
            batch_sizes: vec![self.flags.batch],
            dtype: self.flags.dtype,
            sharding: strategy.ranks > 1,
            world_size: strategy.ranks,
            config: strategy.config.clone(),
        }
    }
    // ANCHOR_END: benchmark

    /// The bytes that each rank may take, with --finale.
    fn limit(&self) -> Option<f64> {
        self.flags.finale.then_some(self.flags.memory_limit * 1e6)
    }

    /// The strategy of --tp, --pp and --zero, if one of them is given.
    fn own_strategy(&self) -> Result<Option<Strategy>> {
        let LibraryFlags { tp, pp, zero, .. } = self.flags;
        if tp.is_none() && pp.is_none() && zero.is_none() && self.flags.broken.is_none() {
            return Ok(None);
        }
        let zero = if self.flags.broken.is_some() {
            3
        } else {
            zero.unwrap_or(0)
        };
        let stage = Stage::ALL[usize::from(zero)];
        let mut strategy = Strategy::new(
            self.ranks,
            [tp.unwrap_or(1), pp.unwrap_or(1)],
            stage,
            self.flags.micro_batches,
        );
        strategy.config = make_ds_config(strategy.config)?;
        strategy.config.mesh(self.ranks)?;
        Ok(Some(strategy))
    }

    /// The text that the flags ask for.
    fn text(&self) -> Job<'_> {
        Job {
            model: &self.model,
            how: &self.flags.generation,
            dtype: self.flags.dtype,
        }
    }

    /// Generates a text on ranks that share the model.
    fn generate_text(&self, strategy: &Strategy, text: Job) -> Result<()> {
        let screen = &self.screen;
        let config = &strategy.config;
        let texts = launch::run_with(self.ranks, &self.harness.options, |comm| {
            lab10::generate(Some(screen), &comm, config, text)
        })?;
        kit::ensure_passed(&lab10::reference(screen, text, &texts[0].tokens)?)
    }

    /// Generates a text under every strategy, and compares them.
    fn compare_texts(&self, text: Job) -> Result<()> {
        let screen = &self.screen;
        let ranks = if self.is_fixed { vec![self.ranks] } else { vec![2, 4] };
        let (strategies, left_out) = lab10::for_texts(&self.model.shape, &ranks);
        if launch::is_first_process() {
            for row in lab10::left_out(screen, &left_out) {
                screen.say(row);
            }
        }
        let failed = lab10::compare(screen, &self.harness.options, &strategies, text)?;
        kit::ensure_passed(&failed)
    }

    /// Shows what the stages of a model's life cost, and fine-tunes it if it has weights.
    fn life_cycle(&self, strategy: &Strategy) -> Result<()> {
        let screen = &self.screen;
        let first = launch::is_first_process();
        if first {
            let shape = &self.model.shape;
            screen.say(lab10::life_cycle(screen, &self.model.name, shape));
        }
        if self.model.weights.is_none() {
            if first {
                screen.say("  With --model FOLDER, the lab also fine-tunes a model.");
            }
            return Ok(());
        }
        let config = &strategy.config;
        let dtype = self.flags.dtype;
        let tuned = launch::run_with(self.ranks, &self.harness.options, |comm| {
            lab10::fine_tune(&comm, &self.model, config, dtype, FINE_TUNING)
        })?;
        let mut checks = Checks::new(screen);
        if first {
            let [before, after] = [tuned[0].before, tuned[0].after];
            checks.check(
                after < before,
                &format!("{FINE_TUNING} steps on 6 answers: the loss fell"),
                &format!("{before:.3} to {after:.3}"),
                "the loss did not fall",
            );
        }
        kit::ensure_passed(&checks.failed())
    }

    /// Prints DeepSpeed's JSON, and on stderr what DeepSpeed does not take from it.
    fn emit_deepspeed(&self, strategy: &Strategy) -> Result<()> {
        let mut config = strategy.config.clone();
        let parts = config.mesh(self.ranks)?.sizes.data * config.accumulation;
        config.micro_batch = (self.flags.batch / parts).max(1);
        let json = config.deepspeed(self.ranks, self.flags.dtype)?;
        if launch::is_first_process() {
            self.screen.say(format!("{json:#}"));
            for caveat in config.caveats() {
                complain(&format!("note: {caveat}"));
            }
        }
        Ok(())
    }
}

/// Prints the model, the batch, and the strategies that cannot run it.
fn introduce(lab: &Lab, left_out: &[LeftOut]) {
    let screen = &lab.screen;
    let shape = &lab.model.shape;
    let dot = lab.screen.separator();
    screen.say(lab.lesson.heading(screen, None));
    report::ranks(screen, lab.ranks);
    let sizes =
        format!("{} layers{dot}{} heads{dot}{} wide", shape.layers, shape.heads, shape.embd);
    let parameters = format!("{} parameters", thousands(shape.parameters()));
    screen.say(screen.row("model", &format!("{}{dot}{sizes}{dot}{parameters}", lab.model.name)));
    screen.say(screen.row("weights", lab.model.weights_in_words()));
    let batch = lab.flags.batch;
    let seq = lab.flags.seq();
    screen.say(
        screen.row("batch", &format!("{batch} sequences x {seq} tokens, shared by the data ranks")),
    );
    for row in lab10::left_out(screen, left_out) {
        screen.say(row);
    }
}

/// The source's lines for one job. Where ranks take turns, those with times are left out.
fn as_the_source_prints(lab: &Lab, strategy: &Strategy, measured: &Measured) {
    let screen = &lab.screen;
    let turns = lab10::turns(strategy.ranks);
    screen.say(format!("\n{}", screen.wrap(&format!("Using topology: {}", measured.layout), 2)));
    // A line of the source is folded where the screen has no room for it, between values and not
    // within one.
    let say = |line: String| {
        let values: Vec<String> =
            line.split("   ").map(|value| value.replace(' ', "\u{a0}")).collect();
        let line = if values.len() > 1 { values.join("   ") } else { line };
        screen.say(screen.wrap(&line, 2));
    };
    if let Some(turns) = &turns {
        screen.say(format!("  not timed: {turns}"));
    }
    for [forward, step] in measured.runs.iter().filter(|_| turns.is_none()) {
        say(forward.line());
        say("--- Breakdown ---".to_string());
        say(forward.breakdown(lab.flags.price_per_hour));
        say(format!("training: {}", step.line()));
    }
    for line in measured.memory.lines() {
        say(line);
    }
    screen.say("  Cleared distributed env and caches.");
}

/// Prints what each strategy holds, sends and takes, or which ones fit.
fn compare(lab: &Lab, all: &[(Strategy, Measured)], busy: Option<String>) {
    let text = match lab.limit() {
        Some(limit) => lab10::finale(&lab.screen, all, limit),
        None => lab10::compared(&lab.screen, all, busy),
    };
    lab.screen.say(format!("\n{text}"));
}

/// Draws the throughput of strategies and of batch sizes, and the roofline of one rank.
fn draw(lab: &Lab, all: &[(Strategy, Measured)], batches: &Measured, peaks: &Peaks) {
    let screen = &lab.screen;
    let one = &all[0].1;
    screen.say(format!("\n{}", lab10::throughput(screen, all)));
    screen.say(format!("\n{}", lab10::over_batches(screen, batches)));
    let [[_, step], [prefill, decode]] = [one.runs[0], one.generation];
    let passes = batches.runs.iter().map(|[forward, _]| ("1 token per sequence", *forward));
    let points = passes.chain([("decode", decode), ("prefill", prefill), ("training", step)]);
    let points: Vec<Point> = points.map(|(name, timed)| Point::of(name, &timed, 1)).collect();
    screen.say(format!("\n{}", lab10::roofline(screen, peaks, &points)));
}

/// Runs the checks. Returns what they found wrong.
fn check(
    lab: &Lab,
    all: &[(Strategy, Measured)],
    beside: Option<Beside>,
    left: isize,
) -> Vec<String> {
    lab.screen.say("");
    let mut checks = Checks::new(&lab.screen);
    if let Some(beside) = beside {
        checks.beside("losses under each strategy", beside);
    }
    lab10::check(&mut checks, all, lab.flags.dtype);
    if let Some(limit) = lab.limit() {
        lab10::check_finale(&mut checks, all, limit);
    }
    let result = format!("{} left", bytes_decimal(left as f64));
    checks.check(left < LEFT, "memory is back to the start", &result, "a benchmark kept memory");
    let failed = checks.failed();
    if failed.is_empty() {
        let more = "More: --tp 2 --pp 2, --emit-deepspeed, --roofline, --finale, --source";
        lab.screen.say(lab.lesson.ending(&lab.screen, more));
    }
    failed
}
