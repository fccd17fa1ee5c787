//! Context parallelism: ranks hold different positions of the same sequences (Llama 3,
//! arXiv 2407.21783, section 3.3.2).
//!
//! Each of c ranks holds 1/c of the positions of every sequence, and all parameters. Norms, MLPs
//! and the loss need one position at a time, so only attention communicates. With s·b tokens, h
//! wide queries and `h_kv` wide keys, each rank sends per layer:
//!
//! | [`Exchange`] | what travels | forward | backward |
//! |---|---|---|---|
//! | gather | all ranks' keys and values, at once | 2(c-1)/c · s b h_kv | twice that: they are gathered again, and their gradients reduce-scattered |
//! | ring | the same, one rank's block at a time, while ranks compute | the same | the same |
//! | Ulysses | heads for positions, and back | 2(c-1)/c² · s b (h + h_kv) | the same once more |
//!
//! A context rank is a data rank in all other respects: it computes a summand of every gradient. So
//! ranks that share sequences are neighbours along the mesh's data axis, which is as long as data
//! and context ranks together, and ZeRO shards over all of them, as in Megatron-LM and torchtitan.
//!
//! Reading order: `mod.rs` (who holds which positions), `blocks.rs` (gather and ring),
//! `ulysses.rs`.

mod blocks;
mod ulysses;

pub use super::wire::all_gather;
pub use shapes::strategy::{Exchange, Slicing};

use crate::comm::Comm;
use crate::data::Batch;
use crate::model::{Attend, Heads, Pass};
use crate::tensor::{Activation, BlockAttention, Documents, Dropout, Slices, apply};
use blocks::AcrossBlocks;
use candle_core::{Result, bail};
use std::ops::Range;
use std::sync::Arc;
use ulysses::Exchanged;

/// The ranks that share sequences, and how.
///
/// Two ranks hold half of a sequence each, and compute the loss of the whole one:
///
/// ```
/// use shardlab::comm::Reduce;
/// use shardlab::data::Corpus;
/// use shardlab::launch;
/// use shardlab::model::{Gpt, Pass};
/// use shardlab::parallel::context::{ContextParallel, Exchange, Slicing};
/// use shardlab::train::Config;
///
/// let corpus = Corpus::embedded()?;
/// let config = Config::small(1, &corpus);
/// let batch = config.sampler(0).batch(&corpus.train, 0, 0);
/// let gpt = || {
///     let gpt = Gpt::new(&config.shape)?;
///     gpt.params.allocate(config.seed);
///     anyhow::Ok(gpt)
/// };
/// let whole = gpt()?.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?;
/// let means = launch::run(2, |comm| {
///     let context = ContextParallel::new(comm.clone(), Exchange::Ring, Slicing::ZigZag);
///     let (mine, pass) = context.share(batch.clone(), Pass::evaluate());
///     let mut mean = [gpt()?.loss(&mine, &pass)?.to_scalar::<f32>()?];
///     comm.all_reduce(&mut mean, Reduce::Mean)?;
///     Ok(mean[0])
/// })?;
/// assert!((means[0] - whole).abs() < 1e-5);
/// # anyhow::Ok(())
/// ```
#[derive(Clone)]
pub struct ContextParallel {
    group: Comm,
    exchange: Exchange,
    slicing: Slicing,
}

impl ContextParallel {
    /// For the ranks of `group`.
    pub fn new(group: Comm, exchange: Exchange, slicing: Slicing) -> ContextParallel {
        ContextParallel { group, exchange, slicing }
    }

    /// The ranks that share sequences.
    pub fn group(&self) -> &Comm {
        &self.group
    }

    /// Attention over sequences of `length` tokens, in which documents are packed: of this rank's
    /// positions to those of all ranks.
    pub fn attention(&self, length: usize, documents: &Documents) -> Arc<dyn Attend> {
        let ranks = self.group.size();
        Arc::new(ContextAttention {
            context: self.clone(),
            length,
            slices: (0..ranks).map(|rank| self.slicing.slices(length, ranks, rank)).collect(),
            documents: documents.clone(),
        })
    }

