//! What lab12 runs, in which order.

use super::apparatus::{self, Break, Found, Grid, Load, Measured, OneRank, Packed, Work};
use super::flags::Args;
use super::lesson;
use anyhow::Result;
use kit::flags::ensure_ranks_can_differ;
use kit::machine::matmul_peak;
use kit::show::{above, thousands};
use kit::{Checks, Footprint, LabRun, MetricsFile, OtherWork, report};
use serde::Serialize;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::mesh::Axis;
use shardlab::model::Heads;
use shardlab::parallel::Strategy;
use shardlab::parallel::context::{Exchange, Slicing};
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Training};
use std::path::Path;

/// The run's settings, which all ranks share.
struct Lab {
    args: Args,
    /// The training at the end.
    strategy: Strategy,
    /// The exchanges that are measured: none with a strategy of other axes.
    exchanges: Vec<Strategy>,
    config: Config,
    packed: Packed,
    corpus: Corpus,
    run: LabRun,
}

/// Draws, compares and trains, as the flags say.
pub fn run(mut args: Args) -> Result<()> {
    let run = LabRun::of("lab12", &args.run)?;
    if args.show.is_some() {
        apparatus::show_bytes(&run.screen);
        return Ok(());
    }
    let given = args.strategy.of_lab("lab12")?;
    let ranks = launch::ranks(given.map(|given| given.ranks()).or(args.ranks), 4)?;
    let slicing = match args.broken {
        Some(Break::Contiguous) => Slicing::Contiguous,
        _ => args.context.slices,
    };
    let alone = Strategy { context: ranks, slicing, ..Strategy::SINGLE };
    let strategy =
        given.unwrap_or(Strategy { exchange: args.context.comm, zero: Stage::One, ..alone });
    args.train.take(&strategy);
    if given.is_none() && args.train.model.dropout == 0.0 {
        args.train.model.dropout = 0.1; // the comparison covers the masks
    }
    // Long enough for every rank to have two chunks, and a batch that takes seconds.
    args.train.model.block.get_or_insert(64 * strategy.context.max(2));
    args.train.data.batch.get_or_insert(2);
    let corpus = args.train.data.corpus()?;
    let config = args.train.resolve(strategy.data, Some(args.steps), &corpus)?.under(&strategy);
    let block = config.shape.block;
    if args.context.documents > block {
        let documents = args.context.documents;
        let what = format!("--documents {documents} do not fit into --block {block}");
        let help = format!("give --documents at most {block}: each has a token");
        return Err(BadInput::new(what, help).into());
    }
    args.strategy.ensure_divides(&config.shape)?;
    strategy.check(&config.shape)?;
    strategy.ensure_trainable()?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    let exchanges = match (given, args.broken) {
        (Some(_), _) => Vec::new(),
        (_, Some(broken)) => {
            broken.ensure_made_by(args.context.comm, args.context.documents)?;
            vec![Strategy { exchange: args.context.comm, ..alone }]
        }
        _ => Exchange::ALL.map(|exchange| Strategy { exchange, ..alone }).to_vec(),
    };
    let packed = Packed {
        documents: args.context.documents,
        seed: config.seed,
        broken: None,
    };
    if args.broken == Some(Break::OwnCount) {
        packed.ensure_counts_differ(&config, &strategy, &corpus.train)?;
    }
    let exchanges = exchanges.into_iter().filter(|one| one.check(&config.shape).is_ok());
    let run = LabRun { ranks, is_broken: args.broken.is_some(), ..run };
    let lab = Lab {
        exchanges: exchanges.collect(),
        args,
        strategy,
        config,
        packed,
        corpus,
        run,
    };
    let footprint = Footprint::sharded(&lab.config, &lab.config.zero(lab.strategy.zero));
    let peak = || matmul_peak(lab.config.precision);
    if !lab.run.goes_on(&footprint, peak, || introduce(&lab))? {
        return Ok(());
    }
    if launch::is_first_process() {
        MetricsFile::create(lab.args.metrics.as_deref())?; // refused before the work, not after it
        introduce(&lab);
    }
    launch::one_compute_thread_a_rank();
    // Once per process: every rank compares its own gradients.
    let one = OneRank::train(&lab.config, lab.packed, &lab.corpus.train)
        .map_err(|error| kit::explain(&lab.config, error))?;
    lab.run.train(&lab.config, |comm, checks| one_rank(&lab, &one, comm, checks))
}

