//! Where the time of lab03's training step goes, on one rank or several:
//! `cargo bench --bench step -- [PRESET] [RANKS] [DTYPE]`.
//!
//! Prints tokens per second, the share of the matmul peak (MFU), allocations per step, and the tree
//! of the step's parts, all medians over steps after a warm-up. Let nothing else run meanwhile.

#[path = "../tests/alone/process.rs"]
#[expect(dead_code, reason = "tests ask for the process's bytes, too")]
mod process;

use anyhow::{Context, Result};
use kit::show::Screen;
use kit::{Clock, Part, machine};
use labs::lab02::tree::{Branch, tree};
use process::CountingAll;
use shardlab::comm::Comm;
use shardlab::data::{Corpus, Sampler, Sampling};
use shardlab::launch;
use shardlab::model::{Gpt, Pass};
use shardlab::named;
use shardlab::parallel::Ddp;
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::Precision;
use shardlab::tensor::profile::{self, OpTime, PassTime};
use shardlab::train::{self, AdamW, AdamWConfig};

#[global_allocator]
static ALLOCATOR: CountingAll = CountingAll;

struct Shape {
    gpt: ModelShape,
    batch: usize,
    steps: usize,
    precision: Precision,
}

/// One rank's medians, in seconds, and its allocations a step.
struct Measured {
    step: f64,
    data: f64,
    forward: f64,
    backward: f64,
    all_reduce: f64,
    optimizer: f64,
    allocations: usize,
    ops: Vec<OpTime>,
}

fn main() -> Result<()> {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let preset = words.first().map_or("baby", String::as_str);
    let ranks = words.get(1).map_or(Ok(1), |word| word.parse())?;
    let dtype = words.get(2).map_or("f32", String::as_str);
    let precision = named::find(dtype).context("DTYPE is f32 or bf16")?;
    let vocabulary = Corpus::embedded()?.vocabulary.size();
    let shape = match preset {
        "baby" => Shape {
            gpt: ModelShape {
                vocabulary,
                block: 64,
                layers: 4,
                heads: 4,
                embd: 128,
                family: Family::Gpt,
                experts: None,
            },
            batch: 12,
            steps: 150,
            precision,
        },
        "char" => Shape {
            gpt: ModelShape {
                vocabulary,
                block: 256,
                layers: 6,
                heads: 6,
                embd: 384,
                family: Family::Gpt,
                experts: None,
            },
            batch: 4,
            steps: 20,
            precision,
        },
        other => anyhow::bail!("there is no preset {other}: give baby or char"),
    };
    let peak = machine::matmul_peak(precision);
    let measured = launch::run(ranks, |comm| one_rank(&shape, comm))?;
    let m = &measured[0];
    let tokens = (shape.batch * shape.gpt.block) as f64;
    let mfu = 100.0 * tokens * shape.gpt.flops_per_token() as f64 / m.step / peak;
    println!(
        "{preset}, {ranks} ranks, {dtype}: {:.0} tokens/s, MFU {mfu:.1}% of {:.0} GFLOP/s a core, {} allocations a step",
        tokens * ranks as f64 / m.step,
        peak / 1e9,
        m.allocations / ranks
    );
    println!("{}", tree(&Screen::detect(false), &m.tree()));
    Ok(())
}

fn one_rank(shape: &Shape, comm: Comm) -> Result<Measured> {
    let corpus = Corpus::embedded()?;
    let gpt = Gpt::new(&shape.gpt)?;
    gpt.params.allocate(1);
    let ddp = Ddp::new(&gpt.params, &comm)?;
    let mut adamw = AdamW::new(AdamWConfig::default(), &gpt.params);
    let sampler = Sampler {
        seed: 1,
        sampling: Sampling::Partition,
        ranks: comm.size(),
        rank: comm.rank(),
        batch: shape.batch,
        block: shape.gpt.block,
    };
    let warmup = shape.steps / 5;
    let mut clocks = Vec::new();
    let mut reduces = Vec::new();
    let mut allocations = 0;
    for step in 0..shape.steps {
        if step == warmup {
            comm.barrier()?;
            allocations = process::allocations();
            profile::take();
        }
        let mut clock = Clock::start();
        let batch = clock.time(Part::Data, || {
            gpt.params.zero_gradients();
            sampler.batch(&corpus.train, step, 0)
        });
        let pass = Pass { precision: shape.precision, ..Pass::training(None) };
        let loss = clock.time(Part::Forward, || gpt.loss(&batch, &pass))?;
        let averaged = clock.time(Part::Backward, || {
            loss.backward()?;
            ddp.finish()
        })?;
        clock.time(Part::Optimizer, || {
            let norm = train::global_norm(&gpt.params.gradients());
            adamw.step(&gpt.params, 1e-3, train::clip_scale(norm, 1.0)?)
        })?;
        clocks.push(clock.parts);
        reduces.push(averaged.iter().map(|a| (a.end - a.start).as_secs_f64()).sum::<f64>());
    }
    let steps = (shape.steps - warmup) as f64;
    let median =
        |of: &dyn Fn(&kit::StepTimes) -> f64| median(clocks[warmup..].iter().map(of).collect());
    let mut ops = profile::take();
    for op in &mut ops {
        for pass in [&mut op.forward, &mut op.backward] {
            *pass = PassTime { seconds: pass.seconds / steps, matmul: pass.matmul / steps };
        }
    }
    Ok(Measured {
        step: median(&|t| t.total()),
        data: median(&|t| t.data),
        forward: median(&|t| t.forward),
        backward: median(&|t| t.backward),
        all_reduce: self::median(reduces[warmup..].to_vec()),
        optimizer: median(&|t| t.optimizer),
        allocations: (process::allocations() - allocations) / steps as usize,
        ops,
    })
}

impl Measured {
    /// Operations by mean, the whole by median: parts need not add up to the last percent.
    fn tree(&self) -> Branch {
        let pass = |name: &str, whole: f64, of: fn(&OpTime) -> PassTime, all_reduce: f64| {
            let mut parts: Vec<Branch> = (self.ops.iter())
                .map(|op| (op.name, of(op)))
                .filter(|(_, time)| time.seconds > 0.0)
                .map(|(name, PassTime { seconds, matmul })| {
                    let products = if matmul > 0.0 {
                        vec![Branch::new("matrix products", matmul)]
                    } else {
                        Vec::new()
                    };
                    Branch::new(name, seconds).with(products)
                })
                .collect();
            let known: f64 = parts.iter().map(|part| part.seconds).sum::<f64>() + all_reduce;
            if all_reduce > 0.0 {
                parts.push(Branch::new("all-reduce", all_reduce));
            }
            parts.push(Branch::new("the tape: sums of gradients, residuals", whole - known));
            parts.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
            Branch::new(name, whole).with(parts)
        };
        Branch::new("a step", self.step).with(vec![
            Branch::new("data", self.data),
            pass("forward", self.forward, |op| op.forward, 0.0),
            pass("backward", self.backward, |op| op.backward, self.all_reduce),
            Branch::new("optimizer", self.optimizer),
        ])
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
