//! Predicts what each rank holds and sends, before any rank has started.

use super::report::Job;
use kit::show::{Screen, bytes_decimal, table, thousands};
use shardlab::mesh::{Axis, Layout};
use shardlab::parallel::pipeline::Instruction;
use shardlab::parallel::tensor::padded;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{BytesEach, Shards};
use shardlab::train::{Config, PipelinePlan};
use std::ops::Range;

/// A job on three axes.
#[derive(Clone)]
pub struct Plan {
    /// `config.ranks` is the number of replicas, and `config.grad_accum` the number of
    /// micro-batches.
    pub config: Config,
    pub layout: Layout,
    pub pipeline: PipelinePlan,
    /// 1: the data ranks divide the optimizer's state.
    pub zero: Stage,
    /// The vocabulary is padded to a multiple of this many tokens on each tensor rank.
    pub multiple: usize,
}

/// Bytes that a rank sends per step, by what it sends them for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// Inside layers: activations and their gradients.
    pub tensor: f64,
    /// Between stages: activations and their gradients.
    pub pipeline: f64,
    /// Between the first and the last stage: gradients of the token table.
    pub table: f64,
    /// Between replicas: gradients and, with ZeRO-1, parameters.
    pub data: f64,
}

impl Sent {
    pub fn parts(&self) -> [f64; 4] {
        [self.tensor, self.pipeline, self.table, self.data]
    }
}

impl Plan {
    /// The layers of each pipeline rank, chunk by chunk.
    fn layers(&self) -> Vec<Vec<Range<usize>>> {
        let pipeline = &self.pipeline.pipeline;
        let all = self
            .pipeline
            .partition
            .layers(&self.config.shape, pipeline.stages())
            .unwrap_or_default();
        let of = |rank| {
            (0..pipeline.chunks)
                .filter_map(|chunk| all.get(pipeline.stage(rank, chunk)).cloned())
                .collect()
        };
        (0..pipeline.ranks).map(of).collect()
    }

    /// The job as a log states it.
    pub fn job(&self) -> Job {
        let config = &self.config;
        let sizes = self.layout.sizes;
        let rows = padded(config.shape.vocabulary, sizes.tensor, self.multiple);
        Job {
            shards: Shards {
                shape: config.shape,
                tensor: sizes.tensor,
                pipeline: sizes.pipeline,
                sequence: false,
                rows: if sizes.tensor == 1 {
                    config.shape.vocabulary
                } else {
                    rows
                },
            },
            sizes,
            chunks: self.pipeline.pipeline.chunks,
            layers: self.layers(),
            micro_batches: config.grad_accum,
            micro_batch: config.batch,
            steps: config.steps,
            log_interval: (config.steps / 4).max(1),
            // This lab looks at losses in training alone. The last tenth of the text is kept from
            // it all the same.
            eval_interval: config.steps,
            eval_iters: 0,
            split: "90,10,0",
            load: None,
            weights: "f32",
            bytes: BytesEach::F32,
            distributed_optimizer: self.zero == Stage::One && sizes.data > 1,
            multiple: self.multiple,
            lr: config.schedule.lr,
            clip: config.clip,
            seed: config.seed,
        }
    }

