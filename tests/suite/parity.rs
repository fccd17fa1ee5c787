//! Training on N ranks compared with training on one.

use super::trained::{config, loss_rounding, train_by_hand, train_large_batch};
use kit::parity;
use labs::lab02::{MlpConfig, iterate};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Sampling;
use shardlab::difference::{largest_difference, largest_relative_difference, same_bits};
use shardlab::model::Gpt;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Ddp, Strategy};
use shardlab::train::{Config, Training};

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
        for serial in [in_turns.losses, large_batch.losses] {
            let apart = largest_difference(&losses, &serial);
            let most = loss_rounding(config.tokens_per_step());
            assert!(apart < most, "{losses:?} against {serial:?}");
        }
    }
    Ok(())
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
