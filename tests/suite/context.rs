//! Context parallelism beside one rank: attention across ranks' positions, and trainings of a mesh.

use super::trained::Model;
use super::trained::{config, gradients_are_one_ranks, loss_rounding, train_large_batch};
use candle_core::{DType, Device, Tensor, Var};
use kit::parity::rounding;
use shardlab::comm::Comm;
use shardlab::data::{Batch, Uniform};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::model::{Auxiliary, Heads, Pass};
use shardlab::parallel::Strategy;
use shardlab::parallel::context::{ContextParallel, Exchange, Slicing};
use shardlab::tensor::{self, Dropout, IGNORED, Precision};
use shardlab::train::{Config, MicroBatch, Observer, Training};

const SEQUENCES: usize = 2;
const HEAD: usize = 4;

/// One layer's attention: the result, and the gradient of its input.
type Both = [Tensor; 2];

/// Attention and its gradient, of all positions, for a result's gradient `dy`.
fn both(
    x: &Tensor,
    dy: &Tensor,
    y: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
) -> anyhow::Result<Both> {
    let x = Var::from_tensor(x)?;
    let y = y(x.as_tensor())?;
    let gradients = (&y * dy)?.sum_all()?.backward()?;
    Ok([y.detach(), gradients.get(&x).expect("attention reads x").clone()])
}

/// Rows of `x` [sequences, positions, width] at these positions.
fn rows(x: &Tensor, positions: &[u32]) -> candle_core::Result<Tensor> {
    x.index_select(&Tensor::new(positions, &Device::Cpu)?, 1)?.contiguous()
}

/// The numbers of so many rows.
fn all_rows(rows: &[u32]) -> Vec<u32> {
    (0..rows.len() as u32).collect()
}

/// The norm of the difference of `found` and its rows of `whole`, beside that of `whole`.
fn relative(found: &Tensor, positions: &[u32], whole: &Tensor) -> anyhow::Result<f64> {
    let norm = |x: &Tensor| {
        let numbers = x.flatten_all()?.to_vec1::<f32>()?;
        candle_core::Result::Ok(numbers.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt())
    };
    Ok(norm(&(found - rows(whole, positions)?)?)? / norm(whole)?)
}

