//! What lab10 runs, in which order, and its checks.

use crate::apparatus::{
    self, BATCHES, Benchmark, Candidate, Harness, Job, LeftOut, Measured, Model,
    as_the_source_prints, on_ranks, print_deepspeed, run_distributed_benchmark, share,
};
use crate::flags::{Args, Break, LibraryFlags};
use crate::lesson::compare_losses;
use anyhow::Result;
use kit::show::{self, complain, thousands};
use kit::{Beside, Checks, LabRun, OtherWork, Peaks, report};
use shardlab::launch;
use shardlab::parallel::zero::Stage;

struct Lab {
    flags: LibraryFlags,
    model: Model,
    ranks: usize,
    /// Whether the user or a launcher chose the number of ranks.
    is_fixed: bool,
    harness: Harness,
    run: LabRun,
}

/// Trains under each strategy and compares them, or does what the flags ask for instead.
///
/// # Errors
/// If the flags do not fit together, no strategy can run, or a check fails.
pub fn run(args: Args) -> Result<()> {
    let run = LabRun::of("lab10", &args.run)?;
    let flags = args.library;
    if flags.source {
        if launch::is_first_process() {
            run.screen.say(apparatus::source::note(&run.screen));
        }
        return Ok(());
    }
    let reads_ungathered = flags.broken == Some(Break::Ungathered);
    let repeats = if flags.finale { 2 } else { 5 };
    let options = run.options.clone();
    let harness = Harness { options, repeats, seed: 1337, limit: None, reads_ungathered };
    let model = if flags.finale {
        Model::larger()
    } else {
        Model::find(&flags.model)?
    };
    if let Some(weights) = model.weights.as_ref().filter(|_| launch::is_first_process()) {
        for note in &weights.notes {
            complain(&format!("note: {note}"));
        }
    }
    if flags.life_cycle {
        if launch::is_first_process() {
            run.screen.say(apparatus::life_cycle(&run.screen, &model.name, &model.shape));
        }
        return Ok(());
    }
    let default = if flags.generation.asked() {
        let replicas = if flags.zero == Some(3) { 2 } else { 1 };
        flags.tp.unwrap_or(1) * flags.pp.unwrap_or(1) * replicas
    } else if flags.finale {
        8
    } else {
        4
    };
    let given = args.strategy.of_lab("lab10")?;
    args.strategy.ensure_divides(&model.shape)?;
    let asked = given.map(|given| given.ranks()).or(args.ranks);
    let ranks = launch::ranks(asked, default)?;
    let is_fixed = asked.is_some() || launch::is_mpi();
    let lab = Lab { flags, model, ranks, is_fixed, harness, run };
    if lab.flags.broken == Some(Break::LocalAsGlobal) {
        return lab.walk_local_as_global();
    }
    let own = lab.flags.own_strategy(given, lab.ranks)?;
    let data_parallel = Candidate::new(ranks, [1, 1], Stage::Ddp, 1);
    if lab.flags.emit_deepspeed {
        let strategy = own.unwrap_or(data_parallel);
        return print_deepspeed(&lab.run.screen, &strategy, lab.flags.batch, lab.flags.dtype);
    }
    if lab.flags.generation.asked() {
        return lab.generate(own.unwrap_or(data_parallel));
    }
    compare_strategies(&lab, own.as_ref())
}

/// Trains under each strategy, measures, and checks that all train one rank's model. With a
/// strategy of the user's `own`, only under that one.
fn compare_strategies(lab: &Lab, own: Option<&Candidate>) -> Result<()> {
    let ranks = lab.ranks;
    let one_rank = Candidate::new(1, [1, 1], Stage::Ddp, 1);
    let (mut strategies, mut left_out) = match own {
        Some(strategy) => (vec![one_rank.clone(), strategy.clone()], Vec::new()),
        None if lab.flags.finale => {
            (apparatus::for_finale(&lab.model.shape, lab.ranks), Vec::new())
        }
        None => apparatus::all(&lab.model.shape, lab.ranks, lab.flags.batch),
    };
    if launch::is_mpi() {
        let (all_ranks, some): (Vec<_>, Vec<_>) = strategies
            .into_iter()
            .partition(|strategy| [1, ranks].contains(&strategy.ranks));
        let why = format!("all {ranks} processes of a launcher take part in each job");
        left_out.extend(some.into_iter().map(|strategy| LeftOut::new(strategy, &why)));
        strategies = all_ranks;
    }
    let here = launch::ranks_here(ranks);
    let free = launch::free_memory(here);
    for strategy in &strategies {
        let benchmark = lab.benchmark(strategy);
        benchmark.check()?;
        benchmark.check_memory(here, free)?;
    }
    let first = launch::is_first_process();
    if first {
        introduce(lab, &left_out);
    }
    if lab.run.is_dry {
        return Ok(());
    }
    if first {
        show::progress(|| "this machine's peaks".into());
    }
    let peaks = first.then(Peaks::measure);
    if let Some(peaks) = &peaks {
        lab.run.screen.say(lab.run.screen.row("peaks", &peaks.in_words()));
    }
    let mut all = Vec::new();
    let watch = OtherWork::watch();
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
            as_the_source_prints(&lab.run.screen, &strategy, &measured);
        }
        all.push((strategy, measured));
    }
    let mut batches = None;
    if lab.flags.roofline {
        let benchmark = Benchmark {
            seq_len: 1,
            batch_sizes: BATCHES.to_vec(),
            ..lab.benchmark(&one_rank)
        };
        batches = Some(run_distributed_benchmark(&lab.harness, &benchmark)?);
    }
    if first {
        show::progress(|| "the lesson's version under each strategy".into());
    }
    let beside = match lab.limit() {
        Some(_) => None, // most jobs have stopped before their first step
        None => Some(compare_with_the_lesson(lab, &all)?),
    };
    let Some(peaks) = peaks else {
        return Ok(());
    };
    if own.is_some() {
        lab.run.screen.say(lab.run.screen.wrap(apparatus::MEMORY_MEANS, 2));
    }
    let most = all.iter().map(|(strategy, _)| strategy.ranks).max();
    let busy = watch.remark(launch::ranks_here(most.unwrap_or(1)));
    let text = match lab.limit() {
        Some(limit) => apparatus::finale(&lab.run.screen, &all, limit),
        None => apparatus::compared(&lab.run.screen, &all, busy),
    };
    lab.run.screen.say(format!("\n{text}"));
    if let Some(batches) = &batches {
        draw(lab, &all, batches, &peaks);
    }
    check(lab, &all, beside)
}

