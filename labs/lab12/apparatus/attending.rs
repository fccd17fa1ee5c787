//! What one layer's attention holds while it computes: an exchange's own memory, which nothing
//! shows that is counted between the passes.

use super::Packed;
use anyhow::Result;
use shardlab::allocator;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Uniform;
use shardlab::model::{Heads, Pass};
use shardlab::parallel::Strategy;
use shardlab::parallel::context::ContextParallel;
use shardlab::tensor::Activation;
use shardlab::train::Config;

/// The most bytes that one layer's attention holds at once, forward and backward, beside its
/// queries, keys and values: on the rank of `group` that holds most. Messages on their way belong
/// to no rank.
///
/// # Errors
/// If ranks cannot exchange their keys.
pub fn attending(
    group: &Comm,
    strategy: &Strategy,
    config: &Config,
    packed: &Packed,
    text: &[u32],
) -> Result<f64> {
    let packed = Packed { broken: None, ..*packed };
    let shape = &config.shape;
    let batch = packed.pack(config.sampler(0).batch(text, 0, 0));
    let sequences = batch.inputs.len() / batch.length;
    let context = ContextParallel::new(group.clone(), strategy.exchange, strategy.slicing);
    let attention = context.attention(batch.length, &batch.documents);
    let pass = Pass { precision: config.precision, ..Pass::training(None) };
    let mine = strategy.slicing.slices(batch.length, group.size(), group.rank()).rows();
    let heads = Heads { queries: 0..shape.heads, kv: shape.kv_heads() };
    let row = shape.embd / shape.heads * (shape.heads + 2 * heads.kv);
    let numbers = |seed, width| {
        let all = sequences * mine;
        let samples = Uniform { seed, rank: group.rank(), batch: all, width };
        samples.batch(0)
    };
    let qkv = numbers(config.seed, row);
    let dy = numbers(config.seed + 1, shape.embd);
    let mut most = 0.0;
    // The first turn also leaves buffers that are kept.
    for _ in 0..2 {
        let qkv = Activation::start(qkv.clone(), (sequences, mine, row))?;
        let dy = dy.clone();
        let (peak, done) = allocator::peak_of(|| {
            attention.attend(qkv, &heads, &pass, "attention")?.backward(dy, None)
        });
        done?;
        most = peak as f64;
    }
    Ok(group.reduced(most, Reduce::Max)?)
}
