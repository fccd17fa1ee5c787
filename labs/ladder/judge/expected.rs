//! What one rank computes, step by step.

use super::on_one_rank;
use crate::{Job, LAYERS};
use anyhow::Result;
use std::ops::Range;

/// A step of the program for one rank: all layers' numbers in one list.
pub(super) struct Step {
    /// Before the step.
    pub(super) weights: Vec<f32>,
    /// The mean gradients over all parts.
    pub(super) mean: Vec<f32>,
    /// Each part's gradients.
    pub(super) parts: Vec<Vec<f32>>,
}

/// What one rank computes, with its layers from the first to the last, or from the last to the
/// first.
pub(super) struct Expected {
    /// Where each layer begins.
    pub(super) starts: Vec<usize>,
    pub(super) lens: Vec<usize>,
    pub(super) steps: Vec<Step>,
}

impl Expected {
    pub(super) fn new(job: Job, backward: bool) -> Result<Expected> {
        let run = on_one_rank(job)?;
        let one = &run.ranks[0];
        let mut layers: Vec<usize> = (0..LAYERS).collect();
        if backward {
            layers.reverse();
        }
        let lens: Vec<usize> = one.weights.iter().map(Vec::len).collect();
        let mut starts = vec![0; LAYERS];
        let mut end = 0;
        for &layer in &layers {
            starts[layer] = end;
            end += lens[layer];
        }
        let step = |step: usize| {
            let update = |layer: usize| &one.updates[step * LAYERS + layer];
            let gradient = |part: usize, layer: usize| {
                let of_part = (step * job.parts + part) * LAYERS;
                &one.gradients[of_part + LAYERS - 1 - layer].1
            };
            let flat =
                |of: &dyn Fn(usize) -> Vec<f32>| layers.iter().flat_map(|&l| of(l)).collect();
            Step {
                weights: flat(&|layer| update(layer).weights.clone()),
                mean: flat(&|layer| update(layer).gradients.clone()),
                parts: (0..job.parts)
                    .map(|part| flat(&|layer| gradient(part, layer).clone()))
                    .collect(),
            }
        };
        Ok(Expected { steps: (0..job.steps).map(step).collect(), starts, lens })
    }

    /// A list of all layers' numbers, layer by layer.
    pub(super) fn split(&self, flat: &[f32]) -> Vec<Vec<f32>> {
        let layer = |layer: usize| flat[self.starts[layer]..][..self.lens[layer]].to_vec();
        (0..LAYERS).map(layer).collect()
    }

    /// The layers of which a range has parameters: `layer 3`, or `layers 6 and 7`.
    pub(super) fn layers(&self, range: Range<usize>) -> String {
        let inside = |layer: &usize| {
            let start = self.starts[*layer];
            start < range.end && range.start < start + self.lens[*layer]
        };
        let layers: Vec<usize> = (0..LAYERS).filter(inside).collect();
        match layers[..] {
            [layer] => format!("layer {layer}"),
            [first, second] => format!("layers {first} and {second}"),
            [first, .., last] => format!("layers {first} to {last}"),
            [] => "no layer".into(),
        }
    }
}
