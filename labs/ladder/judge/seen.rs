//! What the optimizer got in place of the mean gradients.

use super::expected::{Expected, Step};
use super::numbers::{locate, near, norm, rounded};
use crate::log::Update;

/// Whose gradients the optimizer got in place of the mean.
pub(super) enum Kind {
    Zero,
    /// Those of one part.
    Part(usize),
    /// As many times the mean as the batch has parts, or such a share of it.
    Times,
    Share,
    /// A single part's, divided as if they were the sum of all.
    ShareOf(usize),
    /// Also those of earlier steps.
    Before,
    /// Those of other layers.
    Elsewhere(String),
    /// The mean, but for rounding.
    Digits,
    /// The weights before the update are wrong already.
    Weights,
    Other,
}

/// A wrong update: of which layers, and by what.
pub(super) struct Seen {
    pub(super) layer: String,
    pub(super) kind: Kind,
}

impl Seen {
    /// An update in a step, whose weights begin at `start`.
    pub(super) fn of(
        of: &Expected,
        step: usize,
        start: usize,
        update: &Update,
        bound: f32,
    ) -> Seen {
        let got = &update.gradients;
        let range = start..start + got.len();
        let Step { mean, parts, .. } = &of.steps[step];
        let is = |of: &dyn Fn(usize) -> f32| {
            near(got, &range.clone().map(of).collect::<Vec<_>>(), bound)
        };
        let n = parts.len() as f32;
        let before =
            |first: usize| is(&|i| of.steps[first..=step].iter().map(|step| step.mean[i]).sum());
        let kind = if got.iter().all(|g| *g == 0.0) {
            Kind::Zero
        } else if let Some(part) = (0..parts.len()).find(|&part| is(&|i| parts[part][i])) {
            Kind::Part(part)
        } else if is(&|i| n * mean[i]) {
            Kind::Times
        } else if is(&|i| mean[i] / n) {
            Kind::Share
        } else if let Some(part) = (0..parts.len()).find(|&part| is(&|i| parts[part][i] / n)) {
            Kind::ShareOf(part)
        } else if (0..step).any(before) {
            Kind::Before
        } else {
            let size = norm(got) / (got.len() as f64).sqrt();
            let same = |x: f32, y: f32| (x - y).abs() <= bound * (y.abs() + size as f32);
            let found = |list: &[f32]| locate(got, list, same);
            let other = found(mean).or_else(|| parts.iter().find_map(|part| found(part)));
            match other {
                Some(start) => Kind::Elsewhere(of.layers(start..start + got.len())),
                None if rounded(got, &mean[range.clone()], 1e-4) => Kind::Digits,
                // Every state of Adam makes the same first step, an old one and a new one.
                None if step > 1
                    && !rounded(&update.weights, &of.steps[step].weights[range.clone()], 1e-3) =>
                {
                    Kind::Weights
                }
                None => Kind::Other,
            }
        };
        Seen { layer: of.layers(range), kind }
    }
}
