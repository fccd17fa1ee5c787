//! What lab05 runs, in which order.

use super::apparatus::{self, Way};
use super::flags::{Args, Show, TensorFlags};
use super::lesson;
use anyhow::Result;
use kit::flags::{EvalConfig, Preset, ensure_ranks_can_differ};
use kit::machine::matmul_peak;
use kit::show::Screen;
use kit::{Checks, End, Evaluator, Footprint, Journal, Lesson, Rates, report};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::mesh::Axis;
use shardlab::parallel::strategy::ensure_tensor;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{self, Config, Setup};
use shardlab::{checkpoint, launch};

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    strategy: Strategy,
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

/// Draws, compares, trains or measures, as the flags say.
pub fn run(mut args: Args) -> Result<()> {
    let screen = Screen::detect(args.run.ascii);
    let lesson = Lesson::of("lab05")?;
    if let Some(show) = args.tensor.show {
        return draw(&screen, show, &args.tensor, args.ranks);
    }
    let corpus = args.train.data.corpus()?;
    let given = args.strategy.of_lab("lab05")?;
    let full = args.tensor.tp.is_some() || given.is_some();
    let asked = given.map(|given| given.ranks()).or(args.ranks);
    let ranks = launch::ranks(asked, args.tensor.tp.unwrap_or(2).max(1))?;
    let mut strategy = match given {
        Some(given) => given,
        None => args.tensor.strategy(ranks)?,
    };
    if given.is_some() {
        args.zero.take(&strategy);
    }
    if args.bench && args.train.model.preset == Preset::Baby {
        args.train.model.preset = Preset::Char;
    }
    if !full && !args.bench && args.train.model.dropout == 0.0 {
        args.train.model.dropout = 0.1; // the comparison covers the masks
    }
    let few = if args.bench { 2 } else { 50 };
    let steps = args.steps.or((!full).then_some(few));
    args.train.take(&strategy);
    let config = args.train.resolve(strategy.data, steps, &corpus)?;
    args.strategy.ensure_divides(&config.shape)?;
    ensure_tensor(&config.shape, strategy.tensor, strategy.sequence || !full)?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    let eval = args.eval.resolve(config.steps, &args.train.defaults(), &corpus)?;
    let zero = args.zero.resolve(&config)?;
    strategy.zero = zero.stage;
    let peak = if full { matmul_peak(config.precision) } else { 0.0 };
    let lab = Lab {
        args,
        strategy,
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
        return apparatus::benchmark(
            &lab.screen,
            &lab.config,
            &lab.corpus,
            ranks,
            lab.args.run.comm.link,
        );
    }
    let options = lab.args.run.comm.options(&folder);
    kit::run(ranks, &options, |comm| {
        one_rank(&lab, &comm).map_err(|error| kit::explain(&lab.config, error))
    })
}

/// One rank's part. Returns what the checks found wrong.
fn one_rank(lab: &Lab, comm: &Comm) -> Result<Vec<String>> {
    kit::neighbours::warn(comm, &lab.strategy.layout())?;
    match &lab.eval {
        Some(eval) => train_in_full(lab, comm, eval),
        None => compare(lab, comm),
    }
}

/// Compares the lesson's MLP with the library's. Then trains a few steps on one rank, and shared by
/// all ranks, and compares.
fn compare(lab: &Lab, group: &Comm) -> Result<Vec<String>> {
    let config = &lab.config;
    let multiple = lab.strategy.vocabulary_multiple;
    let measure = |way, broken, reference: Option<&_>| {
        apparatus::measure(group, (way, multiple, broken), config, &lab.corpus.train, reference)
    };
    let beside = lesson::compare_mlps(group, config.seed)?;
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
        masks.push(apparatus::same_masks(group, config, way == Way::Sequence)?);
    }
    if group.rank() != 0 {
        return Ok(Vec::new());
    }
    lab.screen.say(format!("\n{}\n", apparatus::compared(&lab.screen, &all)));
    let mut checks = Checks::new(&lab.screen);
    checks.beside("MLP and its input's gradient", beside);
    apparatus::check(&mut checks, &all, &masks);
    let failed = checks.failed_after(lab.args.broken.is_some(), config);
    if failed.is_empty() {
        let more = "More: --show sum, --show gemm, --show mesh, --break no-g, --bench, --tp 2";
        lab.screen.say(lab.lesson.ending(&lab.screen, more));
    }
    Ok(failed)
}

/// Trains the model that each tensor group shares, with ZeRO in each data group.
fn train_in_full(lab: &Lab, world: &Comm, eval: &EvalConfig) -> Result<Vec<String>> {
    let config = &lab.config;
    let corpus = &lab.corpus;
    let screen = &lab.screen;
    let folder = lab.args.run.folder("lab05");
    let _claim = checkpoint::Claim::take(world, &folder)?;
    let Lab { strategy, zero, .. } = lab;
    let same_as_one_rank =
        apparatus::same_as_one_rank(world, screen, config, &corpus.train, strategy, zero)?;
    let rates = Rates { ranks: world.size(), ..Rates::of(config, lab.peak) };
    let mut journal = Journal::new(world, screen, rates, eval.due, Some(&lab.args.log))?;
    let save_to = Some(folder);
    let init_from = lab.args.train.model.init_from.as_deref();
    let evaluator = Evaluator {
        config,
        eval,
        corpus,
        screen,
        comm: world,
        save_to,
        init_from,
    };
    let mut training = Setup::new(config, strategy)
        .zero(zero.clone())
        .init_from(init_from)
        .begin(world)?;
    let symptoms = apparatus::train(&mut training, &evaluator, &mut journal)?;
    journal.expect(apparatus::expected_bytes(&mut training));
    journal.show(!zero.overlap || lab.args.run.comm.link.is_some())?;
    let seconds = training.tensor.group().traffic().seconds;
    let hashes = training.whole(|whole| train::all_hashes(world, &whole.params))?;
    let drawn = symptoms.drawn_by_all(training.mesh.group(Axis::Data))?;
    if world.rank() != 0 {
        return Ok(Vec::new());
    }
    let text = format!("{} in the tensor group's collectives", screen.seconds(seconds));
    screen.say(format!("\n{}\n", screen.row("tensor", &text)));
    let mut checks = Checks::new(screen);
    checks.training(config, corpus, &journal, &End { hashes, drawn, same_as_one_rank });
    Ok(checks.failed())
}

fn introduce(lab: &Lab) {
    let time = match (&lab.eval, lab.args.bench) {
        (Some(_), _) => Some("--dry-run predicts how long"),
        (None, bench) => bench.then_some("about 1 minute"),
    };
    lab.screen.say(lab.lesson.heading(&lab.screen, time));
    let corpus = lab.eval.as_ref().map(|_| &lab.corpus);
    apparatus::introduce(&lab.screen, corpus, &lab.config, &lab.strategy);
}

/// Prints what --show asks for. Only the sum runs ranks.
fn draw(screen: &Screen, show: Show, flags: &TensorFlags, ranks: Option<usize>) -> Result<()> {
    if show == Show::Sum {
        return apparatus::show_sum(screen, launch::ranks(ranks, 3)?);
    }
    let ranks = ranks.unwrap_or(8);
    let layout = flags.mesh(ranks, flags.tp.unwrap_or(2), flags.pp.unwrap_or(2))?;
    if launch::is_first_process() {
        screen.say(match show {
            Show::Mesh => apparatus::draw_mesh(screen, &layout, flags.per_node.unwrap_or(4)),
            _ => apparatus::draw_gemm(screen),
        });
    }
    Ok(())
}
