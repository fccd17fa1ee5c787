//! lab04-norm as a part of the trainer.

pub fn take(parts: &mut capstone::Parts) {
    parts.norm = |comm, shard, padding, replicated| {
        let gradients = lab04_norm::Gradients { shard, padding, replicated };
        lab04_norm::global_norm(comm, &gradients)
    };
}
