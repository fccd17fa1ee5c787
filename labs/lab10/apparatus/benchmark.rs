//! One job on its ranks: forward passes and training steps, timed, with the bytes that each rank
//! holds and sends.

use super::cache::KvCache;
use super::config::{DsConfig, share};
use super::continuation::{Continuation, generate};
use super::lines::{Memory, Timed};
use super::model::Model;
use super::sampling::TokenSampling;
use anyhow::Result;
use kit::machine::allocate_matmul_room;
use kit::show::bytes_decimal;
use shardlab::comm::{Comm, Options, Reduce};
use shardlab::data::Batch;
use shardlab::error::BadInput;
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh};
use shardlab::model::{Build, Pass, Plain};
use shardlab::parallel::pipeline::{Instruction, Op};
use shardlab::parallel::{TensorParallel, ZeroConfig};
use shardlab::plan::zero_memory;
use shardlab::tensor::random::Stream;
use shardlab::tensor::{Precision, profile};
use shardlab::train::{Setup, Training};
use shardlab::{allocator, launch};
use std::ops::Range;
use std::time::Instant;

/// The settings that all benchmarks of a program share.
#[derive(Clone)]
pub struct Harness {
    pub options: Options,
    /// Timed repetitions; the median counts.
    pub repeats: usize,
    pub seed: u64,
    /// The bytes that each rank may take. A job that needs more stops.
    pub limit: Option<f64>,
    /// A deliberate mistake: a rank reads sharded parameters outside of a step.
    pub reads_ungathered: bool,
}

/// One job to measure: the arguments of [`run_distributed_benchmark`], named as in the source.
#[derive(Clone)]
pub struct Benchmark {
    pub model: Model,
    /// Tokens per sequence.
    pub seq_len: usize,
    /// Sequences per step, over all ranks.
    pub batch_sizes: Vec<usize>,
    pub dtype: Precision,
    pub world_size: usize,
    pub config: DsConfig,
}

/// The figures of one job.
#[derive(Clone, Debug)]
pub struct Measured {
    pub layout: Layout,
    /// A forward pass, and a training step, for each batch size.
    pub runs: Vec<[Timed; 2]>,
    /// Reading a prompt of one sequence, and then generating one token.
    pub generation: [Timed; 2],
    /// The tokens that the model generated before it was trained: always the likeliest one.
    pub tokens: Vec<u32>,
    /// The loss of each training step: the mean over all sequences.
    pub losses: Vec<f64>,
    /// Bytes of parameters, gradients and optimizer states: the largest of any rank.
    pub holds: f64,
    /// Bytes at the peak of the job, the largest of any rank.
    pub peak: f64,
    /// The part of the job in which a rank took more bytes than it may. The job stopped there.
    pub stopped: Option<&'static str>,
    /// Bytes that a rank sends in a training step: the mean over ranks, of the last batch size.
    pub sent: f64,
    /// Rank 0's memory after the last step.
    pub memory: Memory,
}

impl Benchmark {
    /// The mesh of this job. Refuses what no run could do.
    pub fn check(&self) -> Result<Layout, BadInput> {
        let shape = &self.model.shape;
        if self.seq_len + GENERATED > shape.block {
            let what = format!(
                "{} tokens per sequence and {GENERATED} generated ones, and the model takes {}",
                self.seq_len, shape.block
            );
            return Err(BadInput::new(what, "give a smaller --seq"));
        }
        for &batch in &self.batch_sizes {
            self.config.check(shape, self.world_size, batch)?;
        }
        self.config.mesh(self.world_size)
    }

    /// ZeRO's settings: parameters and gradients have one type.
    pub fn zero(&self) -> ZeroConfig {
        let Benchmark { config, dtype, .. } = self;
        ZeroConfig {
            reduce: *dtype,
            ..ZeroConfig::new(config.zero_stage, *dtype, config.adamw)
        }
    }

