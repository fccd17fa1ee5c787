//! Experts that ranks share, compared with all of them on one rank.

use super::trained::{Model, SELECTING, checkpoints, config, loss_rounding};
use kit::parity::{self, Trained};
use shardlab::checkpoint::{Resume, universal};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::mesh::Axis;
use shardlab::model::{Auxiliary, Balance, Gpt, Pass, Plain, Scope};
use shardlab::parallel::experts::balance_over;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{ExpertParallel, Strategy};
use shardlab::plan::{Experts, Family, LlamaExtra, Rope};
use shardlab::tensor::Precision;
use shardlab::train::{Config, Training};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Ranks with a batch each, and a part of the experts each, have one rank's loss and gradients: an
/// expert's is the sum over all ranks' tokens, and so divided by as many as any parameter's. They
/// send what follows from their choices, forward and back, and ranks without a token for an expert
/// take part.
pub fn shared_experts_compute_what_one_rank_computes(comm: &Comm) -> anyhow::Result<()> {
    let n = comm.size();
    for (number, top_k) in [(2 * n, 2.min(2 * n)), (8 * n, 1)] {
        let normalized = top_k > 1;
        let experts = Experts { count: number, top_k, normalized, ..Experts::default() };
        let (config, corpus) = config(n, |config| {
            config.shape.experts = Some(Experts { ffn: 32, ..experts });
        });
        let batches: Vec<Batch> =
            (0..n).map(|rank| config.sampler(rank).batch(&corpus.train, 0, 0)).collect();
        let whole = Gpt::new(&config.shape)?;
        whole.params.allocate(7);
        let expected = whole.loss(&Batch::concat(&batches), &Pass::training(None))?;
        expected.backward()?;
        let expected = f64::from(expected.to_scalar::<f32>()?);

        let shared = ExpertParallel::new(comm.clone());
        let gpt = Gpt::build(&config.shape, &shared.clone().around(Box::new(Plain)))?;
        gpt.params.allocate(7);
        assert_eq!(
            gpt.params.specs().iter().filter(|spec| spec.name.contains(".experts.")).count() * n,
            2 * number * config.shape.layers
        );
        let balance = Balance::new(Auxiliary::default());
        let pass = Pass { balance: Some(balance.clone()), ..Pass::training(None) };
        let before = comm.traffic().bytes;
        let mine = gpt.loss(&batches[comm.rank()], &pass)?;
        let forward = comm.traffic().bytes - before;
        mine.backward()?;
        let both = comm.traffic().bytes - before;

        let mut loss = [f64::from(mine.to_scalar::<f32>()?)];
        comm.all_reduce(&mut loss, Reduce::Mean)?;
        let apart = (loss[0] - expected).abs();
        assert!(apart < loss_rounding(config.tokens_per_step()), "{loss:?}, not {expected}");

        // A gradient of the mean over all ranks.
        for spec in gpt.params.specs() {
            let of_whole = whole.params.specs().iter().find(|all| all.name == spec.name);
            let expected = &whole.params.gradients()[of_whole.expect("a parameter").range()];
            let mut found = gpt.params.gradients()[spec.range()].to_vec();
            if spec.name.contains(".experts.") {
                found.iter_mut().for_each(|g| *g /= n as f32);
            } else {
                comm.all_reduce(&mut found, Reduce::Mean)?;
            }
            let largest = expected.iter().fold(0f32, |most, g| most.max(g.abs()));
            let apart = largest_difference(&found, expected);
            assert!(apart <= 1e-5 * f64::from(largest).max(1e-3), "{}: {apart:e}", spec.name);
        }

        // Copies that leave a rank go there once and come back once; so do their gradients. Counts:
        // one number for each expert, then what the exchange compares.
        let here = shared.share(number);
        let loads = balance.loads();
        let leave = |experts: &[u32]| {
            experts.iter().filter(|&&expert| !here.contains(&(expert as usize))).count()
        };
        let leaving: usize = loads.values().map(|load| leave(&load.chosen)).sum();
        let mut all = [leaving as u64, forward, both];
        comm.all_reduce(&mut all, Reduce::Sum)?;
        let [leaving, forward, both] = all;
        let (n, number) = (n as u64, number as u64);
        let width = config.shape.embd as u64;
        let layers = config.shape.layers as u64;
        let compared = n * (n - 1) * 2 * n * 8;
        let told = n * (number / n) * (n - 1) * 8;
        assert_eq!(forward, 2 * leaving * width * 4 + layers * (told + 2 * compared));
        assert_eq!(both, 4 * leaving * width * 4 + layers * (told + 4 * compared));
    }
    Ok(())
}

