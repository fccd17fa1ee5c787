//! How a job's strategy divides what it saves, and the batch.

use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::Config;

/// Whether ranks hold slices of parameters that follow each other as the ranks do: under ZeRO from
/// stage 1 on, without axes that divide matrices or layers, and trivially on one rank.
pub fn slices_follow_each_other(strategy: &Strategy) -> bool {
    let divides_the_model = strategy.tensor > 1 || strategy.pipeline > 1;
    !divides_the_model && (strategy.gradient_ranks() == 1 || strategy.zero != Stage::Ddp)
}

/// Whether each parameter is also sharded on its own: under ZeRO-3, and trivially on one rank.
pub fn shards_each_parameter(strategy: &Strategy) -> bool {
    let on_its_own = strategy.gradient_ranks() == 1 || strategy.zero == Stage::Three;
    slices_follow_each_other(strategy) && on_its_own
}

/// The settings of a job: the same global batch whatever its ranks are, which `sequences` says.
pub fn config(strategy: &Strategy, base: &Config, sequences: usize) -> Config {
    let batch = sequences / (strategy.data * base.grad_accum);
    Config { ranks: strategy.data, batch, ..base.clone() }
}

/// Refuses a job that this model or this batch cannot be divided for, before anything runs.
pub fn check(strategy: &Strategy, base: &Config, sequences: usize) -> Result<(), BadInput> {
    let replicas = strategy.data * base.grad_accum;
    if !sequences.is_multiple_of(replicas) {
        let what = format!(
            "{strategy}: {sequences} sequences per step cannot be divided by {} data ranks x {} micro-batches",
            strategy.data, base.grad_accum
        );
        return Err(BadInput::new(what, "give a divisor of it, or a different --global-batch"));
    }
    strategy.check(&base.shape)?;
    strategy.ensure_trainable()
}
