//! The versions of the rungs that one would use: as fast as their way of dividing the work allows,
//! on the ladder's clock.
//!
//! They are programs of the same interface. Which layers travel together was found by trying all
//! 128 ways to cut the eight layers into runs of neighbours. More runs pay more latencies. Larger
//! ones begin later, and end later.

use crate::{Adam, Group, Pending, Rank, Reduce, Result};
use shardlab::parallel::pipeline::{Instruction, Op, Pipeline, Schedule, Work};
use std::collections::{BTreeMap, HashMap};

/// The first layer of each bucket of gradients, in the order of the backward pass. The first bucket
/// is small, so that the link begins early. PyTorch's is, too: 1 MiB, where the others have 25.
const DDP_BUCKETS: &[usize] = &[7, 6, 4, 2, 0];

/// Averages gradients in buckets, while the backward pass goes on: PyTorch's
/// DistributedDataParallel.
pub fn ddp(rank: &Rank) -> Result<Vec<Vec<f32>>> {
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
        drop(x);
        let mut buckets = Buckets::new(world, DDP_BUCKETS);
        for layer in (0..rank.layers()).rev() {
            let x = inputs.pop().unwrap_or_default();
            let (dx, gradient) = rank.backward(layer, &weights[layer], &x, &dy);
            dy = dx;
            buckets.add(layer, gradient)?;
        }
        buckets.update(rank, &mut adam, &mut weights)?;
    }
    Ok(weights)
}

/// Gradients that travel together.
struct Buckets<'r> {
    group: Group<'r>,
    first_layers: &'static [usize],
    /// Of the bucket that is being filled.
    layers: Vec<usize>,
    gradients: Vec<Vec<f32>>,
    pending: Vec<(Vec<usize>, Pending<'r>)>,
}

