//! Training on N ranks compared with training on one.

use kit::parity::{self, Trained};
use labs::lab02::{MlpConfig, iterate};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus, Sampling};
use shardlab::difference::{largest_difference, largest_relative_difference, same_bits};
use shardlab::model::Gpt;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Ddp, Strategy};
use shardlab::train::{AdamW, Config, Training, clip_scale, global_norm};

/// A small model on the embedded text. `edit` changes the run's settings.
pub fn config(ranks: usize, edit: impl Fn(&mut Config)) -> (Config, Corpus) {
    let corpus = Corpus::embedded().unwrap();
    let mut config = Config { steps: 300, ..Config::small(ranks, &corpus) };
    (config.schedule.warmup, config.schedule.decay_steps) = (5, 300);
    edit(&mut config);
    (config, corpus)
}

/// The most by which two losses differ that are the mean of so many tokens' losses, added in
/// different orders. A sum of k numbers is rounded in each of k additions, by half of f32's epsilon
/// times the sum so far, which is at most k times the largest number. The mean is this divided by
/// k. The largest loss is about that of a model that knows nothing: ln 65, the embedded text's
/// vocabulary.
pub fn loss_rounding(tokens: usize) -> f64 {
    tokens as f64 * f64::from(f32::EPSILON) / 2.0 * 65f64.ln()
}

/// Compares N ranks with one rank that takes the batches in turns (the same sums in the same
/// order), and with one large batch, with dropout and both samplers. `same_order`: whether this
/// transport adds in rank order, so that the first comparison is bitwise.
pub fn ranks_train_what_one_rank_trains(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    const STEPS: usize = 20;
    for sampler in [Sampling::Partition, Sampling::Seeds] {
        let (config, corpus) =
            config(comm.size(), |config| (config.dropout, config.sampling) = (0.1, sampler));
        let text = &corpus.train;
        let parallel = train_by_hand(comm, &config, text, STEPS)?;
        let strategy = Strategy::data(comm.size(), Stage::Ddp);
        let library = parity::parallel(Training::new(&config, &strategy, comm)?, text, STEPS)?;
        assert!(same_bits(&library.values, &parallel.values), "{sampler:?}: by hand");
        assert!(same_bits(&library.losses, &parallel.losses), "{sampler:?}: by hand");
        let mut losses = parallel.losses.clone();
        comm.all_reduce(&mut losses, Reduce::Mean)?;
        let one = Config { ranks: 1, ..config.clone() };
        let alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
        let in_turns = parity::serial(alone, &config, text, STEPS)?;
        let large_batch = train_large_batch(&config, &corpus.train, STEPS)?;
        if same_order {
            assert!(same_bits(&parallel.values, &in_turns.values), "{sampler:?}");
            assert!(
                same_bits(&losses, &in_turns.losses),
                "{losses:?} against {:?}",
                in_turns.losses
            );
        }
        for serial in [in_turns, large_batch] {
            let apart = largest_difference(&losses, &serial.losses);
            let most = loss_rounding(config.tokens_per_step());
            assert!(apart < most, "{losses:?} against {:?}", serial.losses);
        }
    }
    Ok(())
}

/// Data parallelism written out with [`Ddp`]: ranks begin with weights of their own, which rank 0's
/// replace, and average what each has learned from one micro-batch.
pub fn train_by_hand(
    comm: &Comm,
    config: &Config,
    text: &[u32],
    steps: usize,
) -> anyhow::Result<Trained> {
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed_of(comm.rank()));
    let ddp = Ddp::new(&gpt.params, comm)?;
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let mut trained = Trained { losses: Vec::new(), norms: Vec::new(), values: Vec::new() };
    for step in 0..steps {
        let batch = config.sampler(comm.rank()).batch(text, step, 0);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        loss.backward()?;
        ddp.finish()?;
        let norm = global_norm(&gpt.params.gradients());
        adamw.step(&gpt.params, config.schedule.at(step), clip_scale(norm, config.clip)?)?;
        trained.losses.push(f64::from(loss.to_scalar::<f32>()?));
        trained.norms.push(norm);
    }
    trained.values = gpt.params.values().clone();
    Ok(trained)
}

