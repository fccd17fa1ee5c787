//! ladder-buckets · Buckets

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its
/// parameters.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    // Layers whose gradients travel together.
    const BUCKET: usize = 2;
    let world = rank.world();
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        weights.push(rank.initial(layer));
        adam.push(Adam::new(weights[layer].len()));
    }
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, world.rank());
        for layer in 0..rank.layers() {
            let y = rank.forward(layer, &weights[layer], &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, world.rank(), &x);
        let mut pending = Vec::new();
        let mut bucket = Vec::new();
        for layer in (0..rank.layers()).rev() {
            let (dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
            bucket.extend(gradient);
            dy = dx;
            // A bucket is full, or the backward pass is over.
            if layer % BUCKET == 0 {
                let full = std::mem::take(&mut bucket);
                pending.push((layer, world.start_all_reduce(full, Reduce::Mean)?));
            }
        }
        for (first, bucket) in pending {
            let bucket = bucket.wait()?;
            let mut gradients = &bucket[..];
            for layer in (first..(first + BUCKET).min(rank.layers())).rev() {
                let (gradient, rest) = gradients.split_at(weights[layer].len());
                rank.update(&mut adam[layer], &mut weights[layer], gradient);
                gradients = rest;
            }
        }
    }
    Ok(weights)
}
