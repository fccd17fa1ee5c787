//! ladder-each · One parameter list at a time

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
        // Every rank has a part of the batch.
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, world.rank());
        for layer in 0..rank.layers() {
            let y = rank.forward(layer, &weights[layer], &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, world.rank(), &x);
        let mut gradients = vec![Vec::new(); rank.layers()];
        for layer in (0..rank.layers()).rev() {
            let (dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
            gradients[layer] = gradient;
            dy = dx;
        }
        for layer in 0..rank.layers() {
            world.all_reduce(&mut gradients[layer], Reduce::Mean)?;
            rank.update(&mut adam[layer], &mut weights[layer], &gradients[layer]);
        }
    }
    Ok(weights)
}
