//! lab02-average as a part of the trainer.

pub fn take(parts: &mut capstone::Parts) {
    parts.average = |sum, ranks, micro_steps, gradients, backward| {
        lab02_average::step(ranks, sum, micro_steps, gradients, backward)
    };
}
