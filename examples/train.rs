//! A whole training, with nothing but the library: copy it, and put your own text and model in.
//!
//! ```sh
//! cargo run --example train dp=2,tp=2,zero=1                 # four ranks: threads of this process
//! cargo run --example train dp=2,zero=1 --save runs/mine     # saves; typed once more, it goes on
//! cargo build --features mpi --example train                 # or ranks as processes
//! mpirun -n 4 target/debug/examples/train dp=2,tp=2,zero=1
//! ```
//!
//! Every strategy has one rank's losses: the same bits, or as near as the order of sums allows.

use anyhow::{Context, Result};
use shardlab::checkpoint::{Checkpoints, Resume};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Corpus, Sampling};
use shardlab::launch;
use shardlab::mesh::Axis;
use shardlab::parallel::Strategy;
use shardlab::plan::ModelShape;
use shardlab::train::{Config, LrSchedule, Training};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sequences that a step learns from, whatever the strategy: its ranks and micro-batches divide
/// it.
const GLOBAL_BATCH: usize = 8;

fn main() -> ExitCode {
    launch::main(run) // prints an error, and leaves MPI
}

fn run() -> Result<()> {
    let mut strategy = Strategy::default();
    let mut steps = 40;
    let mut save = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--steps" => steps = words.next().context("--steps N")?.parse().context("--steps N")?,
            "--save" => save = Some(PathBuf::from(words.next().context("--save FOLDER")?)),
            text => strategy = text.parse()?, // such as dp=2,tp=2,zero=1
        }
    }
    train(&strategy, steps, save.as_deref())?;
    Ok(())
}

/// Trains on all ranks of a strategy. Returns the steps' losses.
pub(crate) fn train(strategy: &Strategy, steps: usize, save: Option<&Path>) -> Result<Vec<f64>> {
    let corpus = Corpus::embedded()?;
    let config = settings(strategy, &corpus)?;
    let ranks = launch::ranks(None, strategy.ranks())?; // a launcher's processes must be as many
    let losses =
        launch::run(ranks, |comm| one_rank(&comm, strategy, &config, &corpus, steps, save))?;
    Ok(losses.into_iter().next().unwrap_or_default())
}

/// The model, and how a step learns from a text.
pub(crate) fn settings(strategy: &Strategy, corpus: &Corpus) -> Result<Config> {
    let parts = strategy.data * strategy.micro_batches.unwrap_or(1);
    anyhow::ensure!(
        GLOBAL_BATCH.is_multiple_of(parts),
        "{strategy} makes {parts} micro-batches, which do not divide {GLOBAL_BATCH} sequences"
    );
    Ok(Config {
        ranks: strategy.data,
        shape: ModelShape {
            vocabulary: corpus.vocabulary.size(),
            layers: 2,
            heads: 2,
            embd: 64,
            block: 32,
            ..Config::default().shape
        },
        batch: GLOBAL_BATCH / parts,
        sampling: Sampling::Global, // a step's sequences do not depend on who takes them
        schedule: LrSchedule::constant(3e-3),
        ..Config::default()
    })
}

/// One rank's part: the same program on all of them.
fn one_rank(
    comm: &Comm,
    strategy: &Strategy,
    config: &Config,
    corpus: &Corpus,
    steps: usize,
    save: Option<&Path>,
) -> Result<Vec<f64>> {
    // ANCHOR: step
    let mut training = Training::new(config, strategy, comm)?;
    let text = &corpus.train;
    // Each rank writes and reads what it holds. Another strategy needs a universal checkpoint:
    // lab09.
    let checkpoints = save.map(|folder| Checkpoints::new(folder, 2, training.job(text), comm));
    let resumed = match &checkpoints {
        Some(all) => all.resume::<()>(&Resume::Auto, &mut training.zero)?,
        None => None,
    };
    let first = resumed.map_or(0, |saved| saved.step);

    let mut losses = Vec::new();
    for step in first..first + steps {
        // Forward, backward, exchange, update.
        let taken = training.step(text, step)?;
        // The loss of this rank's replica; the job's is the mean over all replicas.
        let mut loss = [taken.loss];
        training.mesh.group(Axis::Data).all_reduce(&mut loss, Reduce::Mean)?;
        if comm.rank() == 0 {
            println!("step={} loss={:.6} grad_norm={:.4}", step + 1, loss[0], taken.grad_norm);
        }
        losses.push(loss[0]);
    }
    if let Some(all) = &checkpoints {
        all.save(first + steps, &mut training.zero, &())?;
    }
    // ANCHOR_END: step
    Ok(losses)
}
