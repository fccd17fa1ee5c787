//! ladder-zero · ZeRO-1

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its
/// parameters.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        weights.push(rank.initial(layer));
        adam.push(Adam::new(rank.numel(layer) / ranks));
    }
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, me);
        for layer in 0..rank.layers() {
            let y = rank.forward(layer, &weights[layer], &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, me, &x);
        for layer in (0..rank.layers()).rev() {
            let (dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
            dy = dx;
            // A rank needs only the mean gradients of its slice.
            let slice = adam[layer].numel();
            let mut mean = vec![0.0; slice];
            world.reduce_scatter(&gradient, &mut mean, Reduce::Mean)?;
            let mut mine = weights[layer][me * slice..(me + 1) * slice].to_vec();
            rank.update(&mut adam[layer], &mut mine, &mean);
            world.all_gather(&mine, &mut weights[layer])?;
        }
    }
    Ok(weights)
}
