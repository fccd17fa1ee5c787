//! ladder-mesh · Two axes

use ladder::{Adam, Rank, Reduce, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its own
/// units.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let (tensor, data) = (rank.tensor(), rank.data());
    // Tensor ranks cut a layer by its units. The same units of all replicas learn together.
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        let mine = rank.numel(layer) / tensor.size();
        let start = tensor.rank() * mine;
        weights.push(rank.initial(layer)[start..start + mine].to_vec());
        adam.push(Adam::new(mine));
    }
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, data.rank());
        for layer in 0..rank.layers() {
            let mut y = rank.forward(layer, &weights[layer], &x);
            tensor.all_reduce(&mut y, Reduce::Sum)?;
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, data.rank(), &x);
        let mut pending = Vec::new();
        for layer in (0..rank.layers()).rev() {
            let (mut dx, gradient) = rank.backward(layer, &weights[layer], &inputs[layer], &dy);
            pending.push((layer, data.start_all_reduce(gradient, Reduce::Mean)?));
            if layer > 0 {
                tensor.all_reduce(&mut dx, Reduce::Sum)?;
            }
            dy = dx;
        }
        for (layer, gradient) in pending {
            let gradient = gradient.wait()?;
            rank.update(&mut adam[layer], &mut weights[layer], &gradient);
        }
    }
    Ok(weights)
}
