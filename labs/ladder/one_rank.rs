//! The program for one rank, from which every rung starts.

use crate::{Adam, Rank, Result};

/// Trains the model on one rank. Returns its parameters, layer by layer.
// ANCHOR: train
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    // What a rank holds: of each layer the weights, and the optimizer's state.
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        weights.push(rank.initial(layer));
        adam.push(Adam::new(weights[layer].len()));
    }
    for step in 0..rank.steps() {
        let mut gradients: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
        for part in 0..rank.parts() {
            // Forward. A layer's backward pass needs the layer's input again.
            let mut inputs: Vec<Vec<f32>> = Vec::new();
            let mut x = rank.input(step, part);
            for layer in 0..rank.layers() {
                let y = rank.forward(layer, &weights[layer], &x);
                inputs.push(x);
                x = y;
            }
            // Backward, from the last layer to the first.
            let mut dy = rank.loss(step, part, &x);
            for layer in (0..rank.layers()).rev() {
                let (dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
                add(&mut gradients[layer], &gradient);
                dy = dx;
            }
        }
        for layer in 0..rank.layers() {
            // The mean over the batch's parts.
            for g in &mut gradients[layer] {
                *g /= rank.parts() as f32;
            }
            rank.update(&mut adam[layer], &mut weights[layer], &gradients[layer]);
        }
    }
    Ok(weights)
}

/// Adds `more` to `sum`.
fn add(sum: &mut [f32], more: &[f32]) {
    for (x, y) in sum.iter_mut().zip(more) {
        *x += y;
    }
}
// ANCHOR_END: train