    // ANCHOR: sent
    /// The bytes that `rank` sends per step. For collectives it is the mean over the ranks of the
    /// group.
    pub fn sent(&self, rank: usize) -> Sent {
        let config = &self.config;
        let sizes = self.layout.sizes;
        let job = self.job();
        let at = self.layout.coordinates(rank);
        let last = sizes.pipeline - 1;
        let all_reduce = |n: usize, bytes: usize| 2.0 * (n as f64 - 1.0) / n as f64 * bytes as f64;
        let norm = 4 + 16; // the largest gradient, and two sums
        let h = config.shape.embd;
        let tokens = config.batch * config.shape.block;

        // Four all-reduces per layer, one at each end of the model, and three numbers per token for
        // the loss.
        let layers: usize = job.layers[at.pipeline].iter().map(Range::len).sum();
        let ends = usize::from(at.pipeline == 0) + usize::from(at.pipeline == last);
        let of_loss = if at.pipeline == last { 3 } else { 0 };
        let numbers = tokens * config.grad_accum * ((4 * layers + ends) * h + of_loss);
        let tensor = all_reduce(sizes.tensor, 4 * numbers + norm);

        // Every send of this rank's list of instructions has the activations of one micro-batch.
        let pipeline = &self.pipeline.pipeline;
        let order = self.pipeline.schedule.order(pipeline, at.pipeline);
        let program = pipeline.with_messages(at.pipeline, &order);
        let sends = program.iter().filter(|one| matches!(one, Instruction::Send { .. })).count();
        // The last stage tells the others.
        let loss = if at.pipeline == last { 8 * last } else { 0 };
        let messages = (sends * 4 * tokens * h + loss) as f64 + all_reduce(sizes.pipeline, norm);

        let tied = last > 0 && ends > 0;
        let table = if tied {
            all_reduce(2, 4 * job.shards.rows / sizes.tensor * h)
        } else {
            0.0
        };

        // An all-reduce of the gradients; or they are reduced to their owners, and the parameters
        // gathered.
        let of_norm = if self.zero == Stage::One { norm } else { 0 };
        let data = all_reduce(sizes.data, 4 * job.parameters(at.pipeline) as usize + of_norm);
        Sent { tensor, pipeline: messages, table, data }
    }
    // ANCHOR_END: sent

    /// The ranks whose results `rank` needs along an axis: the whole group, or in a pipeline the
    /// neighbours.
    fn talks_to(&self, rank: usize, axis: Axis) -> Vec<usize> {
        let group = self.layout.group(rank, axis);
        let at = self.layout.coordinates(rank).along(axis);
        let size = group.len();
        let neighbours = [(at + size - 1) % size, (at + 1) % size];
        let ring = self.pipeline.pipeline.chunks > 1;
        let talks = |other: usize| match axis {
            Axis::Pipeline => {
                other != at && neighbours.contains(&other) && (ring || other.abs_diff(at) == 1)
            }
            _ => other != at,
        };
        let others = (0..size).filter(|&other| talks(other));
        others.map(|other| group[other]).collect()
    }

    /// A table: where each rank is, what it holds, and whom it sends how much.
    pub fn map(&self, screen: &Screen) -> String {
        const SHOWN: usize = 16;
        let job = self.job();
        let sizes = self.layout.sizes;
        let heads = self.config.shape.heads / sizes.tensor;
        let range = |range: Range<usize>| match range.len() {
            1 => range.start.to_string(),
            _ => format!("{}-{}", range.start, range.end - 1),
        };
        let row = |rank: usize| {
            let at = self.layout.coordinates(rank);
            let sent = self.sent(rank);
            let layers: Vec<String> = job.layers[at.pipeline].iter().cloned().map(range).collect();
            let to = |axis, bytes: f64| {
                let others = self.talks_to(rank, axis);
                if others.is_empty() {
                    return "-".to_string();
                }
                let others = others.iter().map(|&other| screen.rank(other, other));
                let others = others.collect::<Vec<_>>().join(" ");
                format!("{others}: {}", bytes_decimal(bytes))
            };
            vec![
                screen.rank(rank, rank),
                format!("{} {} {}", at.data, at.pipeline, at.tensor),
                layers.join(" "),
                range(at.tensor * heads..(at.tensor + 1) * heads),
                thousands(job.parameters(at.pipeline)),
                to(Axis::Tensor, sent.tensor),
                to(Axis::Pipeline, sent.pipeline),
                to(Axis::Data, sent.data),
            ]
        };
        let rows: Vec<Vec<String>> = (0..self.layout.ranks().min(SHOWN)).map(row).collect();
        let head = ["rank", "d p t", "layers", "heads", "parameters", "tensor", "pipeline", "data"];
        let more = self.layout.ranks().saturating_sub(SHOWN);
        let more = if more > 0 {
            format!("{more} more ranks like these. ")
        } else {
            String::new()
        };
        let words = format!(
            "{more}d p t: data, pipeline, tensor. Last columns: partners and bytes sent per step."
        );
        format!("{}\n{}", table(screen, &head, &rows), screen.wrap(&words, 2))
    }
}