/// Trains one rank on all ranks' and micro-steps' sequences as one large batch: the same
/// mathematics, with sums in a different order.
pub fn train_large_batch(config: &Config, text: &[u32], steps: usize) -> anyhow::Result<Trained> {
    let one = Config { ranks: 1, grad_accum: 1, ..config.clone() };
    let mut training = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let of_rank = |rank| {
            (0..config.grad_accum).map(move |micro| config.sampler(rank).batch(text, step, micro))
        };
        let all: Vec<Batch> = (0..config.ranks).flat_map(of_rank).collect();
        let ran = training.passes(&[training.with_pass(step, Batch::concat(&all))])?;
        training.average()?;
        losses.push(training.loss(&ran)?);
        norms.push(training.update(step)?);
    }
    let values = kit::parity::stored_values(&training.stages.chunks[0].params);
    Ok(Trained { losses, norms, values })
}

/// Ranks make no call before the last micro-step, and then average the sums of the gradients.
pub fn only_the_last_micro_step_synchronises(comm: &Comm) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |config| config.grad_accum = 3);
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(comm.rank() as u64);
    let ddp = Ddp::new(&gpt.params, comm)?;
    let sampler = config.sampler(comm.rank());
    let start = comm.traffic();
    for micro in 0..3 {
        ddp.synchronise(micro == 2);
        let batch = sampler.batch(&corpus.train, 0, micro);
        gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
        let calls = (comm.traffic() - start).calls;
        assert_eq!(calls > 0, micro == 2, "micro-step {micro}: {calls} calls");
    }
    ddp.finish()?;
    let averaged = gpt.params.gradients().clone();
    drop(ddp);

    // The expected result, without DDP: the mean over ranks of the sums over micro-steps.
    gpt.params.zero_gradients();
    for micro in 0..3 {
        let batch = sampler.batch(&corpus.train, 0, micro);
        gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
    }
    let none = vec![0.0; gpt.params.numel()];
    let mut largest = [largest_difference(&gpt.params.gradients(), &none)];
    comm.all_reduce(&mut largest, Reduce::Max)?;
    comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
    let apart = largest_difference(&averaged, &gpt.params.gradients());
    // An MPI library may cut a bucket and the whole vector differently, and so add in different
    // orders.
    assert!(apart <= mean_rounding(comm, largest[0]), "{apart:e}");
    Ok(())
}

/// The most by which two means over ranks differ, whose largest number on any rank is `largest`.
/// Each addition rounds by half of f32's epsilon times a sum of at most all ranks' numbers, and the
/// mean is the sum divided by the ranks. Both means are rounded.
fn mean_rounding(comm: &Comm, largest: f64) -> f64 {
    comm.size() as f64 * f64::from(f32::EPSILON) * largest
}

/// Averages a model with several buckets, with and without overlap with the backward pass.
/// `same_order`: whether this transport adds in rank order.
pub fn overlap_changes_no_gradient(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let (config, corpus) =
        config(comm.size(), |config| (config.shape.layers, config.shape.embd) = (4, 128));
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(1);
    let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
    gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
    let mut largest = [largest_difference(&gpt.params.gradients(), &vec![0.0; gpt.params.numel()])];
    comm.all_reduce(&mut largest, Reduce::Max)?;
    let ddp = Ddp::new(&gpt.params, comm)?;
    let mut averages = Vec::new();
    for overlap in [true, false, true] {
        ddp.overlap(overlap);
        gpt.params.zero_gradients();
        let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
        gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
        assert!(ddp.finish()?.len() > 2);
        averages.push(gpt.params.gradients().clone());
    }
    for other in &averages[1..] {
        let apart = largest_difference(&averages[0], other);
        assert!(
            apart
                <= if same_order {
                    0.0
                } else {
                    mean_rounding(comm, largest[0])
                },
            "{apart:e}"
        );
    }
    Ok(())
}

pub fn mlp(ranks: usize) -> MlpConfig {
    MlpConfig {
        ranks,
        steps: 4,
        warmup_iters: 0,
        log_interval: 1,
        batch: 5,
        lr: 1e-3,
        seed: 3,
        out: std::path::PathBuf::new(),
    }
}

/// Compares N ranks with one rank on lab02's stack of linear layers with biases. `same_order`:
/// whether this transport adds in rank order.
pub fn linear_layers(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let config = mlp(comm.size());
    let ours = iterate(&config, comm, comm.rank()..comm.rank() + 1, 4)?;
    let serial = iterate(&config, &Comm::alone(), 0..comm.size(), 4)?;
    assert!(
        !same_order || same_bits(&ours.values, &serial.values),
        "off by {:e}",
        largest_difference(&ours.values, &serial.values)
    );
    let mut losses = ours.losses.clone();
    comm.all_reduce(&mut losses, Reduce::Mean)?;
    let apart = largest_relative_difference(&losses, &serial.losses);
    assert!(apart < 1e-5, "{losses:?} against {:?}", serial.losses);
    assert!(serial.losses[3] < serial.losses[0]);
    Ok(())
}