/// Attention whose positions the ranks share, by every exchange and in every order, is the
/// attention of one rank: with dropout, with grouped queries, and with documents, each of which is
/// a sequence of its own.
pub fn attention_is_one_ranks(comm: &Comm) -> anyhow::Result<()> {
    let length = 6 * 2 * comm.size() * 3;
    let heads = 2 * comm.size();
    for (kv, starts, p) in [
        (heads, vec![], 0.0),
        (heads, vec![], 0.2),
        (comm.size(), vec![], 0.0),
        (comm.size(), vec![5, length / 2, length - 1], 0.0),
        (heads, vec![7, length / 2 + 3], 0.2),
    ] {
        let numbers = |seed, width| {
            let all = Uniform { seed, rank: 0, batch: SEQUENCES * length, width };
            Tensor::from_vec(all.batch(0), (SEQUENCES, length, width), &Device::Cpu)
        };
        let qkv = (numbers(1, (heads + 2 * kv) * HEAD)? * 2.0)?;
        let dy = numbers(2, heads * HEAD)?;
        let dropout = (p > 0.0).then(|| Dropout {
            p,
            seed: 3,
            step: 5,
            sequences: [8, 9].into(),
            slices: Default::default(),
        });
        let pass = Pass { train: true, dropout: dropout.clone(), ..Pass::default() };
        let batch = Batch {
            inputs: vec![0; SEQUENCES * length],
            targets: vec![0; SEQUENCES * length],
            length,
            sequences: [8, 9].into(),
            starts: vec![0; SEQUENCES],
            documents: match starts.len() {
                0 => Default::default(),
                _ => vec![starts.clone(), vec![]].into(),
            },
        };
        let layer = Heads { queries: 0..heads, kv };
        let share = |context: &ContextParallel| {
            let (_, pass) = context.share(batch.clone(), pass.clone());
            let positions = pass.slices.positions(length / context.group().size());
            let positions: Vec<u32> = positions.map(|position| position as u32).collect();
            let ones = Tensor::ones((SEQUENCES, length, HEAD), DType::F32, &Device::Cpu)?;
            let dropped = pass.drop(rows(&ones, &positions)?, "blocks.0.proj")?;
            let all = Pass { dropout: dropout.clone(), ..Pass::default() };
            let expected = rows(&all.drop(ones, "blocks.0.proj")?, &positions)?;
            assert_eq!(relative(&dropped, &all_rows(&positions), &expected)?, 0.0, "{positions:?}");
            both(&rows(&qkv, &positions)?, &rows(&dy, &positions)?, |qkv| {
                let attention = pass.attention.as_ref().expect("ranks share sequences");
                tensor::node(qkv, |qkv| attention.attend(qkv.clone(), &layer, &pass, "blocks.0"))
            })
            .map(|both| (both, positions))
        };
        let expected = match (starts.is_empty(), p > 0.0) {
            (true, false) => {
                both(&qkv, &dy, |qkv| tensor::grouped_attention(qkv, heads, kv, Precision::F32))?
            }
            (true, true) => both(&qkv, &dy, |qkv| {
                let dropout = dropout.as_ref().map(|dropout| (dropout, "blocks.0"));
                tensor::causal_attention(qkv, heads, 0, dropout, Precision::F32)
            })?,
            (false, true) => {
                let alone = ContextParallel::new(Comm::alone(), Exchange::Gather, Slicing::ZigZag);
                share(&alone)?.0
            }
            (false, false) => by_document(&qkv, &dy, &starts, (heads, kv))?,
        };
        for slicing in Slicing::ALL {
            let mut by = Vec::new();
            for exchange in Exchange::ALL {
                let what = format!("{kv} keys, {starts:?}, dropout {p}, {exchange:?}, {slicing:?}");
                let (found, positions) =
                    share(&ContextParallel::new(comm.clone(), exchange, slicing))?;
                for (found, expected) in found.iter().zip(&expected) {
                    let apart = relative(found, &positions, expected)?;
                    // Scores, sums and averages are a few roundings apart.
                    assert!(apart < 1e-6, "{what}: {apart:e}");
                }
                by.push(found[0].flatten_all()?.to_vec1::<f32>()?);
            }
            assert!(same_bits(&by[0], &by[1]), "a ring brings the blocks that a gather brings");
        }
    }
    Ok(())
}

/// Attention in which the first sequence's documents are sequences of their own.
fn by_document(
    qkv: &Tensor,
    dy: &Tensor,
    starts: &[usize],
    (heads, kv): (usize, usize),
) -> anyhow::Result<Both> {
    let length = qkv.dim(1)?;
    let ends: Vec<usize> = starts.iter().copied().chain([length]).collect();
    let begins = [0].into_iter().chain(starts.iter().copied());
    let mut parts = [Vec::new(), Vec::new()];
    let mut of = |s: usize, from: usize, to: usize| {
        let part = |x: &Tensor| x.narrow(0, s, 1)?.narrow(1, from, to - from)?.contiguous();
        let found = both(&part(qkv)?, &part(dy)?, |qkv| {
            tensor::grouped_attention(qkv, heads, kv, Precision::F32)
        })?;
        for (parts, found) in parts.iter_mut().zip(found) {
            parts.push(found);
        }
        anyhow::Ok(())
    };
    for (from, to) in begins.zip(ends) {
        of(0, from, to)?;
    }
    of(1, 0, length)?;
    let joined = |parts: &[Tensor]| {
        let second = parts.len() - 1;
        Tensor::cat(&[&Tensor::cat(&parts[..second], 1)?, &parts[second]], 0)
    };
    Ok([joined(&parts[0])?, joined(&parts[1])?])
}

/// Packs two documents in each sequence, if told where the second may begin; a document's last
/// position has no target.
struct Packed(Option<usize>);

