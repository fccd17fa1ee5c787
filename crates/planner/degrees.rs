//! What a plan does with a strategy: the micro-batches and chunks that are tried, the layers of a
//! pipeline rank, and a strategy in the words of a table.

use shapes::strategy::{Offloaded, Recompute, Strategy};

/// The sequences of a micro-batch that are tried.
pub const MICRO_BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// The numbers of chunks that are tried.
const CHUNKS: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 10];

/// A strategy's degrees, as a plan needs them. A strategy that names no micro-batch has one
/// sequence in each.
pub trait Degrees {
    /// Sequences of a micro-batch.
    fn sequences(&self) -> usize;
    /// Micro-batches per replica and step, if a step has `batch` sequences.
    fn micro_batches_of(&self, batch: usize) -> usize;
    /// The numbers of chunks that are tried with so many pipeline ranks. A model's token table and
    /// head count as layers.
    fn chunks_for(&self, layers: usize) -> impl Iterator<Item = usize>;
    /// Layers of a pipeline rank, over all its chunks. Where stages cannot be equal, the last of
    /// all has a layer less than the longest, then the first, and then more of them from the end:
    /// the head and the token table count as layers, as with Megatron-LM's
    /// `--account-for-embedding-in-pipeline-split`.
    fn layers_of(&self, layers: usize, rank: usize) -> usize;
    /// Layers of the pipeline rank that has most.
    fn layers(&self, layers: usize) -> usize;
    /// The pipeline ranks of which one holds most: of those between the ends, the first has most
    /// micro-batches in flight.
    fn heaviest_ranks(&self) -> impl Iterator<Item = usize>;
    /// Tokens of a micro-batch on one rank: context ranks share each sequence of `block` tokens.
    fn tokens(&self, block: usize) -> f64;
    /// Tensor ranks that share the residual stream.
    fn stream(&self) -> usize;
    /// The part of the layers that is computed again from its input.
    fn whole_layers(&self) -> f64;
    /// In the field's words: `DP 8`, `ZeRO-3 8`, `TP 8 + PP 4 + ZeRO-1 2`.
    fn words(&self) -> String;
}

impl Degrees for Strategy {
    fn sequences(&self) -> usize {
        self.micro_batch.unwrap_or(1)
    }

    fn micro_batches_of(&self, batch: usize) -> usize {
        (batch / (self.data * self.sequences()).max(1)).max(1)
    }

    fn chunks_for(&self, layers: usize) -> impl Iterator<Item = usize> {
        let pipeline = self.pipeline;
        let fit =
            move |chunks: &usize| *chunks == 1 || pipeline > 1 && pipeline * chunks <= layers + 2;
        CHUNKS.into_iter().filter(fit)
    }

    fn layers_of(&self, layers: usize, rank: usize) -> usize {
        let stages = self.pipeline * self.chunks;
        let longest = layers.div_ceil(stages);
        let short = longest * stages - layers;
        // In the order in which they give a layer away.
        let gives = |stage: usize| match stage {
            0 if stages > 1 => 1,
            stage if stage + 1 == stages => 0,
            stage => stages - stage,
        };
        let of_rank = (0..self.chunks).map(|chunk| chunk * self.pipeline + rank);
        let given = of_rank.filter(|&stage| gives(stage) < short).count();
        longest * self.chunks - given
    }

    fn layers(&self, layers: usize) -> usize {
        let of = |rank| self.layers_of(layers, rank);
        (0..self.pipeline.min(3)).map(of).max().unwrap_or(0)
    }

    fn heaviest_ranks(&self) -> impl Iterator<Item = usize> {
        let last = self.pipeline - 1;
        (0..self.pipeline).filter(move |&rank| rank < 2 || rank == last)
    }

    fn tokens(&self, block: usize) -> f64 {
        (self.sequences() * block) as f64 / self.context as f64
    }

    fn stream(&self) -> usize {
        if self.sequence { self.tensor } else { 1 }
    }

    fn whole_layers(&self) -> f64 {
        match self.recompute {
            Recompute::Full | Recompute::Blocks(_) => 1.0,
            Recompute::OneIn(layers) => 1.0 / layers as f64,
            _ => 0.0,
        }
    }

    fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.tensor > 1 {
            parts.push(format!("TP {}", self.tensor));
        }
        if self.pipeline > 1 {
            parts.push(format!("PP {}", self.pipeline));
        }
        if self.context > 1 {
            parts.push(format!("CP {}", self.context));
        }
        let data = self.gradient_ranks();
        if data > 1 {
            let Strategy { replicas, .. } = *self;
            let shard = self.shard_ranks();
            parts.push(match self.zero.number() {
                0 if self.data == 1 => String::new(),
                0 => format!("DP {}", self.data),
                zero if replicas == 1 => format!("ZeRO-{zero} {data}"),
                3 => format!("HSDP {shard} x {replicas}"),
                zero => format!("ZeRO-{zero} {shard} x {replicas}"),
            });
        }
        parts.retain(|part| !part.is_empty());
        match self.offload {
            Offloaded::None => {}
            Offloaded::Optimizer => parts.push("offloaded optimizer".to_string()),
            Offloaded::Parameters => parts.push("offloaded parameters".to_string()),
        }
        if parts.is_empty() {
            "one device".into()
        } else {
            parts.join(" + ")
        }
    }
}

/// What is computed once more, in a column of a table.
pub fn cell(recompute: Recompute) -> String {
    match recompute {
        Recompute::None => "-".into(),
        Recompute::Selective => "scores".into(),
        Recompute::Norms => "norms".into(),
        Recompute::Mlp => "MLP".into(),
        Recompute::OneIn(layers) => format!("1/{layers}"),
        Recompute::Full => "all".into(),
        Recompute::Blocks(layers) => format!("{layers} together"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama 3's 126 layers on 16 stages: the first and the last have one less (arXiv 2407.21783,
    /// section 3.3.2). BLOOM's 70 on 12 count the token table and the head as layers.
    #[test]
    fn uneven_stages_share_all_layers() {
        let stages = |layers: usize, pipeline: usize, chunks: usize| -> Vec<usize> {
            let strategy = Strategy { pipeline, chunks, ..Strategy::SINGLE };
            let all: Vec<usize> =
                (0..pipeline).map(|rank| strategy.layers_of(layers, rank)).collect();
            assert_eq!(all.iter().sum::<usize>(), layers);
            assert_eq!(all.iter().max(), Some(&strategy.layers(layers)), "{all:?}");
            all
        };
        let llama = stages(126, 16, 1);
        assert_eq!((llama[0], llama[15]), (7, 7));
        assert!(llama[1..15].iter().all(|&layers| layers == 8));
        assert_eq!(stages(126, 16, 8), llama);
        assert_eq!(stages(70, 12, 1)[..2], [5, 6]);
        assert_eq!(stages(61, 16, 1), [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3]);
        assert_eq!(stages(80, 8, 2), [10; 8]);
        assert_eq!(stages(126, 126, 1), [1; 126]);
        assert_eq!(stages(7, 2, 1), [4, 3]);
        assert_eq!(stages(5, 1, 1), [5]);
    }
}
