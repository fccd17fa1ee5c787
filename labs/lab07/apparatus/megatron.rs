//! Megatron-LM's estimate of what ranks hold of a GPT.
//!
//! It is that of megatron/training/theoretical_memory_usage.py (as of commit 00caa53a). It divides
//! all blocks evenly, gives the token table to one pipeline stage, and knows neither the position
//! table nor biases. So its most loaded rank is smaller than the real one ([`Shards::parameters`]),
//! which is the first stage.

use shardlab::plan::Shards;

/// Megatron-LM's estimate of a model's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub blocks: u64,
    pub embedding: u64,
    /// On a rank that holds the token table as well.
    pub most_loaded: f64,
    /// On any other rank.
    pub others: f64,
}

/// Megatron-LM's estimate of a rank's parameters, for a GPT.
pub fn estimate(shards: &Shards) -> Estimate {
    let h = shards.shape.embd;
    let layers = shards.shape.layers;
    let norm = shards.shape.dense().norm_vectors * h; // a gain, and in GPT-2 a bias
    // The last norm is counted with the blocks.
    let blocks = layers * (12 * h * h + 2 * norm) + norm;
    let embedding = shards.rows * h;
    let each = blocks as f64 / shards.pipeline as f64;
    let on = |elements: f64| elements / shards.tensor as f64;
    let most_loaded = on(each + embedding as f64);
    let others = on(each);
    Estimate {
        blocks: blocks as u64,
        embedding: embedding as u64,
        most_loaded,
        others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::plan::{BytesEach, Family, ModelShape};
    use std::ops::Range;

    /// The job of a Megatron-LM log of June 2025: 8 GPUs, tensor 2, pipeline 4.
    fn logged() -> Shards {
        let shape = ModelShape {
            vocabulary: 50_257,
            block: 2048,
            layers: 16,
            heads: 32,
            embd: 2048,
            family: Family::Gpt2,
            experts: None,
        };
        Shards { shape, tensor: 2, pipeline: 4, sequence: false, rows: 50_432 }
    }

    /// The layers of a pipeline stage, of which no rank has several.
    fn layers(job: &Shards, stage: usize) -> Range<usize> {
        let each = job.shape.layers / job.pipeline;
        stage * each..(stage + 1) * each
    }

    #[test]
    fn every_rank_of_the_log_holds_what_is_counted() {
        let job = logged();
        let counted = (0..4).map(|stage| job.parameters(&[layers(&job, stage)]));
        assert!(counted.eq([156_577_792, 100_741_120, 100_741_120, 152_387_584]));
        // The log's 4 virtual stages per rank, of 1 layer each: rank r has layers r, r + 4, r + 8,
        // r + 12.
        let chunks = |rank: usize| -> Vec<Range<usize>> {
            (0..4).map(|c| 4 * c + rank..4 * c + rank + 1).collect()
        };
        assert!((0..4).map(|rank| job.parameters(&chunks(rank))).eq([
            156_577_792,
            100_741_120,
            100_741_120,
            152_387_584
        ]));
    }

    #[test]
    fn the_estimate_is_megatrons() {
        let estimate = estimate(&logged());
        assert_eq!((estimate.blocks, estimate.embedding), (805_441_536, 103_284_736));
        assert_eq!((estimate.most_loaded, estimate.others), (152_322_560.0, 100_680_192.0));
        let bytes = estimate.most_loaded * BytesEach::MEGATRON.on_a_rank(1);
        assert_eq!(format!("{:.2}", bytes / (1 << 20) as f64), "2614.79");
    }

    #[test]
    fn the_first_stage_is_above_the_estimate_by_the_position_table_and_what_tensor_ranks_do_not_divide()
     {
        let job = logged();
        let h = 2048;
        let above = job.parameters(&[layers(&job, 0)]) - estimate(&job).most_loaded as u64;
        // In each of 4 layers: biases, and the halves of the norms that the estimate takes for
        // divided. It also spreads the last norm.
        let biases_and_norms = 4 * (7 * h / 2 + 2 * h + 4 * h - 4 * h / 2) - 2 * h / 4 / 2;
        assert_eq!(above, 2048 * h + biases_and_norms);
    }
}
