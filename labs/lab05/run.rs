//! What lab05 runs, in which order.

use super::apparatus::{self, Way};
use super::flags::{Args, Show, TensorFlags};
use super::lesson;
use anyhow::Result;
use kit::flags::{EvalConfig, Preset, ensure_ranks_can_differ};
use kit::machine::matmul_peak;
use kit::show::Screen;
use kit::{Checks, End, Evaluator, Footprint, Journal, LabRun, Rates, Symptoms, parity};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::mesh::Axis;
use shardlab::parallel::strategy::ensure_tensor;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::train::{self, Config, Setup};

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    strategy: Strategy,
    config: Config,
    zero: ZeroConfig,
    /// Only with --tp, where the model is trained in full.
    eval: Option<EvalConfig>,
    corpus: Corpus,
    run: LabRun,
    /// One thread's matmul peak, FLOP/s; 0 if no figure needs it.
    peak: f64,
}

/// Draws, compares, trains or measures, as the flags say.
pub fn run(mut args: Args) -> Result<()> {
    let run = LabRun::of("lab05", &args.run)?;
    if let Some(show) = args.tensor.show {
        return draw(&run.screen, show, &args.tensor, args.ranks);
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
    let run = LabRun { ranks, is_broken: args.broken.is_some(), saves: full, ..run };
    let eval = full.then_some(eval);
    let lab = Lab { args, strategy, config, zero, eval, corpus, run, peak };
    let footprint = Footprint::sharded(&lab.config, &lab.zero);
    if !lab.run.goes_on(&footprint, || peak, || introduce(&lab))? {
        return Ok(());
    }
    if launch::is_first_process() {
        introduce(&lab);
    }
    if lab.args.bench {
        let link = lab.args.run.comm.link;
        return apparatus::benchmark(&lab.run.screen, &lab.config, &lab.corpus, ranks, link);
    }
    lab.run.train(&lab.config, |comm, checks| {
        kit::neighbours::warn(comm, &lab.strategy.layout())?;
        match &lab.eval {
            Some(eval) => train_in_full(&lab, comm, eval, checks),
            None => compare(&lab, comm, checks),
        }
    })
}

/// Compares the lesson's MLP with the library's. Then trains a few steps on one rank, and shared by
/// all ranks, and compares.
fn compare(lab: &Lab, group: &Comm, checks: &mut Checks) -> Result<()> {
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
        return Ok(());
    }
    let screen = &lab.run.screen;
    screen.say(format!("\n{}\n", apparatus::compared(screen, &all)));
    checks.beside("MLP and its input's gradient", beside);
    apparatus::check(checks, &all, &masks);
    checks.end_with("More: --show sum, --show gemm, --show mesh, --break no-g, --bench, --tp 2");
    Ok(())
}

/// Trains the model that each tensor group shares, with ZeRO in each data group.
fn train_in_full(lab: &Lab, comm: &Comm, eval: &EvalConfig, checks: &mut Checks) -> Result<()> {
    let Lab { args, strategy, config, zero, corpus, run, .. } = lab;
    let screen = &run.screen;
    let how = (strategy, zero);
    let same_as_one_rank =
        parity::same_as_one_rank(comm, screen, config, how, &corpus.train, false)?;
    let rates = Rates { ranks: comm.size(), ..Rates::of(config, lab.peak) };
    let mut journal = Journal::new(comm, screen, rates, eval.due, Some(&args.log))?;
    let save_to = run.save_to();
    let init_from = args.train.model.init_from.as_deref();
    let evaluator = Evaluator { config, eval, corpus, screen, comm, save_to, init_from };
    let setup = Setup::new(config, strategy).zero(zero.clone()).init_from(init_from);
    let mut training = setup.begin(comm)?;
    let mut symptoms = Symptoms::default(); // tensor ranks draw the same
    evaluator.train(&mut training, &mut journal, &mut symptoms)?;
    journal.expect(apparatus::expected_bytes(&mut training));
    journal.show(!zero.overlap || args.run.comm.link.is_some())?;
    let seconds = training.tensor.group().traffic().seconds;
    let hashes = training.whole(|whole| train::all_hashes(comm, &whole.params))?;
    let drawn = symptoms.drawn_by_all(training.mesh.group(Axis::Data))?;
    if comm.rank() != 0 {
        return Ok(());
    }
    let text = format!("{} in the tensor group's collectives", screen.seconds(seconds));
    screen.say(format!("\n{}\n", screen.row("tensor", &text)));
    checks.training(config, corpus, &journal, &End { hashes, drawn, same_as_one_rank });
    Ok(())
}

fn introduce(lab: &Lab) {
    let time = match (&lab.eval, lab.args.bench) {
        (Some(_), _) => Some("--dry-run predicts how long"),
        (None, bench) => bench.then_some("about 1 minute"),
    };
    lab.run.heading(time);
    let corpus = lab.eval.as_ref().map(|_| &lab.corpus);
    apparatus::introduce(&lab.run.screen, corpus, &lab.config, &lab.strategy);
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
