//! The lines of a Megatron-LM log, for any job.

use super::megatron::estimate;
use shardlab::mesh::Coordinates;
use shardlab::plan::{BytesEach, Family, Shards};
use std::ops::Range;

/// The MB of Megatron-LM's log.
pub const MEGABYTE: f64 = (1u64 << 20) as f64;

/// The settings of a job, as its log states them.
pub struct Job {
    pub shards: Shards,
    pub sizes: Coordinates,
    /// Chunks (virtual stages) per pipeline rank.
    pub chunks: usize,
    /// The layers of each pipeline rank, chunk by chunk.
    pub layers: Vec<Vec<Range<usize>>>,
    pub micro_batches: usize,
    /// Sequences of a micro-batch.
    pub micro_batch: usize,
    pub steps: usize,
    /// The log has a line for the first step, and then for every so many steps.
    pub log_interval: usize,
    /// Steps from one evaluation to the next, and the batches of each; 0 batches if there is none.
    pub eval_interval: usize,
    pub eval_iters: usize,
    /// The parts of the text for training, validation and test: any numbers that have this ratio.
    pub split: &'static str,
    /// The folder of checkpoints in which the job has looked, and found none.
    pub load: Option<&'static str>,
    /// The data type of the weights.
    pub weights: &'static str,
    pub bytes: BytesEach,
    /// Whether data ranks divide the optimizer's state: ZeRO-1.
    pub distributed_optimizer: bool,
    /// The vocabulary is padded to a multiple of this many tokens on each tensor rank.
    pub multiple: usize,
    pub lr: f64,
    pub clip: f64,
    pub seed: u64,
}

impl Job {
    pub fn ranks(&self) -> usize {
        self.sizes.data * self.sizes.pipeline * self.sizes.tensor
    }

    /// Sequences of a step, all replicas together.
    pub fn global_batch(&self) -> usize {
        self.sizes.data * self.micro_batches * self.micro_batch
    }

    /// Parameters on each rank of a pipeline stage.
    pub fn parameters(&self, stage: usize) -> u64 {
        self.shards.parameters(&self.layers[stage])
    }

    /// Bytes that Megatron-LM's estimate gives to a most loaded rank, for weights, gradients and
    /// optimizer.
    pub fn estimated_bytes(&self) -> f64 {
        let data = if self.distributed_optimizer { self.sizes.data } else { 1 };
        estimate(&self.shards).most_loaded * self.bytes.on_a_rank(data)
    }

