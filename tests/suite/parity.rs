//! Training on N ranks against training on one.

use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Corpus, Sampling};
use shardlab::model::Gpt;
use shardlab::parallel::Ddp;
use shardlab::study::smallest::{MlpConfig, MlpReplica};
use shardlab::train::{Config, TrainFlags, parity};

/// A small model on the embedded text: `edit` changes the flags.
pub fn config(ranks: usize, edit: impl Fn(&mut TrainFlags)) -> (Config, Corpus) {
    #[derive(clap::Parser)]
    struct Args {
        #[command(flatten)]
        train: TrainFlags,
    }
    let mut flags = <Args as clap::Parser>::parse_from(["test"]).train;
    (flags.layers, flags.heads, flags.embd) = (Some(2), Some(2), Some(32));
    (flags.block, flags.batch, flags.warmup) = (Some(16), Some(3), 5);
    edit(&mut flags);
    let corpus = Corpus::embedded().unwrap();
    (flags.resolve(ranks, &corpus, "test").unwrap(), corpus)
}

/// N ranks against one rank in turns (the same sums in the same order) and against one large batch, with dropout and both
/// samplers. `same_order`: whether this transport adds in rank order, so that the first comparison is bitwise.
pub fn ranks_train_what_one_rank_trains(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    const STEPS: usize = 20;
    for sampler in [Sampling::Partition, Sampling::Seeds] {
        let (config, corpus) = config(comm.size(), |flags| (flags.dropout, flags.sampler) = (0.1, sampler));
        let ours = parity::train_ddp(comm, &config, &corpus.train, STEPS)?;
        let mut losses = ours.losses.clone();
        comm.all_reduce(&mut losses, Reduce::Mean)?;
        let in_turns = parity::train_in_turns(&config, &corpus.train, STEPS)?;
        let large_batch = parity::train_large_batch(&config, &corpus.train, STEPS)?;
        if same_order {
            assert_eq!(ours.values, in_turns.values);
        }
        for serial in [in_turns, large_batch] {
            for (step, (loss, expected)) in losses.iter().zip(&serial.losses).enumerate() {
                assert!((loss - expected).abs() < 1e-5, "step {step}: {loss} against {expected}");
            }
        }
    }
    Ok(())
}

/// Before the last micro-step nothing is sent, and the gradients that are averaged then are the sums.
pub fn only_the_last_micro_step_synchronises(comm: &Comm) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |flags| flags.grad_accum = 3);
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(comm.rank() as u64);
    let ddp = Ddp::new(&gpt.params, comm)?;
    let sampler = config.sampler(comm.rank());
    let start = comm.traffic();
    for micro in 0..3 {
        ddp.synchronise(micro == 2);
        let batch = sampler.batch(&corpus.train, 0, micro);
        gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
        let sent = (comm.traffic() - start).bytes;
        assert_eq!(sent > 0, micro == 2 && comm.size() > 1, "micro-step {micro}: {sent} bytes");
    }
    ddp.finish()?;
    let averaged = gpt.params.gradients().clone();
    drop(ddp);

    // The same without DDP: the mean over ranks of the sums over micro-steps.
    gpt.params.zero_gradients();
    for micro in 0..3 {
        let batch = sampler.batch(&corpus.train, 0, micro);
        gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
    }
    comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
    let apart = averaged.iter().zip(&*gpt.params.gradients()).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    // An MPI library may cut a bucket and the whole in different places, and so add in different orders.
    assert!(apart < 1e-7, "{apart:e}");
    Ok(())
}

/// Averages of a model with several buckets, with the backward pass going on meanwhile and without. `same_order`: as above.
pub fn overlap_changes_no_gradient(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |flags| (flags.layers, flags.embd) = (Some(4), Some(128)));
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(1);
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
        let apart = averages[0].iter().zip(other).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(if same_order { apart == 0.0 } else { apart < 1e-7 }, "{apart:e}");
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

/// The same comparison with lab02's stack of linear layers with biases. `same_order`: as above.
pub fn linear_layers(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let config = mlp(comm.size());
    let replica = |rank: usize| MlpReplica::new(&config, config.seed + rank as u64);
    let ours = parity::ddp(comm, replica(comm.rank())?, 4)?;
    let serial = parity::in_turns(replica(0)?, comm.size(), 4)?;
    assert!(!same_order || ours.values == serial.values, "off by {:e}", ours.largest_difference(&serial));
    let mut losses = ours.losses.clone();
    comm.all_reduce(&mut losses, Reduce::Mean)?;
    for (step, (loss, expected)) in losses.iter().zip(&serial.losses).enumerate() {
        assert!((loss / expected - 1.0).abs() < 1e-5, "step {step}: {loss} against {expected}");
    }
    assert!(serial.losses[3] < serial.losses[0]);
    Ok(())
}
