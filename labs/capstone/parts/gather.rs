//! `lab04-gather`: a block's parameters are gathered, used and freed.

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

/// Both passes of a rank that has a slice of each block. Returns its slices of the mean gradients.
pub type Gather = fn(&Comm, &[Vec<f32>], &mut dyn Blocks) -> Result<Vec<Vec<f32>>>;

pub fn library(comm: &Comm, slices: &[Vec<f32>], model: &mut dyn Blocks) -> Result<Vec<Vec<f32>>> {
    let mut last = None;
    for (block, slice) in slices.iter().enumerate() {
        let whole = comm.gathered(slice)?;
        model.forward(block, &whole[..model.numel(block)]);
        // The last block runs backward at once, so it stays; all others are freed here.
        last = (block + 1 == slices.len()).then_some(whole);
    }
    let mut means = vec![Vec::new(); slices.len()];
    for (block, slice) in slices.iter().enumerate().rev() {
        let whole = match last.take() {
            Some(whole) => whole,
            None => comm.gathered(slice)?,
        };
        let mut gradients = model.backward(block, &whole[..model.numel(block)]);
        drop(whole);
        gradients.resize(comm.size() * slice.len(), 0.0);
        means[block] = vec![0.0; slice.len()];
        comm.reduce_scatter(&gradients, &mut means[block], Reduce::Mean)?;
    }
    Ok(means)
}

/// A rank uses the slice that it has; all other parameters are zeros. It keeps its own gradients.
pub fn without(comm: &Comm, slices: &[Vec<f32>], model: &mut dyn Blocks) -> Result<Vec<Vec<f32>>> {
    let alone = |slice: &[f32], numel: usize| {
        let mut whole = vec![0.0; comm.size() * slice.len()];
        whole[comm.rank() * slice.len()..][..slice.len()].copy_from_slice(slice);
        whole.truncate(numel);
        whole
    };
    for (block, slice) in slices.iter().enumerate() {
        model.forward(block, &alone(slice, model.numel(block)));
    }
    let mut mine = vec![Vec::new(); slices.len()];
    for (block, slice) in slices.iter().enumerate().rev() {
        let mut gradients = model.backward(block, &alone(slice, model.numel(block)));
        gradients.resize(comm.size() * slice.len(), 0.0);
        mine[block] = gradients[comm.rank() * slice.len()..][..slice.len()].to_vec();
    }
    Ok(mine)
}