    /// The lines before the model is built: sizes, arguments, the padded vocabulary.
    pub fn header(&self) -> Vec<String> {
        let Coordinates { data, pipeline, tensor } = self.sizes;
        let shape = self.shards.shape;
        let ranks = self.ranks();
        let mut lines = vec![format!(
            "using world size: {ranks}, data-parallel size: {data}, tensor-model-parallel size: {tensor}, \
             pipeline-model-parallel size: {pipeline}"
        )];
        lines.extend(
            (self.chunks > 1)
                .then(|| format!("Number of virtual stages per pipeline stage: {}", self.chunks)),
        );
        lines.push(format!("using {} for parameters ...", self.weights));
        lines.push(format!("{0} arguments {0}", "-".repeat(24)));
        let flag = |on: bool| if on { "True" } else { "False" }.to_string();
        let chunks = if self.chunks > 1 {
            self.chunks.to_string()
        } else {
            "None".to_string()
        };
        let arguments = [
            ("add_bias_linear", flag(shape.family == Family::Gpt2)),
            ("clip_grad", format!("{:?}", self.clip)),
            ("data_parallel_size", data.to_string()),
            ("eval_interval", self.eval_interval.to_string()),
            ("eval_iters", self.eval_iters.to_string()),
            ("ffn_hidden_size", (4 * shape.embd).to_string()),
            ("global_batch_size", self.global_batch().to_string()),
            ("hidden_size", shape.embd.to_string()),
            ("log_interval", self.log_interval.to_string()),
            ("lr", float(self.lr)),
            ("make_vocab_size_divisible_by", self.multiple.to_string()),
            ("max_position_embeddings", shape.block.to_string()),
            ("micro_batch_size", self.micro_batch.to_string()),
            ("num_attention_heads", shape.heads.to_string()),
            ("num_layers", shape.layers.to_string()),
            ("pipeline_model_parallel_size", pipeline.to_string()),
            ("seed", self.seed.to_string()),
            ("seq_length", shape.block.to_string()),
            ("split", self.split.to_string()),
            ("tensor_model_parallel_size", tensor.to_string()),
            ("train_iters", self.steps.to_string()),
            ("untie_embeddings_and_output_weights", flag(false)),
            ("use_distributed_optimizer", flag(self.distributed_optimizer)),
            ("virtual_pipeline_model_parallel_size", chunks),
            ("world_size", ranks.to_string()),
        ];
        lines.extend(
            arguments.iter().map(|(name, value)| format!("  {} {value}", dotted(name, 49))),
        );
        lines.push(format!("{0} end of arguments {0}-", "-".repeat(20)));
        let vocabulary = shape.vocabulary;
        let rows = self.shards.rows;
        let dummies = rows - vocabulary;
        lines.push(format!(
            " > padded vocab (size: {vocabulary}) with {dummies} dummy tokens (new size: {rows})"
        ));
        lines.push(format!("> initialized tensor model parallel with size {tensor}"));
        lines.push(format!("> initialized pipeline model parallel with size {pipeline}"));
        lines.push(format!("> setting random seeds to {} ...", self.seed));
        lines
    }

    /// The exact count, of each rank of one replica.
    pub fn counts(&self) -> Vec<String> {
        let line = |tensor, stage| {
            let counted = self.parameters(stage);
            format!(
                " > number of parameters on (tensor, pipeline) model parallel rank ({tensor}, {stage}): {counted}"
            )
        };
        (0..self.sizes.pipeline)
            .flat_map(|stage| (0..self.sizes.tensor).map(move |t| line(t, stage)))
            .collect()
    }

    /// How many sequences the job will draw from each part of the text. Megatron-LM builds its
    /// indices that long at least. It evaluates every `eval_interval` steps and once at the end,
    /// and tests once.
    pub fn target_sizes(&self) -> [usize; 3] {
        let evaluations = self.steps / self.eval_interval + 1;
        [self.steps, evaluations * self.eval_iters, self.eval_iters]
            .map(|batches| batches * self.global_batch())
    }

    /// The lines between model and first step: the checkpoint that is not there, and the datasets.
    pub fn begin(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(folder) = self.load {
            lines.push(format!(
                "WARNING: could not find the metadata file {folder}/latest_checkpointed_iteration.txt"
            ));
            lines.push("    will not load any checkpoints and will start from random".to_string());
        }
        let [train, validation, test] = self.target_sizes();
        lines.extend([
            "> building train, validation, and test datasets ...".to_string(),
            " > datasets target sizes (minimum size):".to_string(),
            format!("    train:      {train}"),
            format!("    validation: {validation}"),
            format!("    test:       {test}"),
        ]);
        lines
    }

    /// Megatron-LM's estimate. A small model's parameters are printed in millions, because the
    /// log's two decimals would be 0.
    pub fn estimate(&self) -> Vec<String> {
        let estimate = estimate(&self.shards);
        let total = estimate.blocks + estimate.embedding;
        let (unit, one) = if total < 50_000_000 {
            ("millions", 1e6)
        } else {
            ("billions", 1e9)
        };
        let [blocks, embedding, total] =
            [estimate.blocks, estimate.embedding, total].map(|number| number as f64 / one);
        let [most_loaded, others] = [estimate.most_loaded / one, estimate.others / one];
        let mut lines = vec![
            format!("Number of parameters in transformer block in {unit}: {blocks: >5.2}"),
            format!("Number of parameters in embedding layers in {unit}: {embedding:.2}"),
            format!("Total number of parameters in {unit}: {total:.2}"),
            format!("Number of parameters in most loaded shard in {unit}: {most_loaded:.4}"),
        ];
        if self.sizes.pipeline > 1 {
            lines.push(format!("Number of parameters in other shards in {unit}: {others:.4}"));
        }
        let mb = self.estimated_bytes() / MEGABYTE;
        lines.push(format!("Theoretical memory footprints: weight and optimizer={mb:.2} MB"));
        lines
    }
}

