//! ladder-pipeline · A pipeline

use ladder::{Adam, Rank, Result};

/// Trains the model on all ranks. Returns what this rank has of each layer in the end: its own
/// layers, in order.
pub fn train(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    let each = rank.layers() / ranks;
    let layers = me * each..(me + 1) * each;
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in layers.clone() {
        weights.push(rank.initial(layer));
        adam.push(Adam::new(rank.numel(layer)));
    }
    // 1F1B: one forward pass ahead for each rank behind.
    let ahead = (ranks - 1 - me).min(rank.parts());
    for step in 0..rank.steps() {
        let mut gradients: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
        // For each part that is in flight, the inputs of this rank's layers, and the output.
        let mut flying = vec![None; rank.parts()];
        for turn in 0..rank.parts() + ahead {
            if turn < rank.parts() {
                let mut x = if me == 0 {
                    rank.input(step, turn)
                } else {
                    let mut x = vec![0.0; rank.activations()];
                    world.recv(&mut x, me - 1)?;
                    x
                };
                let mut inputs: Vec<Vec<f32>> = Vec::new();
                for (i, layer) in layers.clone().enumerate() {
                    let y = rank.forward(layer, &weights[i], &x);
                    inputs.push(x);
                    x = y;
                }
                if me + 1 < ranks {
                    world.send(&x, me + 1)?;
                    x = Vec::new();
                }
                flying[turn] = Some((inputs, x));
            }
            if turn < ahead {
                continue;
            }
            let part = turn - ahead;
            let (inputs, y) = flying[part].take().unwrap_or_default();
            let mut dy = if me + 1 == ranks {
                rank.loss(step, part, &y)
            } else {
                let mut dy = vec![0.0; rank.activations()];
                world.recv(&mut dy, me + 1)?;
                dy
            };
            for (i, layer) in layers.clone().enumerate().rev() {
                let (dx, gradient) = rank.backward(layer, &weights[i], &inputs[i], &dy);
                for (sum, g) in gradients[i].iter_mut().zip(&gradient) {
                    *sum += g;
                }
                dy = dx;
            }
            if me > 0 {
                world.send(&dy, me - 1)?;
            }
        }
        for i in 0..each {
            for g in &mut gradients[i] {
                *g /= rank.parts() as f32;
            }
            rank.update(&mut adam[i], &mut weights[i], &gradients[i]);
        }
    }
    Ok(weights)
}
