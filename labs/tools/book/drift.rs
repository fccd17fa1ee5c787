//! The figure of replicas that drift: a model of two weights on several ranks, with and without the
//! average of their gradients.
//!
//! The ranks are threads that really average. The figure's script (`book/figures/drift.js`) shows
//! their weights, and trains nothing.

use super::cases::json_of;
use super::noise::noise;
use crate::draw::{Anchor, Coat, Ink, Sketch};
use anyhow::Result;
use itertools::iproduct;
use serde_json::json;
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use std::f64::consts::TAU;

const STEPS: usize = 40;
const RATE: f64 = 0.3;
/// The loss's curvature in each weight. Over all data it is least where both weights are 1.
const CURVATURE: [f64; 2] = [1.0, 0.25];
/// How far the least loss over one rank's data is from there.
const APART: f64 = 0.35;
const NOISE: f64 = 0.8;

#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    /// Whether gradients are averaged over the ranks.
    averaged: bool,
    /// Whether each rank has its own data, or all have rank 0's.
    own: bool,
}

type Weights = [f64; 2];

impl Job {
    /// The gradient of a rank's batch.
    fn gradient(&self, rank: usize, step: usize, weights: Weights) -> Weights {
        let data = if self.own { rank } else { 0 };
        let angle = TAU * data as f64 / self.ranks as f64;
        let least = [1.0 + APART * angle.cos(), 1.0 + APART * angle.sin()];
        std::array::from_fn(|i| {
            let batch = NOISE * noise(2 * (64 * step + data) + i + 1);
            CURVATURE[i] * (weights[i] - least[i] + batch)
        })
    }

    /// One rank's weights before the first step and after each.
    fn train(&self, comm: &Comm) -> Result<Vec<Weights>> {
        let mut weights = [0.0; 2];
        let mut all = vec![weights];
        for step in 0..STEPS {
            let mut gradient = self.gradient(comm.rank(), step, weights);
            if self.averaged {
                comm.all_reduce(&mut gradient, Reduce::Mean)?;
            }
            weights = std::array::from_fn(|i| weights[i] - RATE * gradient[i]);
            all.push(weights);
        }
        Ok(all)
    }

    /// Every rank's weights.
    fn run(&self) -> Result<Vec<Vec<Weights>>> {
        launch::run(self.ranks, |comm| self.train(&comm))
    }
}

/// The weights of every job that a reader can choose, in millionths.
pub(super) fn cases() -> Result<String> {
    let averages = [("left out", false), ("taken", true)];
    let data = [("its own", true), ("rank 0's", false)];
    let case = |(ranks, (average, averaged), (batches, own))| {
        let millionths = |weights: &Weights| weights.map(|w| (1e6 * w).round() as i64);
        let of_rank = |all: &Vec<Weights>| all.iter().map(millionths).collect::<Vec<_>>();
        let ranks_weights = Job { ranks, averaged, own }.run()?;
        let weights: Vec<_> = ranks_weights.iter().map(of_rank).collect();
        Ok(json!({ "ranks": ranks, "average": average, "batches": batches, "weights": weights }))
    };
    let cases = iproduct!([2, 3, 4, 6, 8], averages, data).map(case).collect::<Result<_>>()?;
    Ok(json_of([("cases", cases)]))
}

/// The first picture, which stays where scripts do not run: four replicas without the average.
pub(super) fn picture() -> Result<String> {
    const SIDE: f64 = 300.0;
    // Weights from -0.2 to 1.8.
    let place = |[x, y]: Weights| (1.0 + SIDE * (x + 0.2) / 2.0, 1.0 + SIDE * (1.8 - y) / 2.0);
    let mut sketch = Sketch::default();
    sketch.boxed((1.0, 1.0), (SIDE, SIDE), Ink::Page, Coat::Line, "");
    let job = Job { ranks: 4, averaged: false, own: true };
    for (rank, weights) in job.run()?.iter().enumerate() {
        sketch.curve(weights.iter().copied().map(place), Ink::Rank(rank));
        if let Some(last) = weights.last() {
            sketch.dot(place(*last), Ink::Rank(rank));
        }
        let y = 20.0 + 20.0 * rank as f64;
        sketch.dot((SIDE + 25.0, y - 4.0), Ink::Rank(rank));
        sketch.words((SIDE + 38.0, y), Anchor::Start, format!("rank {rank}"));
    }
    Ok(sketch.svg(
        "Two weights of four replicas over 40 steps without the average: they drift apart",
        SIDE + 2.0,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(weights: Weights) -> f64 {
        let parts = CURVATURE.iter().zip(weights);
        parts.map(|(curvature, weight)| curvature * (weight - 1.0).powi(2) / 2.0).sum()
    }

    /// What the page says: without the average replicas differ and the loss falls all the same;
    /// with rank 0's batches they are equal, and learn less.
    #[test]
    fn losses_fall_in_all_four_and_only_one_has_other_replicas() {
        let ends = |averaged, own| {
            let all = Job { ranks: 4, averaged, own }.run().unwrap();
            let ends: Vec<Weights> = all.iter().map(|rank| rank[STEPS]).collect();
            let mean = ends.iter().map(|&end| loss(end)).sum::<f64>() / 4.0;
            assert!(mean < 0.25 * loss([0.0; 2]), "{mean}");
            (ends.iter().all(|end| *end == ends[0]), mean)
        };
        let right = ends(true, true);
        assert!(right.0 && right.1 < 0.01, "{right:?}");
        for (averaged, own) in [(false, true), (true, false), (false, false)] {
            let (alike, mean) = ends(averaged, own);
            assert_eq!(alike, averaged || !own);
            assert!(mean > 4.0 * right.1, "{mean}, {right:?}");
        }
    }
}