    /// This rank's slices of a batch, of which every rank of the group has drawn all, and `pass`
    /// over them. A position's target is the next token of the whole sequence, also at the end of a
    /// slice.
    pub fn share(&self, batch: Batch, pass: Pass) -> (Batch, Pass) {
        let ranks = self.group.size();
        if ranks == 1 && batch.documents.is_empty() {
            return (batch, pass);
        }
        let attention = self.attention(batch.length, &batch.documents);
        let slices = self.slicing.slices(batch.length, ranks, self.group.rank());
        let sliced = |tokens: &[u32]| -> Vec<u32> {
            let sequences = tokens.chunks(batch.length.max(1));
            let slice = |sequence: &[u32]| -> Vec<u32> {
                slices.positions(slices.rows()).map(|position| sequence[position]).collect()
            };
            sequences.flat_map(slice).collect()
        };
        let sliced = Batch {
            inputs: sliced(&batch.inputs),
            targets: sliced(&batch.targets),
            length: slices.rows(),
            ..batch
        };
        let dropout = pass.dropout.map(|dropout| Dropout { slices: slices.clone(), ..dropout });
        (sliced, Pass { slices, dropout, attention: Some(attention), ..pass })
    }
}

/// Attention in one pass over sequences that ranks share.
struct ContextAttention {
    context: ContextParallel,
    /// Tokens of a whole sequence.
    length: usize,
    /// Of every rank.
    slices: Arc<[Slices]>,
    documents: Documents,
}

impl Attend for ContextAttention {
    fn attend(
        &self,
        qkv: Activation,
        heads: &Heads,
        pass: &Pass,
        layer: &str,
    ) -> Result<Activation> {
        let ContextParallel { group, exchange, .. } = &self.context;
        let Heads { queries, kv } = heads;
        let (_, _, row) = qkv.dims3()?;
        let all = queries.len() + 2 * kv;
        if !row.is_multiple_of(all) || !queries.len().is_multiple_of(*kv) {
            bail!("attention with {} heads and {kv} keys: rows of {row} numbers", queries.len());
        }
        let head = row / all;
        let attention = |queries: Range<usize>, kv| {
            BlockAttention::new(queries, kv, head, self.length, pass.precision)
                .with_documents(&self.documents)
                .with_dropout(pass.dropout.as_ref(), layer)
        };
        if *exchange == Exchange::Ulysses && group.size() > 1 {
            // My heads of all positions, in the order of the ranks' slices.
            let widths = [queries.len() * head, kv * head, kv * head];
            let exchanged = Exchanged::new(group, pass.precision, &widths);
            let qkv = exchanged.to_heads(qkv)?;
            let each = queries.len() / group.size();
            let first = queries.start + group.rank() * each;
            let slices = self.slices.iter().flat_map(|slices| slices.runs(0..slices.rows()));
            let whole = Slices::new(slices.map(|(_, positions)| positions));
            let heads = attention(first..first + each, kv / group.size());
            let gather = Exchange::Gather; // of one rank: there is nothing to exchange
            let op = AcrossBlocks::new(heads, [whole].into(), &Comm::alone(), gather);
            let y = apply(&qkv, op)?;
            return Exchanged::new(group, pass.precision, &widths[..1]).to_positions(y);
        }
        let attention = attention(queries.clone(), *kv);
        apply(&qkv, AcrossBlocks::new(attention, self.slices.clone(), group, *exchange))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_on_one_rank() {
        for slicing in Slicing::ALL {
            let mut all: Vec<usize> = (0..3)
                .flat_map(|rank| slicing.slices(12, 3, rank).positions(4).collect::<Vec<_>>())
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..12).collect::<Vec<_>>(), "{slicing:?}");
        }
        assert_eq!(Slicing::ZigZag.slices(12, 3, 1), Slices::new([2..4, 8..10]));
        let of_two = Slicing::ALL.map(|slicing| slicing.chunks(2));
        assert_eq!((Slicing::ALL.map(|slicing| slicing.chunks(1)), of_two), ([1; 2], [4, 2]));
    }

    /// Of four ranks each has 25 of 100 tokens. It sends all its keys and values to three; or of
    /// its tokens three quarters of queries, keys, values and results.
    #[test]
    fn what_ranks_send_is_counted() {
        let sent = |exchange: Exchange| exchange.sent(4, 100.0, 8.0, 2.0);
        assert_eq!(sent(Exchange::Ring), [75.0 * 2.0 * 2.0, 150.0 * 2.0 * 2.0]);
        assert_eq!(sent(Exchange::Ulysses), [25.0 * 0.75 * 2.0 * (8.0 + 2.0); 2]);
    }
}