/// A name followed by dots, as the log aligns its values.
fn dotted(name: &str, width: usize) -> String {
    format!("{:.<width$}", format!("{name} "))
}

/// A small number as Python prints it: `6e-05`.
fn float(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        let text = format!("{value:e}");
        return text.replace("e-", "e-0");
    }
    format!("{value:?}")
}

/// The shortest and longest time of each phase over all ranks, in seconds.
pub fn times(phases: &[(&str, f64, f64)]) -> Vec<String> {
    let line = |(name, min, max): &(&str, f64, f64)| {
        format!("    {}: ({:.2}, {:.2})", dotted(name, 48), 1e3 * min, 1e3 * max)
    };
    let head = "(min, max) time across ranks (ms):".to_string();
    std::iter::once(head).chain(phases.iter().map(line)).collect()
}

/// One step, as the log states it.
pub struct Iteration {
    /// From 1.
    pub number: usize,
    pub steps: usize,
    pub seconds: f64,
    pub lr: f64,
    pub global_batch: usize,
    /// `None` if the step was skipped: then there is no norm either.
    pub loss: Option<f64>,
    pub loss_scale: f64,
    pub grad_norm: Option<f64>,
    pub nan: usize,
}

impl Iteration {
    pub fn line(&self) -> String {
        let Iteration {
            number, steps, seconds, lr, global_batch, loss_scale, nan, ..
        } = self;
        let consumed = number * global_batch;
        let loss = self
            .loss
            .map_or(String::new(), |loss| format!(" lm loss: {} |", exponential(loss)));
        let norm = self.grad_norm.map_or(String::new(), |norm| format!(" grad norm: {norm:.3} |"));
        format!(
            " iteration {number:8}/{steps:8} | consumed samples: {consumed:12} | elapsed time per iteration (ms): {:.1} | \
             learning rate: {} | global batch size: {global_batch:5} |{loss} loss scale: {loss_scale:.1} |{norm} number of \
             skipped iterations: {:3} | number of nan iterations: {nan:3} |",
            1e3 * seconds,
            exponential(*lr),
            usize::from(self.loss.is_none()),
        )
    }
}

/// `1.234567E+00`, as Python's `:.6E` prints a number.
fn exponential(value: f64) -> String {
    let text = format!("{value:.6E}");
    let Some((mantissa, exponent)) = text.split_once('E') else {
        return text;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    format!("{mantissa}E{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// A rank's memory after a step, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    pub allocated: f64,
    pub max_allocated: f64,
    /// The process's memory, which is the most that it has been. If ranks are threads, they share
    /// it.
    pub reserved: f64,
}

impl Memory {
    /// Of these numbers, in the order of the fields.
    pub fn of([allocated, max_allocated, reserved]: [f64; 3]) -> Memory {
        Memory { allocated, max_allocated, reserved }
    }

    pub fn line(&self, rank: usize, iterations: usize) -> String {
        let Memory { allocated, max_allocated, reserved } = self;
        let [allocated, max_allocated, reserved] =
            [allocated, max_allocated, reserved].map(|bytes| bytes / MEGABYTE);
        format!(
            "[Rank {rank}] (after {iterations} iterations) memory (MB) | allocated: {allocated:.2} | max allocated: \
             {max_allocated:.2} | reserved: {reserved:.1} | max reserved: {reserved:.1}"
        )
    }
}
