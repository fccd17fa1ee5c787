//! ladder-flat · One all-reduce for all

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its
/// parameters.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        weights.push(rank.initial(layer));
        adam.push(Adam::new(weights[layer].len()));
    }
    let numel: usize = weights.iter().map(Vec::len).sum();
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, world.rank());
        for layer in 0..rank.layers() {
            let y = rank.forward(layer, &weights[layer], &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, world.rank(), &x);
        // The gradients of all layers in one list. The backward pass fills it from its end.
        let mut flat = vec![0.0; numel];
        let mut start = numel;
        for layer in (0..rank.layers()).rev() {
            let (dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
            start -= gradient.len();
            flat[start..start + gradient.len()].copy_from_slice(&gradient);
            dy = dx;
        }
        world.all_reduce(&mut flat, Reduce::Mean)?;
        let mut gradients = &flat[..];
        for layer in 0..rank.layers() {
            let (gradient, rest) = gradients.split_at(weights[layer].len());
            rank.update(&mut adam[layer], &mut weights[layer], gradient);
            gradients = rest;
        }
    }
    Ok(weights)
}