/// The lesson's losses beside the measured ones, under the strategy where they differ most.
fn compare_with_the_lesson(lab: &Lab, all: &[(Candidate, Measured)]) -> Result<Beside> {
    let mut worst = Beside { difference: 0.0, bound: 0.0 };
    for (strategy, measured) in all {
        let job = lab.benchmark(strategy);
        let beside = on_ranks(strategy.ranks, &lab.harness.options, |comm| {
            compare_losses(&comm, &job, lab.harness.seed, &measured.losses)
        })?;
        if beside.difference > worst.difference {
            worst = beside;
        }
    }
    Ok(worst)
}

impl Lab {
    /// The job of one strategy, as a user of a library writes it.
    fn benchmark(&self, strategy: &Candidate) -> Benchmark {
        Benchmark {
            model: self.model.clone(),
            seq_len: self.flags.seq(),
            batch_sizes: vec![self.flags.batch],
            dtype: self.flags.dtype,
            world_size: strategy.ranks,
            config: strategy.config.clone(),
        }
    }

    /// The bytes that each rank may take, with --finale.
    fn limit(&self) -> Option<f64> {
        self.flags.finale.then_some(self.flags.memory_limit * 1e6)
    }

    /// Lets data ranks alone share the batch, with the mistake: no strategy matters to it.
    fn walk_local_as_global(&self) -> Result<()> {
        self.flags.ensure_data_ranks_alone()?;
        let LibraryFlags { batch, micro_batches, .. } = self.flags;
        share(batch, self.ranks, micro_batches)?;
        if launch::is_first_process() {
            introduce(self, &[]);
            self.run.screen.say("");
        }
        if self.run.is_dry {
            return Ok(());
        }
        let options = &self.harness.options;
        let failed = apparatus::local_as_global(
            &self.run.screen,
            options,
            self.ranks,
            batch,
            micro_batches,
        )?;
        kit::ensure_passed(&failed)
    }

    /// Generates the text that the flags ask for, under the user's strategy or under every one.
    fn generate(&self, own: Candidate) -> Result<()> {
        let screen = &self.run.screen;
        let how = &self.flags.generation;
        let text = Job { model: &self.model, how, dtype: self.flags.dtype };
        apparatus::check_reference(text)?;
        let mut strategies = vec![own];
        if how.compare {
            let ranks = if self.is_fixed { vec![self.ranks] } else { vec![2, 4] };
            let (all, left_out) = apparatus::for_texts(&self.model.shape, &ranks);
            if launch::is_first_process() {
                for row in apparatus::left_out(screen, &left_out) {
                    screen.say(row);
                }
            }
            strategies = all;
        }
        let failed = apparatus::compare(screen, &self.harness.options, &strategies, text)?;
        kit::ensure_passed(&failed)
    }
}

/// Prints the model, the batch, and the strategies that cannot run it.
fn introduce(lab: &Lab, left_out: &[LeftOut]) {
    let screen = &lab.run.screen;
    let shape = &lab.model.shape;
    let dot = lab.run.screen.separator();
    lab.run.heading(None);
    report::ranks(screen, lab.ranks);
    let sizes =
        format!("{} layers{dot}{} heads{dot}{} wide", shape.layers, shape.heads, shape.embd);
    let parameters = format!("{} parameters", thousands(shape.parameters()));
    lab.run
        .row("model", &format!("{}{dot}{sizes}{dot}{parameters}", lab.model.name));
    lab.run.row("weights", lab.model.weights_in_words());
    let batch = lab.flags.batch;
    let seq = lab.flags.seq();
    lab.run
        .row("batch", &format!("{batch} sequences x {seq} tokens, shared by the data ranks"));
    for row in apparatus::left_out(screen, left_out) {
        screen.say(row);
    }
}

/// Draws the throughput of strategies and of batch sizes, and the roofline of one rank.
fn draw(lab: &Lab, all: &[(Candidate, Measured)], batches: &Measured, peaks: &Peaks) {
    let screen = &lab.run.screen;
    screen.say(format!("\n{}", apparatus::throughput(screen, all)));
    screen.say(format!("\n{}", apparatus::over_batches(screen, batches)));
    let points = apparatus::points(&all[0].1, batches);
    screen.say(format!("\n{}", apparatus::roofline(screen, peaks, &points)));
}

/// Runs the checks, and ends the run.
fn check(lab: &Lab, all: &[(Candidate, Measured)], beside: Option<Beside>) -> Result<()> {
    lab.run.screen.say("");
    let mut checks = Checks::new(&lab.run.screen);
    if let Some(beside) = beside {
        checks.beside("losses under each strategy", beside);
    }
    apparatus::check(&mut checks, all, lab.flags.dtype);
    if let Some(limit) = lab.limit() {
        apparatus::check_finale(&mut checks, all, limit);
    }
    checks.end_with("More: --tp 2 --pp 2, --emit-deepspeed, --roofline, --finale, --source");
    lab.run.end(checks)
}