impl Packed {
    fn pack(&self, mut batch: Batch) -> Batch {
        let Some(first) = self.0 else { return batch };
        let sequences = batch.sequences.len();
        let start = |s: usize| first + s % 3;
        for s in 0..sequences {
            batch.targets[s * batch.length + start(s) - 1] = IGNORED;
        }
        batch.documents = (0..sequences).map(|s| vec![start(s)]).collect();
        batch
    }
}

impl Observer for Packed {
    fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
        self.pack(micro_batch.draw())
    }
}

/// A mesh with context ranks trains what one rank trains: losses and weights, and of the first step
/// each gradient, with dropout and with documents that end on one rank only.
pub fn a_mesh_trains_what_one_rank_trains(
    world: &Comm,
    model: Model,
    strategy: &str,
) -> anyhow::Result<()> {
    const STEPS: usize = 4;
    let strategy: Strategy = strategy.parse()?;
    let (config, corpus) = config(strategy.data, |config| {
        (config.dropout, config.clip, config.shape.heads) = (0.1, 0.5, 4);
        (config.shape.family, config.shape.experts) = model;
        config.grad_accum = strategy.micro_batches.unwrap_or(1);
        // Each micro-batch has an f of its own, which makes another loss.
        let coefficient = if config.grad_accum == 1 { 1.0 } else { 0.0 };
        config.auxiliary = Auxiliary {
            coefficient,
            over_ranks: true,
            z: 0.01,
            ..Auxiliary::default()
        };
    });
    let text = &corpus.train;
    // First, because it names what is wrong.
    for documents in [None, Some(config.shape.block / 2 - 1)] {
        first_step(world, &config, text, &strategy, Packed(documents))?;
    }
    let mut training = Training::new(&config, &strategy, world)?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        losses.push(training.step(text, step)?.loss);
    }
    let expected = train_large_batch(&config, text, STEPS)?;
    let mut all = losses;
    training
        .mesh
        .group(shardlab::mesh::Axis::Data)
        .all_reduce(&mut all, shardlab::comm::Reduce::Mean)?;
    let apart = largest_difference(&all, &expected.losses);
    let most = loss_rounding(config.tokens_per_step());
    assert!(apart < most, "{strategy}: {all:?} against {:?}", expected.losses);
    let values = training.whole(|gpt| Ok(gpt.params.values().clone()))?;
    let apart = largest_difference(&values, &expected.values);
    assert!(apart < config.schedule.at(0) / 2.0, "{strategy}: {apart:e}");
    Ok(())
}

/// The first step is one rank's: its loss, its norm, and each parameter's gradient.
fn first_step(
    world: &Comm,
    config: &Config,
    text: &[u32],
    strategy: &Strategy,
    mut observer: Packed,
) -> anyhow::Result<()> {
    let mut training = Training::new(config, strategy, world)?;
    let taken = training.step_with(text, 0, &mut observer)?;
    let one = Config { ranks: 1, grad_accum: 1, ..config.clone() };
    let mut alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let of_rank =
        |rank| (0..config.grad_accum).map(move |micro| config.sampler(rank).batch(text, 0, micro));
    let all: Vec<Batch> =
        (0..config.ranks).flat_map(of_rank).map(|batch| observer.pack(batch)).collect();
    let passes = alone.with_passes(0, vec![Batch::concat(&all)])?;
    let ran = alone.passes(&passes)?;
    alone.average()?;
    let mut loss = [taken.loss];
    training
        .mesh
        .group(shardlab::mesh::Axis::Data)
        .all_reduce(&mut loss, shardlab::comm::Reduce::Mean)?;
    let expected = alone.loss(&ran)?;
    assert!(
        (loss[0] - expected).abs() < loss_rounding(config.tokens_per_step()),
        "{strategy}: {loss:?}, {expected}"
    );
    let params = &alone.stages.chunks[0].params;
    let bound = rounding(&config.shape, config.tokens_per_step());
    gradients_are_one_ranks(world, &mut training, taken.grad_norm, params, bound)?;
    let norm = alone.zero.norm()?;
    assert!(
        (taken.grad_norm - norm).abs() < bound * norm,
        "{strategy}: {} {norm}",
        taken.grad_norm
    );
    Ok(())
}
