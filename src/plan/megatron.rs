//! Counts what each rank holds of a GPT under tensor and pipeline parallelism: exactly, and as Megatron-LM estimates it.
//!
//! The estimate is that of megatron/training/theoretical_memory_usage.py (as of commit 00caa53a). It divides all
//! blocks evenly, gives the token table to one pipeline stage, and knows neither the position table nor biases. So its most
//! loaded rank is smaller than the real one, which is the first stage.

use super::GptShape;
use std::ops::Range;

/// A GPT that tensor ranks and pipeline stages divide among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelShards {
    pub shape: GptShape,
    pub tensor: usize,
    pub pipeline: usize,
    /// Rows of the token table with its padding, all tensor ranks together.
    pub rows: usize,
    /// Whether matrices and norms have biases. Megatron-LM's GPT has them, this library's has not.
    pub biases: bool,
}

impl ModelShards {
    // ANCHOR: exact
    /// Parameters of a rank that holds these layers. Tensor ranks divide matrices, the token table, and the biases of
    /// column-parallel matrices. Every tensor rank holds all positions, all norms, and the biases of row-parallel matrices.
    pub fn parameters(&self, layers: &[Range<usize>]) -> u64 {
        let h = self.shape.embd;
        let t = self.tensor;
        let norm = if self.biases { 2 * h } else { h };
        let biases = if self.biases {
            (3 * h + 4 * h) / t + 2 * h
        } else {
            0
        };
        let block = 12 * h * h / t + biases + 2 * norm;
        let table = self.rows / t * h;
        let held: usize = layers.iter().map(Range::len).sum();
        let first = layers.iter().any(|layers| layers.start == 0);
        let last = layers.iter().any(|layers| layers.end == self.shape.layers);
        let mut all = held * block;
        all += if first { self.shape.block * h } else { 0 };
        all += if last { norm } else { 0 };
        all += if first || last { table } else { 0 }; // the head is the table: its own copy, unless the table is here
        all as u64
    }
    // ANCHOR_END: exact

    /// The layers of a pipeline stage, if every stage has equally many and no rank has several stages.
    pub fn uniform(&self, stage: usize) -> Range<usize> {
        let each = self.shape.layers / self.pipeline;
        stage * each..(stage + 1) * each
    }

    /// Megatron-LM's estimate of the same.
    pub fn estimate(&self) -> Estimate {
        let h = self.shape.embd;
        let layers = self.shape.layers;
        let norm = if self.biases { 2 * h } else { h };
        let blocks = layers * (12 * h * h + 2 * norm) + norm; // the last norm is counted with the blocks
        let embedding = self.rows * h;
        let each = blocks as f64 / self.pipeline as f64;
        let on = |elements: f64| elements / self.tensor as f64;
        let most_loaded = on(each + embedding as f64);
        let others = on(each);
        Estimate {
            blocks: blocks as u64,
            embedding: embedding as u64,
            most_loaded,
            others,
        }
    }
}

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

/// Bytes for each parameter, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterBytes {
    pub weights: usize,
    pub gradients: usize,
    /// The f32 copy of weights that are stored in 16 bits.
    pub master: usize,
    /// Adam's two.
    pub moments: usize,
}

impl ParameterBytes {
    /// Megatron-LM's estimate: weights in 16 bits, gradients in f32.
    pub const MEGATRON: ParameterBytes = ParameterBytes {
        weights: 2,
        gradients: 4,
        master: 4,
        moments: 8,
    };
    /// The ZeRO paper's count: weights and gradients in 16 bits.
    pub const ZERO_PAPER: ParameterBytes = ParameterBytes {
        weights: 2,
        gradients: 2,
        master: 4,
        moments: 8,
    };
    /// This library in f32: the weights need no master.
    pub const F32: ParameterBytes = ParameterBytes {
        weights: 4,
        gradients: 4,
        master: 0,
        moments: 8,
    };

    /// Bytes on each rank if `data` ranks divide the optimizer's state: ZeRO-1, Megatron-LM's distributed optimizer. With 1,
    /// no rank divides it.
    pub fn on_a_rank(&self, data: usize) -> f64 {
        (self.weights + self.gradients) as f64 + (self.master + self.moments) as f64 / data as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The job of a Megatron-LM log of June 2025: 8 GPUs, tensor 2, pipeline 4.
    fn logged() -> ModelShards {
        let shape = GptShape {
            vocabulary: 50_257,
            block: 2048,
            layers: 16,
            heads: 32,
            embd: 2048,
        };
        ModelShards {
            shape,
            tensor: 2,
            pipeline: 4,
            rows: 50_432,
            biases: true,
        }
    }

    #[test]
    fn every_rank_of_the_log_holds_what_is_counted() {
        let job = logged();
        let counted = (0..4).map(|stage| job.parameters(&[job.uniform(stage)]));
        assert!(counted.eq([156_577_792, 100_741_120, 100_741_120, 152_387_584]));
        // The log's 4 virtual stages per rank, of 1 layer each: rank r has layers r, r + 4, r + 8, r + 12.
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
        let estimate = logged().estimate();
        assert_eq!(
            (estimate.blocks, estimate.embedding),
            (805_441_536, 103_284_736)
        );
        assert_eq!(
            (estimate.most_loaded, estimate.others),
            (152_322_560.0, 100_680_192.0)
        );
        let bytes = estimate.most_loaded * ParameterBytes::MEGATRON.on_a_rank(1);
        assert_eq!(format!("{:.2}", bytes / (1 << 20) as f64), "2614.79");
    }

    #[test]
    fn the_first_stage_is_above_the_estimate_by_the_position_table_and_what_tensor_ranks_do_not_divide()
     {
        let job = logged();
        let h = 2048;
        let above = job.parameters(&[job.uniform(0)]) - job.estimate().most_loaded as u64;
        // In each of 4 layers: biases, and the halves of the norms that the estimate takes for divided. It also spreads the last norm.
        let biases_and_norms = 4 * (7 * h / 2 + 2 * h + 4 * h - 4 * h / 2) - 2 * h / 4 / 2;
        assert_eq!(above, 2048 * h + biases_and_norms);
    }

    #[test]
    fn without_tensor_or_pipeline_ranks_it_is_the_whole_model() {
        let shape = GptShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 128,
        };
        let whole = ModelShards {
            shape,
            tensor: 1,
            pipeline: 1,
            rows: 65,
            biases: false,
        };
        assert_eq!(whole.parameters(&[whole.uniform(0)]), shape.parameters());
        assert_eq!(
            whole.parameters(&[0..2, 2..4]),
            shape.parameters(),
            "one table, however many chunks"
        );
    }

    #[test]
    fn a_distributed_optimizer_divides_twelve_bytes_of_eighteen() {
        assert_eq!(
            [1, 2, 4].map(|data| ParameterBytes::MEGATRON.on_a_rank(data)),
            [18.0, 12.0, 9.0]
        );
        assert_eq!(
            [1, 2, 4].map(|data| ParameterBytes::F32.on_a_rank(data)),
            [16.0, 12.0, 10.0]
        );
        assert_eq!(ParameterBytes::ZERO_PAPER.on_a_rank(1), 16.0);
    }
}