/// In bf16 copies travel in bf16.
pub fn copies_travel_in_the_type_of_the_pass(comm: &Comm) -> anyhow::Result<()> {
    let experts = Experts { count: comm.size(), top_k: 1, ..Experts::default() };
    let (config, corpus) = config(comm.size(), |config| {
        config.shape.experts = Some(Experts { ffn: 32, ..experts });
    });
    let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
    let build = ExpertParallel::new(comm.clone()).around(Box::new(Plain));
    let gpt = Gpt::build(&config.shape, &build)?;
    gpt.params.allocate(7);
    let sent = [Precision::F32, Precision::Bf16].map(|precision| {
        let balance = Balance::new(Auxiliary::default());
        let pass = Pass {
            balance: Some(balance.clone()),
            precision,
            ..Pass::evaluate()
        };
        let before = comm.traffic().bytes;
        let loss = gpt.loss(&batch, &pass).and_then(|loss| loss.to_scalar::<f32>());
        let leave = |experts: &[u32]| {
            experts.iter().filter(|&&expert| expert as usize != comm.rank()).count() as u64
        };
        let leaving = balance.loads().values().map(|load| leave(&load.chosen)).sum::<u64>();
        (loss, comm.traffic().bytes - before, leaving)
    });
    let n = comm.size() as u64;
    let counts = config.shape.layers as u64 * (n - 1) * (8 + 2 * 2 * n * 8);
    for ((loss, bytes, leaving), size) in sent.into_iter().zip([4, 2]) {
        loss?;
        let mut all = [bytes, leaving];
        comm.all_reduce(&mut all, Reduce::Sum)?;
        let width = config.shape.embd as u64;
        assert_eq!(all[0], 2 * all[1] * width * size + n * counts, "{size} bytes a number");
    }
    Ok(())
}

/// Copies that travel while the shared expert computes arrive as in a call that waits for them:
/// losses and gradients have the same bits, also of blocks that are computed again.
pub fn overlap_changes_no_bit(comm: &Comm) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |config| config.shape.experts = Some(SELECTING));
    let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
    for (precision, recomputed) in
        [(Precision::F32, 0), (Precision::F32, config.shape.layers), (Precision::Bf16, 0)]
    {
        let run = |overlap| {
            let shared = ExpertParallel::new(comm.clone()).overlap(overlap);
            let mut gpt = Gpt::build(&config.shape, &shared.around(Box::new(Plain)))?;
            gpt.recompute(recomputed);
            gpt.params.allocate(7);
            let before = comm.traffic().bytes;
            let loss = gpt.loss(&batch, &Pass { precision, ..Pass::training(None) })?;
            loss.backward()?;
            let bytes = comm.traffic().bytes - before;
            let gradients = gpt.params.gradients().clone();
            anyhow::Ok((loss.to_scalar::<f32>()?.to_bits(), bytes, gradients))
        };
        let [with, without] = [run(true)?, run(false)?];
        assert_eq!((with.0, with.1), (without.0, without.1), "loss, and bytes");
        assert!(same_bits(&with.2, &without.2), "gradients");
        assert!(largest_difference(&with.2, &vec![0.0; with.2.len()]) > 0.0);
    }
    Ok(())
}