impl<'r> Buckets<'r> {
    fn new(group: Group<'r>, first_layers: &'static [usize]) -> Buckets<'r> {
        Buckets {
            group,
            first_layers,
            layers: Vec::new(),
            gradients: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// Adds a layer's gradients, and lets the bucket go if it is full.
    fn add(&mut self, layer: usize, gradient: Vec<f32>) -> Result<()> {
        self.layers.push(layer);
        self.gradients.push(gradient);
        if self.first_layers.contains(&layer) {
            let layers = std::mem::take(&mut self.layers);
            let bucket = self.gradients.concat();
            self.gradients.clear();
            let pending = self.group.start_all_reduce(bucket, Reduce::Mean)?;
            self.pending.push((layers, pending));
        }
        Ok(())
    }

    /// Waits for all buckets, in their order, and takes the optimizer's step.
    fn update(self, rank: &Rank, adam: &mut [Adam], weights: &mut [Vec<f32>]) -> Result<()> {
        for (layers, pending) in self.pending {
            let bucket = pending.wait()?;
            let mut gradients = &bucket[..];
            for layer in layers {
                let (gradient, rest) = gradients.split_at(weights[layer].len());
                rank.update(&mut adam[layer], &mut weights[layer], gradient);
                gradients = rest;
            }
        }
        Ok(())
    }
}

/// The layers whose new parameters travel together, each by its first one: the rest travels while
/// these compute.
const ZERO_BUCKETS: &[usize] = &[0, 4];

/// Shards the optimizer. Gradients are scattered during the backward pass, and new parameters
/// gathered during the next forward pass, each just before its layer: Megatron's distributed
/// optimizer with `--overlap-grad-reduce` and `--overlap-param-gather`.
pub fn zero(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for layer in 0..rank.layers() {
        weights.push(rank.initial(layer));
        adam.push(Adam::new(rank.numel(layer) / ranks));
    }
    // Parameters on their way, by their first layer.
    let mut gathering: BTreeMap<usize, Pending> = BTreeMap::new();
    for step in 0..rank.steps() {
        let mut inputs: Vec<Vec<f32>> = Vec::new();
        let mut x = rank.input(step, me);
        for layer in 0..rank.layers() {
            if let Some(pending) = gathering.remove(&layer) {
                spread(&pending.wait()?, ranks, &mut weights[zero_bucket(layer, rank)]);
            }
            let y = rank.forward(layer, &weights[layer], &x);
            inputs.push(x);
            x = y;
        }
        let mut dy = rank.loss(step, me, &x);
        drop(x);
        let mut scattering: Vec<(usize, Pending)> = Vec::new();
        for layer in (0..rank.layers()).rev() {
            let x = inputs.pop().unwrap_or_default();
            let (dx, gradient) = rank.backward(layer, &weights[layer], &x, &dy);
            dy = dx;
            scattering.push((layer, world.start_reduce_scatter(gradient, Reduce::Mean)?));
        }
        for (layer, pending) in scattering {
            let mean = pending.wait()?;
            let slice = me * mean.len()..(me + 1) * mean.len();
            rank.update(&mut adam[layer], &mut weights[layer][slice], &mean);
        }
        for &first in ZERO_BUCKETS {
            let bucket = collected(&weights[zero_bucket(first, rank)], me, ranks);
            gathering.insert(first, world.start_all_gather(bucket)?);
        }
    }
    for (first, pending) in gathering {
        spread(&pending.wait()?, ranks, &mut weights[zero_bucket(first, rank)]);
    }
    Ok(weights)
}

/// The layers that travel with layer `first`.
fn zero_bucket(first: usize, rank: &Rank) -> std::ops::Range<usize> {
    let mut after = ZERO_BUCKETS.iter().filter(|next| **next > first);
    first..after.next().copied().unwrap_or(rank.layers())
}

/// A vector for an all-gather of several layers: for each rank its slices of all of them. This
/// rank's are there.
fn collected(layers: &[Vec<f32>], me: usize, ranks: usize) -> Vec<f32> {
    let numel: usize = layers.iter().map(Vec::len).sum();
    let mut all = vec![0.0; numel];
    let mut start = me * numel / ranks;
    for layer in layers {
        let slice = layer.len() / ranks;
        all[start..start + slice].copy_from_slice(&layer[me * slice..(me + 1) * slice]);
        start += slice;
    }
    all
}

/// The layers out of a gathered vector.
fn spread(all: &[f32], ranks: usize, layers: &mut [Vec<f32>]) {
    for (r, part) in all.chunks_exact(all.len() / ranks).enumerate() {
        let mut part = part;
        for layer in layers.iter_mut() {
            let slice = layer.len() / ranks;
            let (numbers, rest) = part.split_at(slice);
            layer[r * slice..(r + 1) * slice].copy_from_slice(numbers);
            part = rest;
        }
    }
}

/// Shards everything. The next layer is gathered while one computes, the last layer's gradients are
/// scattered meanwhile, and the last layer stays whole between its two passes: PyTorch's
/// `fully_shard`.
pub fn gather(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, ranks) = (world.rank(), world.size());
    let last = rank.layers() - 1;
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
        let mut whole = start_gather(world, &slices[0])?.wait()?;
        for layer in 0..last {
            let next = start_gather(world, &slices[layer + 1])?;
            let y = rank.forward(layer, &whole, &x);
            drop(whole);
            inputs.push(x);
            x = y;
            whole = next.wait()?;
        }
        let y = rank.forward(last, &whole, &x);
        inputs.push(x);
        let mut dy = rank.loss(step, me, &y);
        drop(y);
        let mut scattering: Option<(usize, Pending)> = None;
        for layer in (0..rank.layers()).rev() {
            let next = match layer {
                0 => None,
                _ => Some(start_gather(world, &slices[layer - 1])?),
            };
            let x = inputs.pop().unwrap_or_default();
            let (dx, gradient) = rank.backward(layer, &whole, &x, &dy);
            whole = Vec::new();
            dy = dx;
            // The gradients of the layer after it have travelled meanwhile.
            if let Some((behind, pending)) = scattering.take() {
                rank.update(&mut adam[behind], &mut slices[behind], &pending.wait()?);
            }
            scattering = Some((layer, world.start_reduce_scatter(gradient, Reduce::Mean)?));
            if let Some(next) = next {
                whole = next.wait()?;
            }
        }
        if let Some((first, pending)) = scattering {
            rank.update(&mut adam[first], &mut slices[first], &pending.wait()?);
        }
    }
    Ok(slices)
}

/// Starts to gather a layer.
fn start_gather<'r>(world: Group<'r>, slice: &[f32]) -> Result<Pending<'r>> {
    let mut whole = vec![0.0; world.size() * slice.len()];
    whole[world.rank() * slice.len()..][..slice.len()].copy_from_slice(slice);
    world.start_all_gather(whole)
}

