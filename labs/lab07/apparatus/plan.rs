//! Predicts what each rank holds and sends, before any rank has started.

use super::report::Job;
use kit::show::{Screen, bytes_decimal, explained, only_if, thousands};
use shardlab::mesh::{Axis, Layout};
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Instruction, Pipeline};
use shardlab::parallel::strategy::Recompute;
use shardlab::parallel::tensor::padded;
use shardlab::parallel::zero::Stage;
use shardlab::plan::Shards;
use shardlab::train::Config;
use std::ops::Range;

/// A job on three axes.
#[derive(Clone)]
pub struct Plan {
    /// `config.ranks` is the number of replicas, and `config.grad_accum` the number of
    /// micro-batches.
    pub config: Config,
    pub strategy: Strategy,
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
    /// The numbers of ranks along the axes, and their order.
    pub fn layout(&self) -> Layout {
        self.strategy.layout()
    }

    pub fn pipeline(&self) -> Pipeline {
        self.strategy.pipeline(self.config.grad_accum)
    }

    /// The layers of each pipeline rank, chunk by chunk.
    fn layers(&self) -> Vec<Vec<Range<usize>>> {
        let pipeline = self.pipeline();
        let all = self.strategy.partition.layers(&self.config.shape, pipeline.stages());
        let all = all.unwrap_or_default();
        let of = |rank| {
            let layers = |chunk| all.get(pipeline.stage(rank, chunk)).cloned();
            (0..pipeline.chunks).filter_map(layers).collect()
        };
        (0..pipeline.ranks).map(of).collect()
    }

    /// The job as a log states it.
    pub fn job(&self) -> Job {
        let config = &self.config;
        let Strategy { zero, sequence, vocabulary_multiple: multiple, .. } = self.strategy;
        let sizes = self.layout().sizes;
        let rows = padded(config.shape.vocabulary, sizes.tensor, multiple);
        Job {
            shards: Shards {
                shape: config.shape,
                tensor: sizes.tensor,
                pipeline: sizes.pipeline,
                sequence,
                rows: if sizes.tensor == 1 {
                    config.shape.vocabulary
                } else {
                    rows
                },
            },
            sizes,
            chunks: self.strategy.chunks,
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
            weights: config.precision.name(),
            bytes: config.precision.bytes_each(config.reduce),
            distributed_optimizer: zero > Stage::Ddp && sizes.data > 1,
            multiple,
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
        let strategy = &self.strategy;
        let sizes = self.layout().sizes;
        let job = self.job();
        let at = self.layout().coordinates(rank);
        let last = sizes.pipeline - 1;
        let all_reduce = |n: usize, bytes: usize| 2.0 * (n as f64 - 1.0) / n as f64 * bytes as f64;
        let norm = 4 + 16; // the largest gradient, and two sums
        let h = config.shape.embd;
        let tokens = config.batch * config.shape.block;

        // Four all-reduces per layer, one at each end of the model, and three numbers per token for
        // the loss. What the backward pass computes once more, it also adds up once more.
        let layers: usize = job.layers[at.pipeline].iter().map(Range::len).sum();
        let ends = usize::from(at.pipeline == 0) + usize::from(at.pipeline == last);
        let of_loss = if at.pipeline == last { 3 } else { 0 };
        let each = if strategy.recompute == Recompute::None { 4 } else { 6 };
        let activation = config.precision.bytes();
        let gradient = config.reduce.bytes();
        let a_token = activation * (each * layers + ends) * h + 4 * of_loss;
        let activations = tokens * config.grad_accum * a_token;
        // With sequence parallelism, a gather and a scatter in place of each all-reduce, and the
        // gradients of norms and positions, to which each rank adds its part of the sequence: of
        // all, or with ZeRO of its share.
        let norms = 2 * layers + usize::from(at.pipeline == last);
        let first = usize::from(at.pipeline == 0);
        let copies = norms * h + first * config.shape.positions() as usize;
        let copies = match (strategy.sequence, strategy.zero) {
            (false, _) => 0,
            (true, Stage::Ddp) => copies,
            (true, _) => copies / sizes.data,
        };
        let tensor = all_reduce(sizes.tensor, activations + gradient * copies + norm);

        // Every send of this rank's list of instructions has the activations of one micro-batch.
        let pipeline = self.pipeline();
        let order = strategy.schedule().order(&pipeline, at.pipeline);
        let program = pipeline.with_messages(at.pipeline, &order);
        let sends = program.iter().filter(|one| matches!(one, Instruction::Send { .. })).count();
        // The last stage tells the others.
        let loss = if at.pipeline == last { 8 * last } else { 0 };
        let held = if strategy.sequence {
            tokens / sizes.tensor
        } else {
            tokens
        };
        let messages =
            (sends * activation * held * h + loss) as f64 + all_reduce(sizes.pipeline, norm);

        let tied = last > 0 && ends > 0;
        let table = if tied {
            all_reduce(2, gradient * job.shards.rows / sizes.tensor * h)
        } else {
            0.0
        };

        // An all-reduce of the gradients; or they are reduced to their owners, and the parameters
        // gathered. ZeRO-2 reduces in every micro-step, and ZeRO-3 also gathers twice in each.
        let of_norm = if strategy.zero > Stage::Ddp { norm } else { 0 };
        let m = config.grad_accum as f64;
        let parameters = job.parameters(at.pipeline) as usize;
        let half = |bytes: usize| all_reduce(sizes.data, bytes) / 2.0;
        let reduce = half(gradient * parameters);
        let gather = half(activation * parameters);
        let state = match strategy.zero {
            Stage::Ddp => 2.0 * reduce,
            Stage::One => reduce + gather,
            Stage::Two => m * reduce + gather,
            Stage::Three => m * (reduce + 2.0 * gather),
        };
        // ZeRO-3 frees a block before its backward pass, if it was computed once more together with
        // blocks after it. Then it is gathered once more.
        let again = match (strategy.zero, strategy.recompute.blocks()) {
            (Stage::Three, together @ 1..) => layers - layers.div_ceil(together),
            _ => 0,
        };
        let block = half(activation * 12 * h * h / sizes.tensor);
        let again = again as f64 * m * block;
        let data = state + again + all_reduce(sizes.data, of_norm);
        Sent { tensor, pipeline: messages, table, data }
    }
    // ANCHOR_END: sent

    /// The ranks whose results `rank` needs along an axis: the whole group, or in a pipeline the
    /// neighbours.
    fn talks_to(&self, rank: usize, axis: Axis) -> Vec<usize> {
        let group = self.layout().group(rank, axis);
        let at = self.layout().coordinates(rank).along(axis);
        let size = group.len();
        let neighbours = [(at + size - 1) % size, (at + 1) % size];
        let ring = self.strategy.chunks > 1;
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
        let sizes = self.layout().sizes;
        let heads = self.config.shape.heads / sizes.tensor;
        let range = |range: Range<usize>| match range.len() {
            1 => range.start.to_string(),
            _ => format!("{}-{}", range.start, range.end - 1),
        };
        let row = |rank: usize| {
            let at = self.layout().coordinates(rank);
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
        let head = ["rank", "d p t", "layers", "heads", "parameters", "tensor", "pipeline", "data"];
        let more = self.strategy.ranks().saturating_sub(SHOWN);
        let more = only_if(more > 0, format!("{more} more ranks like these. "));
        let words = format!(
            "{more}d p t: data, pipeline, tensor. Last columns: partners and bytes sent per step."
        );
        explained(screen, &head, (0..self.strategy.ranks().min(SHOWN)).map(row), &words)
    }
}