    /// Refuses a job whose state alone does not fit into the `free` bytes of this machine, where
    /// `here` of its ranks run.
    pub fn check_memory(&self, here: usize, free: Option<u64>) -> Result<(), BadInput> {
        let Coordinates { data, pipeline, tensor } = self.config.mesh(self.world_size)?.sizes;
        let part = self.model.shape.parameters().div_ceil((pipeline * tensor) as u64);
        let stage = self.config.zero_stage.number();
        let held = zero_memory(stage, part, data as u64, self.zero().bytes_each());
        let bytes = held.iter().sum::<u64>() * here.min(self.world_size) as u64;
        let Some(free) = free.filter(|&free| bytes > free) else {
            return Ok(());
        };
        let what = format!(
            "the state of {} takes {} on {} ranks, and this machine has {} left",
            self.model.name,
            bytes_decimal(bytes as f64),
            self.world_size,
            bytes_decimal(free as f64)
        );
        Err(BadInput::new(
            what,
            "choose a smaller --model, for instance smollm2-135m; --zero 3, --tp or --pp divide the state",
        ))
    }

    /// The sequences that the rank at `mesh.at` takes of a batch of `sequences`, in micro-batches.
    /// A sequence's tokens depend on its number alone.
    ///
    /// # Errors
    /// If the batch cannot be divided evenly.
    pub fn micro_batches(
        &self,
        mesh: &Mesh,
        sequences: usize,
        train: bool,
    ) -> Result<Vec<(Batch, Pass)>, BadInput> {
        let micro_batches = self.config.accumulation;
        let each = share(sequences, mesh.layout.sizes.data, micro_batches)?;
        let draw = |micro: usize| {
            let first = (mesh.at.data * micro_batches + micro) * each;
            let all = |from| {
                (first..first + each)
                    .flat_map(|i| sequence(&self.model, i, from..from + self.seq_len))
                    .collect()
            };
            let batch = Batch {
                inputs: all(0),
                targets: all(1),
                length: self.seq_len,
                sequences: (first..first + each).map(|sequence| sequence as u64).collect(),
                starts: (first..first + each).collect(),
                documents: Default::default(),
            };
            let pass = if train { Pass::training(None) } else { Pass::evaluate() };
            (batch, Pass { precision: self.dtype, ..pass })
        };
        Ok((0..micro_batches).map(draw).collect())
    }
}

/// Runs one job on its ranks, for each batch size. All that it allocated is free when it returns.
pub fn run_distributed_benchmark(harness: &Harness, benchmark: &Benchmark) -> Result<Measured> {
    let layout = benchmark.check()?;
    let measured = on_ranks(benchmark.world_size, &harness.options, |comm| {
        one_rank(harness, benchmark, layout, &comm)
    })?;
    reset_distributed_and_clear_memory();
    Ok(measured)
}

/// Gives freed memory back to the system. Ranks, groups and models end with their run: nothing else
/// is left of it.
pub fn reset_distributed_and_clear_memory() {
    profile::take();
    // Only glibc keeps any on purpose.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim works on the allocator's own lists, under its locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Runs `job` on `ranks` ranks. Returns what rank 0 returns.
///
/// # Errors
/// Those of `job`, and those of a launch.
pub fn on_ranks<R: Send>(
    ranks: usize,
    options: &Options,
    job: impl Fn(Comm) -> Result<R> + Sync,
) -> Result<R> {
    if launch::is_mpi() && ranks == 1 {
        return job(Comm::alone()); // each process of the job runs it by itself
    }
    Ok(launch::run_with(ranks, options, job)?.swap_remove(0))
}

/// How a rank declares its layers: whole, or its part of each matrix.
pub fn builder(tensor: &TensorParallel) -> &dyn Build {
    if tensor.group().size() > 1 { tensor } else { &Plain }
}

/// Tokens that each benchmark generates.
const GENERATED: usize = 16;

/// One rank's part of a job.
struct Part<'a> {
    benchmark: &'a Benchmark,
    training: Training,
    /// Forward passes alone.
    forward: Vec<Instruction>,
}