/// With an f over all ranks the auxiliary loss and its gradient are one rank's; with one for each
/// rank they are not.
pub fn a_load_over_all_ranks_is_one_ranks(comm: &Comm) -> anyhow::Result<()> {
    let n = comm.size();
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let (config, corpus) = config(n, |config| {
        config.shape.experts = Some(Experts { ffn: 32, ..experts });
    });
    let batches: Vec<Batch> =
        (0..n).map(|rank| config.sampler(rank).batch(&corpus.train, 0, 0)).collect();
    for scope in [Scope::Layer, Scope::Model] {
        let auxiliary = Auxiliary { coefficient: 10.0, scope, over_ranks: true, z: 0.1 };
        // The router's gradients, and the auxiliary loss.
        let run = |batch: &Batch, balance: Arc<Balance>, recomputed: usize| {
            let mut gpt = Gpt::new(&config.shape)?;
            gpt.recompute(recomputed);
            gpt.params.allocate(7);
            let pass = Pass { balance: Some(balance.clone()), ..Pass::training(None) };
            gpt.loss(batch, &pass)?.backward()?;
            let gradients = gpt.params.gradients();
            let routers = gpt.params.specs().iter().filter(|spec| spec.name.contains("router"));
            let all: Vec<f32> = routers.flat_map(|spec| gradients[spec.range()].to_vec()).collect();
            anyhow::Ok((all, balance.weighted()))
        };
        let (expected, loss) = run(&Batch::concat(&batches), Balance::new(auxiliary), 0)?;
        // Blocks that are computed again pull once.
        let again = run(&Batch::concat(&batches), Balance::new(auxiliary), 1)?;
        assert!(same_bits(&again.0, &expected) && again.1 == loss);
        let largest = expected.iter().fold(0f32, |most, g| most.max(g.abs()));
        for together in [true, false] {
            let balance = if together {
                balance_over(comm, auxiliary)
            } else {
                Balance::new(auxiliary)
            };
            let (mut found, mine) = run(&batches[comm.rank()], balance, 1)?;
            comm.all_reduce(&mut found, Reduce::Mean)?;
            let mut mean = [mine];
            comm.all_reduce(&mut mean, Reduce::Mean)?;
            let apart = largest_difference(&found, &expected) / f64::from(largest);
            let apart = [apart, (mean[0] - loss).abs()];
            if together || n == 1 {
                assert!(apart[0] < 1e-5 && apart[1] < 1e-5 * loss, "{scope:?}: {apart:?}");
            } else {
                assert!(apart[0] > 1e-4 && apart[1] > 1e-4, "{scope:?}: {apart:?}");
            }
        }
    }
    Ok(())
}

/// Ranks that share experts save, and continue as if they had not ended. What they saved also is
/// one rank's training, by way of a universal checkpoint. `dir` is a folder that all ranks reach.
pub fn shared_experts_are_saved(comm: &Comm, stage: Stage, dir: &Path) -> anyhow::Result<()> {
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let (config, corpus) = config(comm.size(), |config| {
        config.shape.experts = Some(Experts { ffn: 32, ..experts });
    });
    let strategy = Strategy { expert: comm.size(), ..Strategy::data(comm.size(), stage) };
    let begin = || Training::new(&config, &strategy, comm);
    let all = checkpoints(comm, &config, dir, strategy);
    let train = |training: &mut Training, steps: Range<usize>| -> anyhow::Result<Vec<u64>> {
        let step = |step| Ok(training.step(&corpus.train, step)?.loss.to_bits());
        steps.map(step).collect()
    };
    let mut uninterrupted = begin()?;
    train(&mut uninterrupted, 0..2)?;
    let folder = all.save(2, &mut uninterrupted.zero, &2usize)?;
    let saved = uninterrupted.whole(|gpt| Ok(gpt.params.values().clone()))?;
    let losses = train(&mut uninterrupted, 2..4)?;

    let mut resumed = begin()?;
    let found = all.resume::<usize>(&Resume::Auto, &mut resumed.zero)?.expect("a checkpoint");
    assert_eq!(train(&mut resumed, found.record..4)?, losses, "{strategy}");

    if comm.rank() == 0 {
        let universal = universal::merge(&folder, &dir.join("universal"))?;
        let one = Config { ranks: 1, ..config.clone() };
        let mut alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
        universal.restore::<usize>(&Comm::alone(), &mut alone.zero)?;
        let values = alone.whole(|gpt| Ok(gpt.params.values().clone()))?;
        assert!(same_bits(&values, &saved), "{strategy}");
    }
    Ok(comm.barrier()?)
}

