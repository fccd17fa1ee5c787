//! ladder-gather · Gather, use, free

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: a slice.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    let mut slices: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        let slice = rank.numel(layer) / ranks;
        slices.push(rank.initial(layer)[me * slice..(me + 1) * slice].to_vec());
        adam.push(Adam::new(slice));
    }
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, me);
        let mut whole = Vec::new();
        for layer in 0..rank.layers() {
            drop(whole);
            whole = gathered(rank, &slices[layer])?;
            let y = rank.forward(layer, &whole, &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, me, &x);
        for layer in (0..rank.layers()).rev() {
            // The last layer has just run forward: it is still whole.
            if whole.is_empty() {
                whole = gathered(rank, &slices[layer])?;
            }
            let (dx, gradient) = rank.backward(layer, &whole, &inputs[layer], &dy);
            whole = Vec::new();
            dy = dx;
            // Only a layer's update needs its gradients.
            let mut mean = vec![0.0; slices[layer].len()];
            world.reduce_scatter(&gradient, &mut mean, Reduce::Mean)?;
            drop(gradient);
            rank.update(&mut adam[layer], &mut slices[layer], &mean);
        }
    }
    Ok(slices)
}

/// All ranks' slices of a layer.
fn gathered(rank: &Rank, slice: &[f32]) -> Result<Vec<f32>> {
    let world = rank.world();
    let mut whole = vec![0.0; world.size() * slice.len()];
    world.all_gather(slice, &mut whole)?;
    Ok(whole)
}