impl<'a> Part<'a> {
    /// The layers of this rank, with a state that ZeRO divides among the data ranks.
    fn new(harness: &Harness, benchmark: &'a Benchmark, comm: &Comm) -> Result<Part<'a>> {
        let Benchmark { model, config, .. } = benchmark;
        let strategy = config.strategy(comm.size())?;
        let mut settings = config.training(model.shape, &strategy);
        settings.seed = harness.seed;
        (settings.precision, settings.reduce) = (benchmark.dtype, benchmark.dtype);
        let training = model.train(Setup::new(&settings, &strategy), comm)?;
        let pipeline = strategy.pipeline(config.accumulation);
        let order: Vec<Op> = (0..config.accumulation).map(|micro| Op::forward(0, micro)).collect();
        let forward = pipeline.with_messages(training.stages.group().rank(), &order);
        Ok(Part { benchmark, training, forward })
    }

    /// The passes of one program over a batch, on the mean loss of this replica, on every rank of
    /// its pipeline.
    fn run(&mut self, batch: usize, train: bool) -> Result<f64> {
        let Part { benchmark, training, forward } = self;
        let micro_batches = benchmark.micro_batches(&training.mesh, batch, train)?;
        let ran = if train {
            training.passes(&micro_batches)?
        } else {
            let sequences = micro_batches[0].0.sequences.len();
            let shape = [sequences, benchmark.seq_len, benchmark.model.shape.embd];
            training.stages.step(forward, &micro_batches, shape, &training.zero)?
        };
        training.loss(&ran)
    }

    /// A forward pass of the whole batch.
    fn forward(&mut self, batch: usize) -> Result<f64> {
        self.training.zero.open()?;
        let loss = self.run(batch, false);
        self.training.zero.close();
        loss
    }

    /// A training step.
    fn step(&mut self, batch: usize) -> Result<f64> {
        let loss = self.run(batch, true)?;
        self.training.average()?;
        self.training.update(0)?; // the learning rate is the same in every step
        Ok(loss)
    }

    /// Reads a prompt of one sequence, and generates tokens. Every replica does the same.
    fn generate(&mut self) -> Result<(Vec<u32>, [Timed; 2])> {
        let Benchmark { model, seq_len, .. } = self.benchmark;
        let prompt: Vec<u32> = sequence(model, 0, 0..*seq_len).collect();
        let how = Continuation {
            count: GENERATED,
            sampling: TokenSampling::GREEDY,
            likeliest: 0,
            ends: Vec::new(),
        };
        let Training { mesh, stages, tensor, zero, .. } = &mut self.training;
        let model_here = &stages.chunks[0];
        let cache = KvCache::new(model_here, seq_len + GENERATED, builder(tensor));
        let pipeline = mesh.group(Axis::Pipeline);
        let before = profile::products();
        let mut prefill = None;
        zero.open()?;
        let text = generate(model_here, &cache, Some(pipeline), &prompt, &how, |_| {
            prefill.get_or_insert_with(|| profile::products() - before);
            Ok(())
        });
        zero.close();
        let text = text?;
        let prefill = prefill.unwrap_or_default();
        let later = GENERATED - 1;
        let decode = profile::products() - before - prefill;
        let mut bytes = [prefill.bytes as f64, decode.bytes as f64 / later as f64];
        mesh.world().all_reduce(&mut bytes, Reduce::Sum)?;
        let flops = |tokens: usize| (model.shape.forward_flops_per_token() * tokens as u64) as f64;
        let replicas = mesh.layout.sizes.data as f64;
        let timed = |seq, seconds: f64, bytes: f64| Timed {
            batch: 1,
            seq,
            seconds,
            flops: flops(seq),
            bytes: bytes / replicas,
        };
        let prefill = timed(*seq_len, text.prefill.as_secs_f64(), bytes[0]);
        let decode = timed(1, text.decode.as_secs_f64() / later as f64, bytes[1]);
        Ok((text.tokens, [prefill, decode]))
    }
}

/// Tokens of a sequence: a function of its number and of their positions.
fn sequence(model: &Model, number: usize, positions: Range<usize>) -> impl Iterator<Item = u32> {
    let stream = Stream::new(0, "tokens").branch(number as u64);
    let vocabulary = model.shape.vocabulary as u64;
    positions.map(move |i| stream.below(vocabulary, i as u64) as u32)
}

/// Runs a job on one rank: makes its part of the model, generates a few tokens, and runs passes and
/// steps of each batch size. After each of these, all ranks compare their peaks with the limit.
fn one_rank(
    harness: &Harness,
    benchmark: &Benchmark,
    layout: Layout,
    comm: &Comm,
) -> Result<Measured> {
    allocate_matmul_room();
    allocator::reset_peak();
    let start = allocator::live();
    let mut part = Part::new(harness, benchmark, comm)?;
    if harness.reads_ungathered {
        part.run(benchmark.batch_sizes[0], false)?;
    }
    let mut found = Measured {
        layout,
        runs: Vec::new(),
        generation: [Timed::default(); 2],
        tokens: Vec::new(),
        losses: Vec::new(),
        holds: 0.0,
        peak: 0.0,
        stopped: None,
        sent: 0.0,
        memory: Memory::default(),
    };
    // Notes the most that a rank holds and has taken so far, and whether that is too much.
    let is_over = |part: &Part, found: &mut Measured, at| -> Result<bool> {
        let held = part.training.zero.memory();
        let mut most = [
            (held.parameters + held.gradients + held.optimizer) as f64,
            (allocator::peak() - start) as f64,
        ];
        found.memory =
            Memory::of_this_process(allocator::live() - start, allocator::peak() - start);
        comm.all_reduce(&mut most, Reduce::Max)?;
        [found.holds, found.peak] = most;
        found.stopped = harness.limit.filter(|&limit| found.peak > limit).map(|_| at);
        Ok(found.stopped.is_some())
    };
    if is_over(&part, &mut found, "its state")? {
        return Ok(found);
    }
    (found.tokens, found.generation) = part.generate()?;
    if is_over(&part, &mut found, "a generation")? {
        return Ok(found);
    }
    for &batch in &benchmark.batch_sizes {
        let mut of_batch = [Timed::default(); 2];
        for (train, at) in [(false, "a forward pass"), (true, "a training step")] {
            let mut seconds = Vec::new();
            let mut losses = Vec::new();
            let mut sums = [0.0; 2];
            for _ in 0..harness.repeats {
                comm.barrier()?;
                let traffic = comm.total_traffic();
                let products = profile::products();
                let start = Instant::now();
                losses.push(if train { part.step(batch)? } else { part.forward(batch)? });
                let sent = (comm.total_traffic() - traffic).bytes;
                let moved = (profile::products() - products).bytes;
                comm.barrier()?;
                seconds.push(start.elapsed().as_secs_f64());
                sums = [sent as f64, moved as f64];
                if is_over(&part, &mut found, at)? {
                    return Ok(found);
                }
            }
            comm.all_reduce(&mut sums, Reduce::Sum)?;
            let [sent, bytes] = sums;
            seconds.sort_by(f64::total_cmp);
            let seconds = seconds[seconds.len() / 2];
            let seq = benchmark.seq_len;
            let shape = &benchmark.model.shape;
            let each = if train {
                shape.training_flops_per_token()
            } else {
                shape.forward_flops_per_token()
            };
            let flops = each as f64 * (batch * seq) as f64;
            of_batch[usize::from(train)] = Timed { batch, seq, seconds, flops, bytes };
            if train {
                part.training.mesh.group(Axis::Data).all_reduce(&mut losses, Reduce::Mean)?;
                found.losses.extend(losses);
                found.sent = sent / comm.size() as f64;
            }
        }
        found.runs.push(of_batch);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::Candidate;
    use shardlab::parallel::zero::Stage;

    /// Llama-3.2-1B has 1.236 billion parameters: 19.8 GB of state.
    #[test]
    fn a_state_that_does_not_fit_is_refused_before_it_takes_memory() {
        let refused = |strategy: &Candidate, dtype, free: u64| {
            let benchmark = Benchmark {
                model: Model::find("llama-3.2-1b").unwrap(),
                seq_len: 64,
                batch_sizes: vec![8],
                dtype,
                world_size: strategy.ranks,
                config: strategy.config.clone(),
            };
            benchmark
                .check_memory(strategy.ranks, Some(free))
                .err()
                .map(|error| error.to_string())
        };
        let strategy = |parts, stage| Candidate::new(4, parts, stage, 2);
        let f32 = Precision::F32;
        let bf16 = Precision::Bf16;
        for (strategy, dtype, gigabytes) in [
            (strategy([1, 1], Stage::Ddp), f32, 79.1),
            (strategy([1, 1], Stage::One), f32, 49.4),
            (strategy([1, 1], Stage::One), bf16, 34.6),
            (strategy([1, 1], Stage::Two), f32, 34.6),
            (strategy([1, 1], Stage::Three), bf16, 19.8),
            (strategy([4, 1], Stage::Ddp), f32, 19.8),
            (strategy([2, 1], Stage::Ddp), f32, 39.5),
        ] {
            let free = |more: f64| ((gigabytes + more) * 1e9) as u64;
            let error = refused(&strategy, dtype, free(-0.1)).expect(&strategy.name);
            assert!(
                error.contains(&format!("takes {gigabytes} GB on 4 ranks"))
                    && error.contains("help:"),
                "{error}"
            );
            assert_eq!(refused(&strategy, dtype, free(0.1)), None);
        }
    }
}