/// One rank's part, and its checks.
fn one_rank(lab: &Lab, one: &OneRank, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let screen = &lab.run.screen;
    let config = &lab.config;
    let text = &lab.corpus.train;
    kit::neighbours::warn(comm, &lab.strategy.layout())?;
    if lab.exchanges.is_empty() {
        let steps = train(lab, comm)?;
        if comm.rank() == 0 {
            screen.say("");
            check_last(lab, one, &steps, checks)?;
        }
        return Ok(());
    }
    let watch = OtherWork::watch();
    let beside = lesson::compare_attention(comm, config.seed)?;
    let with = (lab.packed, lab.args.broken);
    let mut measured = Vec::new();
    for strategy in &lab.exchanges {
        measured.push(apparatus::measure(comm, strategy, config, with, text, one)?);
    }
    let work = work(lab, comm)?;
    let busy = watch.row(screen, launch::ranks_here(comm.size()));
    let steps = match lab.args.broken {
        None => Some(train(lab, comm)?),
        Some(_) => None,
    };
    if comm.rank() != 0 {
        return Ok(());
    }
    let grid = Grid {
        ranks: comm.size(),
        slicing: lab.strategy.slicing,
        length: config.shape.block,
        documents: lab.packed.starts(config.shape.block, 0),
    };
    above::picture("The ring");
    screen.say(format!("\n{}", grid.draw(screen)));
    screen.say(format!("\n{}", apparatus::draw(screen, &work)));
    if let Some(busy) = busy {
        screen.say(busy);
    }
    let expected: Vec<[f64; 2]> = measured.iter().map(|one| expected_bytes(lab, one)).collect();
    let table = apparatus::compared(screen, config, one, &measured);
    screen.say(format!("\n{table}\n"));
    checks.beside("attention", beside);
    let asked = match lab.args.broken {
        Some(Break::Contiguous) => Slicing::Contiguous,
        _ => Slicing::ZigZag,
    };
    let found = Found { measured, expected, work, asked };
    apparatus::check(checks, config, one, &found);
    if let Some(steps) = &steps {
        check_last(lab, one, steps, checks)?;
    }
    checks.end_with("More: --show bytes, --break stale-kv, --strategy dp=2,tp=2,cp=2,zero=1");
    Ok(())
}

/// One document in both orders; and the batch in the run's, if documents are packed in it.
fn work(lab: &Lab, comm: &Comm) -> Result<Vec<Work>> {
    let Config { shape, batch, seed, .. } = &lab.config;
    let one = Load::one_document(comm.size());
    let mut all = Vec::new();
    for slicing in [Slicing::Contiguous, Slicing::ZigZag] {
        all.push(apparatus::work(comm, slicing, &one, *seed)?);
    }
    if lab.packed.documents > 1 {
        let starts = (0..*batch as u64).map(|sequence| lab.packed.starts(shape.block, sequence));
        let packed = Load {
            sequences: *batch,
            length: shape.block,
            heads: Heads { queries: 0..shape.heads, kv: shape.kv_heads() },
            head: shape.head(),
            documents: starts.collect(),
        };
        all.push(apparatus::work(comm, lab.strategy.slicing, &packed, *seed)?);
    }
    Ok(all)
}

/// Takes the steps of the last training.
fn train(lab: &Lab, comm: &Comm) -> Result<Vec<Step>> {
    let mut training = Training::new(&lab.config, &lab.strategy, comm)?;
    let mut packed = lab.packed;
    let [mut losses, mut norms] = [Vec::new(), Vec::new()];
    for step in 0..lab.config.steps {
        kit::progress(comm, || format!("{}: step {}", lab.strategy, step + 1));
        let taken = training.step_with(&lab.corpus.train, step, &mut packed)?;
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
    }
    training.mesh.group(Axis::Data).all_reduce(&mut losses, Reduce::Mean)?;
    let steps = losses.into_iter().zip(norms).zip(1..);
    Ok(steps.map(|((loss, grad_norm), step)| Step { step, loss, grad_norm }).collect())
}

/// Checks the last training, and writes its steps.
fn check_last(lab: &Lab, one: &OneRank, steps: &[Step], checks: &mut Checks) -> Result<()> {
    let Lab { config, strategy, packed, .. } = lab;
    let losses: Vec<f64> = steps.iter().map(|step| step.loss).collect();
    let compared = apparatus::steady_steps(config, *packed, &lab.corpus.train, one, &losses)?;
    apparatus::check_training(checks, config, one, strategy, &losses, compared);
    checks.wrote(write(steps, lab.args.metrics.as_deref()));
    Ok(())
}

fn write(steps: &[Step], path: Option<&Path>) -> Result<()> {
    let mut file = MetricsFile::create(path)?;
    steps.iter().try_for_each(|step| file.write(step))
}

/// A step, as `--metrics` writes it.
#[derive(Serialize)]
struct Step {
    /// Counted from 1.
    step: usize,
    /// Mean over all tokens that count.
    loss: f64,
    /// Before clipping.
    grad_norm: f64,
}

/// The bytes that each rank sends in a step, forward and backward.
fn expected_bytes(lab: &Lab, measured: &Measured) -> [f64; 2] {
    let Config { shape, batch, precision, .. } = &lab.config;
    let tokens = (batch * shape.block) as f64;
    let width = shape.embd as f64;
    let Strategy { exchange, context, .. } = measured.strategy;
    let [forward, backward] = exchange.sent(context, tokens, width, width);
    let bytes = precision.bytes() as f64;
    // A ring's gradients, and a gather's, are f32 in any run: they add up on the way.
    let gradients = match (exchange, precision) {
        (Exchange::Ulysses, _) | (_, Precision::F32) => bytes,
        _ => (bytes + 4.0) / 2.0,
    };
    [forward * bytes, backward * gradients].map(|each| each * shape.layers as f64)
}

fn introduce(lab: &Lab) {
    let Lab { run, config, strategy, .. } = lab;
    let screen = &run.screen;
    run.heading(None);
    report::ranks(screen, strategy.ranks());
    let dot = screen.separator();
    if lab.exchanges.is_empty() {
        run.row("strategy", &strategy.to_string());
    }
    run.row("model", &report::model(screen, &config.shape, ""));
    let documents = match lab.packed.documents {
        1 => "one document each".to_string(),
        several => format!("{several} documents in each"),
    };
    let batch = format!(
        "{} sequences of {} tokens, {} on each rank{dot}{documents}",
        config.batch * config.grad_accum * config.ranks,
        thousands(config.shape.block as u64),
        thousands((config.shape.block / strategy.context) as u64)
    );
    run.row("batch", &batch);
}
