//! lab04-gather · Gather, use, free

use shardlab::comm::{Comm, Reduce, Result};

/// A model: a chain of blocks. It keeps the activations itself, and no parameters.
pub trait Blocks {
    /// The parameters of a block, without padding.
    fn numel(&self, block: usize) -> usize;
    /// Runs a block forward. Its input is the output of the block before it.
    fn forward(&mut self, block: usize, parameters: &[f32]);
    /// Runs a block backward, and returns the gradients of its parameters. The block after it must
    /// have run backward.
    fn backward(&mut self, block: usize, parameters: &[f32]) -> Vec<f32>;
}

/// The forward and the backward pass of a rank that has `slices`, one of each block. It returns its
/// slices of the mean gradients, in the same order.
pub fn passes(comm: &Comm, slices: &[Vec<f32>], model: &mut dyn Blocks) -> Result<Vec<Vec<f32>>> {
    let mut last = None;
    for (block, slice) in slices.iter().enumerate() {
        let mut whole = gathered(comm, slice)?;
        whole.truncate(model.numel(block));
        model.forward(block, &whole);
        // The last block runs backward at once. All others end here: their memory is free before
        // the next one is gathered.
        if block + 1 == slices.len() {
            last = Some(whole);
        }
    }
    let mut means = vec![Vec::new(); slices.len()];
    for (block, slice) in slices.iter().enumerate().rev() {
        let mut whole = match last.take() {
            Some(whole) => whole,
            None => gathered(comm, slice)?,
        };
        whole.truncate(model.numel(block));
        let mut gradients = model.backward(block, &whole);
        drop(whole);
        gradients.resize(comm.size() * slice.len(), 0.0);
        let mut mean = vec![0.0; slice.len()];
        comm.reduce_scatter(&gradients, &mut mean, Reduce::Mean)?;
        means[block] = mean;
    }
    Ok(means)
}

/// All ranks' slices of a block, with their padding.
fn gathered(comm: &Comm, slice: &[f32]) -> Result<Vec<f32>> {
    let mut whole = vec![0.0; comm.size() * slice.len()];
    comm.all_gather(slice, &mut whole)?;
    Ok(whole)
}
