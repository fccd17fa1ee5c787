//! Routers that select as DeepSeek-V3's: sigmoids, groups, a shared expert, and a bias that loads
//! move. The first block has one MLP, as the first three of DeepSeek-V3 have.

use super::trained::{SELECTING, checkpoints, config};
use kit::parity;
use shardlab::checkpoint::{Resume, universal};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::difference::same_bits;
use shardlab::model::{Auxiliary, Gpt};
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{Capacity, Drops, Part};
use shardlab::tensor::Params;
use shardlab::train::{Config, Training};
use std::path::Path;

const STEPS: usize = 3;

/// A training for a mesh, without a loss that balances: its f would be another one on one rank.
fn job(strategy: &Strategy) -> (Config, Corpus) {
    config(strategy.data, |config| {
        config.shape.experts = Some(SELECTING);
        config.clip = 0.1;
        config.grad_accum = strategy.micro_batches.unwrap_or(2);
        config.auxiliary = Auxiliary::default();
    })
}

/// All biases of a training, layer by layer.
fn biases(training: &mut Training) -> anyhow::Result<Vec<f32>> {
    training.whole(|model| Ok(biases_among(&model.params.values(), &model.params)))
}

/// Those among the `values` of a model that `params` declares.
fn biases_among(values: &[f32], params: &Params) -> Vec<f32> {
    let selecting = params.specs().iter().filter(|spec| spec.whole.part == Part::SelectionBias);
    selecting.flat_map(|spec| values[spec.range()].to_vec()).collect()
}

/// After each step a bias has gone against the sign of its expert's load in all micro-batches, and
/// by 0.001: one rank, whose loads are counted here once more.
pub fn a_step_moves_each_bias_once() -> anyhow::Result<()> {
    let (config, corpus) = job(&Strategy::SINGLE);
    assert_eq!(config.grad_accum, 2);
    let mut training = Training::new(&config, &Strategy::SINGLE, &Comm::alone())?;
    let mut expected = vec![0f32; (config.shape.layers - 1) * 8];
    for step in 0..STEPS {
        let taken = training.step(&corpus.train, step)?;
        let mut loads = vec![0; expected.len()];
        for balance in &taken.computed.balances {
            let copies = balance.loads().into_values().flat_map(|load| load.copies);
            loads.iter_mut().zip(copies).for_each(|(sum, copies)| *sum += copies);
        }
        let mean = (2 * config.tokens_per_step()) as u64 / 8;
        for (bias, load) in expected.iter_mut().zip(&loads) {
            match load.cmp(&mean) {
                std::cmp::Ordering::Less => *bias += 1e-3,
                std::cmp::Ordering::Equal => (),
                std::cmp::Ordering::Greater => *bias -= 1e-3,
            }
        }
        assert!(same_bits(&biases(&mut training)?, &expected), "step {step}");
    }
    Ok(())
}

/// Ranks move the biases that one rank moves, to the last bit; and a checkpoint has them, on this
/// mesh and on one rank. `dir` is a folder that all ranks reach.
pub fn ranks_move_the_biases_of_one(
    world: &Comm,
    strategy: &str,
    dir: &Path,
) -> anyhow::Result<()> {
    let strategy: Strategy = strategy.parse()?;
    let (config, corpus) = job(&strategy);
    let mut training = Training::new(&config, &strategy, world)?;
    for step in 0..STEPS {
        training.step(&corpus.train, step)?;
    }
    let found = biases(&mut training)?;
    let single = || {
        let one = Config { ranks: 1, ..config.clone() };
        Training::new(&one, &Strategy::SINGLE, &Comm::alone())
    };
    let all = checkpoints(world, &config, dir, strategy);
    let folder = all.save(STEPS, &mut training.zero, &STEPS)?;
    let mut resumed = Training::new(&config, &strategy, world)?;
    all.resume::<usize>(&Resume::Auto, &mut resumed.zero)?.expect("a checkpoint");
    assert!(same_bits(&biases(&mut resumed)?, &found), "{strategy}: resumed");
    if world.rank() == 0 {
        let universal = universal::merge(&folder, &dir.join("universal"))?;
        let mut restored = single()?;
        universal.restore::<usize>(&Comm::alone(), &mut restored.zero)?;
        assert!(same_bits(&biases(&mut restored)?, &found), "{strategy}: restored");

        let one = parity::serial(single()?, &config, &corpus.train, STEPS)?;
        let expected = biases_among(&one.values, &Gpt::new(&config.shape)?.params);
        assert!(expected.iter().any(|&bias| bias != 0.0));
        assert!(same_bits(&found, &expected), "{strategy}: {found:?}, {expected:?}");
    }
    Ok(world.barrier()?)
}

/// Each rank drops, for each expert, what its own tokens have above the capacity, and sends the
/// rest.
pub fn each_rank_drops_its_own(world: &Comm) -> anyhow::Result<()> {
    let strategy = Strategy {
        expert: world.size(),
        ..Strategy::data(world.size(), Stage::Ddp)
    };
    for drops in [Drops::Probs, Drops::Position] {
        let (mut config, corpus) = job(&strategy);
        let capacity = Capacity { factor: 1.1, drops };
        let mut experts = SELECTING;
        experts.selection.capacity = Some(capacity);
        config.shape.experts = Some(experts);
        let mut training = Training::new(&config, &strategy, world)?;
        let taken = training.step(&corpus.train, 0)?;
        let mut dropped = 0;
        for balance in &taken.computed.balances {
            for (layer, load) in balance.loads() {
                let most = capacity.most(load.tokens, &experts) as u64;
                let above = load.copies.iter().map(|copies| copies.saturating_sub(most));
                assert_eq!(load.dropped(), above.sum::<u64>(), "{layer}");
                dropped += load.dropped();
            }
        }
        assert!(dropped > 0 && taken.grad_norm.is_finite());
    }
    Ok(())
}
