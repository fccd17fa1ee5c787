//! One rank that adds gradients in the tree of groups that shard.

use anyhow::Result;
use kit::parity::{drawn, set_gradients, stored_gradients};
use shardlab::comm::Comm;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::{Config, Training};

/// What one rank has computed in place of all.
pub struct OneRank {
    /// The mean of all ranks' losses, step by step.
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub training: Training,
}

/// Takes the batches of all of a job's ranks in turn, and adds their gradients as `strategy`'s
/// groups do: over a group's ranks, over micro-batches, over groups. Stage 1 adds up a rank's
/// micro-batches first.
pub fn one_rank(job: &Config, strategy: &Strategy, text: &[u32]) -> Result<OneRank> {
    let [shard, groups] = [strategy.shard_ranks(), strategy.replicas];
    // Micro-batches that a rank adds up before its group averages them.
    let together = if strategy.zero < Stage::Two { job.grad_accum } else { 1 };
    let rounds = job.grad_accum / together;
    let one = Config { ranks: 1, grad_accum: together, ..job.clone() };
    let mut alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let params = alone.stages.chunks[0].params.clone();
    let zeros = vec![0.0; params.numel()];
    let add = |sum: &mut [f32], more: &[f32]| {
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    };
    let divide = |sum: &mut [f32], by: usize| sum.iter_mut().for_each(|sum| *sum /= by as f32);
    let [mut losses, mut norms] = [Vec::new(), Vec::new()];
    for step in 0..job.steps {
        let mut loss = 0.0;
        let mut all = zeros.clone();
        for group in 0..groups {
            let mut of_group = zeros.clone();
            for round in 0..rounds {
                let mut mean = zeros.clone();
                for rank in group * shard..(group + 1) * shard {
                    let mut passes = drawn(&alone, job, rank..rank + 1, text, step)?;
                    passes.drain(..round * together);
                    passes.truncate(together);
                    for (_, pass) in &mut passes {
                        pass.weight = Some(1.0 / rounds as f64);
                    }
                    let ran = alone.passes(&passes)?;
                    alone.average()?; // one rank's mean is its own gradients
                    loss += alone.loss(&ran)?;
                    add(&mut mean, &stored_gradients(&params));
                }
                divide(&mut mean, shard);
                add(&mut of_group, &mean);
            }
            add(&mut all, &of_group);
        }
        divide(&mut all, groups);
        set_gradients(&params, &all);
        losses.push(loss / job.ranks as f64);
        norms.push(alone.update(step)?);
    }
    Ok(OneRank { losses, norms, training: alone })
}