/// Trainings whose sums have one order are the same to the last bit: losses, norms and weights.
/// `comm` has two ranks, so that a sum over them has one order on any transport.
///
/// The second model's first layer has one MLP, so that the first of four stages has no experts.
///
/// ep=2 beside ep=1 is not such a pair. An expert that ranks share has the rows of both in one
/// product, which rounds after each row. Experts that each rank has are two products, and their
/// sum: other roundings of the same gradient.
pub fn sums_in_one_order_have_the_same_bits(comm: &Comm) -> anyhow::Result<()> {
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let experts = Experts { ffn: 64, ..experts };
    let llama = Family::Llama(LlamaExtra {
        kv_heads: 2,
        ffn: 48,
        rope: Rope { theta: 10_000.0, scaling: None },
        norm_eps: 1e-5,
        tied: false,
    });
    let gpt = (Family::Gpt, Some(experts));
    let mixtral = (llama, Some(Experts { dense_layers: 1, ..experts }));
    for model in [gpt, mixtral] {
        // A shard is a part of the same sums, and a block that is computed again the same sums.
        let expected = trained(comm, &job(model, "dp=2,ep=2")?)?;
        for also in ["zero=1", "zero=2", "zero=3", "recompute=full"] {
            let strategy = format!("dp=2,ep=2,{also}");
            same(&strategy, &trained(comm, &job(model, &strategy)?)?, &expected);
        }
        // Two ranks that have all experts add what one rank adds that computes one micro-batch
        // after the other: whole gradients, because a table of tokens adds up single rows.
        let job = job(model, "dp=2")?;
        let one = Config { ranks: 1, ..job.config.clone() };
        let alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
        let expected = parity::serial(alone, &job.config, &job.corpus.train, STEPS)?;
        same("dp=2", &trained(comm, &job)?, &expected);
    }
    // So do stages, each for its own layers. A GPT's table of tokens has layers at both ends: one
    // rank adds to it as micro-batches come, and two add up each end's first.
    // One balancing loss over all layers is of both stages' loads.
    for (scope, strategy) in [
        (Scope::Layer, "pp=2,m=2"),
        (Scope::Model, "pp=2,m=2"),
        (Scope::Model, "pp=2,chunks=2,m=2"),
    ] {
        let mut job = job(mixtral, strategy)?;
        (job.config.auxiliary.scope, job.config.shape.layers) = (scope, 4);
        let expected = parity::accumulated(&job.config, &job.corpus.train, STEPS)?;
        same(strategy, &trained(comm, &job)?, &expected);
    }
    Ok(())
}

/// Steps of a training that is compared bit by bit.
const STEPS: usize = 4;

struct Job {
    strategy: Strategy,
    config: Config,
    corpus: Corpus,
}

/// A training with an f for each pass: one rank's over two micro-batches are two, too.
fn job(model: Model, strategy: &str) -> anyhow::Result<Job> {
    let strategy: Strategy = strategy.parse()?;
    let (config, corpus) = config(strategy.data, |config| {
        (config.dropout, config.clip, config.shape.heads) = (0.1, 0.5, 2);
        (config.shape.family, config.shape.experts) = model;
        config.grad_accum = strategy.micro_batches.unwrap_or(1);
        config.auxiliary = Auxiliary { coefficient: 0.1, z: 0.01, ..Auxiliary::default() };
    });
    Ok(Job { strategy, config, corpus })
}

fn trained(comm: &Comm, job: &Job) -> anyhow::Result<Trained> {
    let mut training = Training::new(&job.config, &job.strategy, comm)?;
    let mut found = Trained { losses: Vec::new(), norms: Vec::new(), values: Vec::new() };
    for step in 0..STEPS {
        let taken = training.step(&job.corpus.train, step)?;
        found.losses.push(taken.loss);
        found.norms.push(taken.grad_norm);
    }
    // Each element is averaged once a step, an expert's too, and gathered where ranks have shards.
    let Strategy { pipeline, zero, .. } = job.strategy;
    if pipeline == 1 && zero != Stage::Three {
        let specs = training.stages.chunks[0].params.specs();
        let all = specs.iter().map(|spec| spec.numel()).sum();
        let volumes = training.zero.volumes();
        let gathered = if zero == Stage::Ddp { 0 } else { all };
        assert_eq!([volumes.gathered, volumes.reduced], [gathered, all], "{}", job.strategy);
    }
    training.mesh.group(Axis::Data).all_reduce(&mut found.losses, Reduce::Mean)?;
    found.values = training.whole(|model| Ok(model.params.values().clone()))?;
    Ok(found)
}

fn same(strategy: &str, found: &Trained, expected: &Trained) {
    assert!(same_bits(&found.losses, &expected.losses), "{strategy}: losses");
    assert!(same_bits(&found.norms, &expected.norms), "{strategy}: norms");
    let apart = largest_difference(&found.values, &expected.values);
    assert!(
        same_bits(&found.values, &expected.values),
        "{strategy}: weights are off by {apart:e}"
    );
}
