//! lab03-batches as a part of the trainer.

pub fn take(parts: &mut capstone::Parts) {
    parts.batches = |draw, rank, step| {
        let run = lab03_batches::Run {
            seed: draw.seed,
            ranks: draw.ranks,
            batch: draw.batch,
            block: draw.block,
            tokens: draw.tokens,
        };
        lab03_batches::starts(&run, rank, step)
    };
}