/// Interleaved 1F1B: each rank has several chunks of one layer each, so the bubble is shorter and
/// each part's activations travel more often: Megatron's `--num-layers-per-virtual-pipeline-stage`.
/// The order is that of the lab's schedules.
pub fn pipeline(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let world = rank.world();
    let (me, last) = (world.rank(), rank.layers() - 1);
    let pipeline = Pipeline {
        ranks: world.size(),
        chunks: rank.layers() / world.size(),
        micro_batches: rank.parts(),
    };
    let order = Schedule::depth_first(&pipeline).order(&pipeline, me);
    let program = pipeline.with_messages(me, &order);
    let mut weights: Vec<Vec<f32>> = Vec::new();
    let mut adam: Vec<Adam> = Vec::new();
    for chunk in 0..pipeline.chunks {
        weights.push(rank.initial(pipeline.stage(me, chunk)));
        adam.push(Adam::new(weights[chunk].len()));
    }
    for step in 0..rank.steps() {
        let mut gradients: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
        let mut inputs: HashMap<Op, Vec<f32>> = HashMap::new();
        // Results of passes that wait for their reader: another rank, or a pass of this one.
        let mut results: HashMap<(Work, usize, usize), Vec<f32>> = HashMap::new();
        for &instruction in &program {
            match instruction {
                Instruction::Recv { op, from } => {
                    let mut numbers = vec![0.0; rank.activations()];
                    world.recv(&mut numbers, from)?;
                    let layer = pipeline.stage(from, op.chunk);
                    results.insert((op.work, layer, op.micro), numbers);
                }
                Instruction::Send { op, to } => {
                    let layer = pipeline.stage(me, op.chunk);
                    let numbers = results.remove(&(op.work, layer, op.micro));
                    world.send(&numbers.unwrap_or_default(), to)?;
                }
                Instruction::Compute(op) if op.work == Work::Forward => {
                    let layer = pipeline.stage(me, op.chunk);
                    let x = if layer == 0 {
                        rank.input(step, op.micro)
                    } else {
                        let before = results.remove(&(Work::Forward, layer - 1, op.micro));
                        before.unwrap_or_default()
                    };
                    let y = rank.forward(layer, &weights[op.chunk], &x);
                    inputs.insert(op, x);
                    results.insert((Work::Forward, layer, op.micro), y);
                }
                Instruction::Compute(op) => {
                    let layer = pipeline.stage(me, op.chunk);
                    let dy = if layer == last {
                        let y = results.remove(&(Work::Forward, layer, op.micro));
                        rank.loss(step, op.micro, &y.unwrap_or_default())
                    } else {
                        let behind = results.remove(&(Work::Backward, layer + 1, op.micro));
                        behind.unwrap_or_default()
                    };
                    let x = inputs.remove(&Op::forward(op.chunk, op.micro));
                    let x = x.unwrap_or_default();
                    let (dx, gradient) = rank.backward(layer, &weights[op.chunk], &x, &dy);
                    for (sum, g) in gradients[op.chunk].iter_mut().zip(&gradient) {
                        *sum += g;
                    }
                    if layer > 0 {
                        results.insert((Work::Backward, layer, op.micro), dx);
                    }
                }
            }
        }
        for chunk in 0..pipeline.chunks {
            for g in &mut gradients[chunk] {
                *g /= rank.parts() as f32;
            }
            rank.update(&mut adam[chunk], &mut weights[chunk], &gradients[chunk]);
        }
    }
    Ok(weights)
}

/// The first layer of each bucket of the mesh. The last bucket is one layer: no backward pass is
/// left to hide it.
const MESH_BUCKETS: &[usize] = &[4, 1, 0];

/// Tensor parallelism inside a node, and data parallelism with buckets between nodes.
pub fn mesh(rank: &Rank) -> Result<Vec<Vec<f32>>> {
    let (tensor, data) = (rank.tensor(), rank.data());
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
        drop(x);
        let mut buckets = Buckets::new(data, MESH_BUCKETS);
        for layer in (0..rank.layers()).rev() {
            let x = inputs.pop().unwrap_or_default();
            let (mut dx, gradient) = rank.backward(layer, &weights[layer], &x, &dy);
            buckets.add(layer, gradient)?;
            if layer > 0 {
                tensor.all_reduce(&mut dx, Reduce::Sum)?;
            }
            dy = dx;
        }
        buckets.update(rank, &mut adam, &mut weights)?;
    }
    Ok(weights)
}
