//! ladder-overlap · Average while you compute

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
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, world.rank());
        for layer in 0..rank.layers() {
            let y = rank.forward(layer, &weights[layer], &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, world.rank(), &x);
        // From the last layer on, as they start.
        let mut pending = Vec::new();
        for layer in (0..rank.layers()).rev() {
            let (dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
            pending.push((layer, world.start_all_reduce(gradient, Reduce::Mean)?));
            dy = dx;
        }
        for (layer, gradient) in pending {
            let gradient = gradient.wait()?;
            rank.update(&mut adam[layer], &mut weights[layer], &gradient);
        }
    }
    Ok(weights)
}
