//! Whether the ranks have the model that one rank trains.

use super::expected::Expected;
use super::numbers::{digits, rounded};
use super::{DIGITS, Judge, on_one_rank};
use crate::{Job, Returns, Rung};
use anyhow::Result;
use kit::check::Evidence;
use kit::show::thousands;

impl Judge {
    /// [`Judge::weights`] for any job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn look_at_weights(&self, evidence: &mut Evidence, job: Job) -> Result<()> {
        let run = self.run(job)?;
        let one = on_one_rank(job)?;
        let rung = self.rung()?;
        let bounds = self.bounds()?;
        // What each rank has where all together have `model`.
        let shares = |model: &[Vec<f32>]| -> Vec<_> {
            (0..job.ranks).map(|rank| returned(rung, job, model, rank)).collect()
        };
        let expected = shares(&one.ranks[0].weights);
        let got: Vec<_> = run.ranks.iter().map(|rank| rank.weights.clone()).collect();
        for (rank, (expected, got)) in expected.iter().zip(&got).enumerate() {
            evidence.same(
                format!("rank {rank}: layers that it returns"),
                expected.len(),
                got.len(),
            );
            let first = match rung.returns {
                Returns::Layers => rank * expected.len(),
                _ => 0,
            };
            for (i, (expected, got)) in expected.iter().zip(got).enumerate() {
                let place = format!("rank {rank}, layer {}", first + i);
                if expected.len() != got.len() {
                    let numbers = |len: usize| format!("{} numbers", thousands(len as u64));
                    evidence.row(false, place, numbers(expected.len()), numbers(got.len()));
                    continue;
                }
                let far = |x: f32, y: f32| (x - y).abs() > bounds.weight || (x - y).is_nan();
                let wrong = (0..got.len()).find(|&i| far(expected[i], got[i]));
                let i = wrong.unwrap_or_default();
                evidence.row(
                    wrong.is_none(),
                    format!("{place}: parameter {i}"),
                    format!("{:?}", expected[i]),
                    format!("{:?}", got[i]),
                );
            }
            if bounds.weights > 0.0 && evidence.agrees() {
                let pairs = || expected.iter().flatten().zip(got.iter().flatten());
                let squares = pairs().map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
                let mean = (squares / pairs().count() as f64).sqrt();
                evidence.row(
                    mean <= bounds.weights,
                    format!("rank {rank}: mean difference from one rank"),
                    format!("at most {}", bounds.weights),
                    digits(mean),
                );
            }
        }
        if evidence.agrees() {
            return Ok(());
        }
        let lengths = |weights: &[Vec<f32>]| weights.iter().map(Vec::len).collect::<Vec<_>>();
        let same_lengths = |rank: usize| lengths(&got[rank]) == lengths(&expected[rank]);
        let of = Expected::new(job, false)?;
        let after = |step: usize| of.split(&of.steps[step].weights);
        evidence.means_if(
            (0..job.ranks).all(|rank| {
                same_lengths(rank) && rounded(&got[rank].concat(), &expected[rank].concat(), 1e-4)
            }),
            DIGITS,
        );
        evidence.means_if(
            got.iter().all(Vec::is_empty),
            "The ranks return no layers. Return what the rank has of each layer after the last step.",
        );
        evidence.means_if(
            got == shares(&after(0)),
            "These are the weights before the first step. Return those that `rank.update` has changed.",
        );
        evidence.means_if(
            (1..job.steps).any(|step| got == shares(&after(step))),
            "These are the weights after an earlier step. What the last step computes is lost.",
        );
        evidence.means_if(
            got.iter().zip(&expected).all(|(got, expected)| got.iter().rev().eq(expected)),
            "The layers come in the order of the backward pass: return layer 0 first. A checkpoint in this order loads wherever layers \
             are equally large, and computes nonsense.",
        );
        evidence.means_if(
            rung.returns != Returns::Whole && got.contains(&one.ranks[0].weights),
            "A rank returns the whole model. In this rung it has only its own share of it, so it returns that.",
        );
        evidence.means_if(
            (0..job.ranks).any(|rank| !same_lengths(rank)),
            "A rank returns one list for each layer that it has a part of, in order, with as many numbers as it has of that layer.",
        );
        evidence.means_if(
            rung.returns == Returns::Whole && got.iter().any(|rank| *rank != got[0]),
            "The ranks have different models. They begin with the same weights, so in some step their updates were not the same.",
        );
        evidence.means(
            "The model is not the one that one rank trains on the same batches. What is different in a later step than in the first?",
        );
        Ok(())
    }
}

/// What a rank returns if all ranks together have `model`.
fn returned(rung: &Rung, job: Job, model: &[Vec<f32>], rank: usize) -> Vec<Vec<f32>> {
    let slices = |part: usize, parts: usize| {
        let slice = |layer: &Vec<f32>| {
            let len = layer.len() / parts;
            layer[part * len..(part + 1) * len].to_vec()
        };
        model.iter().map(slice).collect()
    };
    match rung.returns {
        Returns::Whole => model.to_vec(),
        Returns::Slices => slices(rank, job.ranks),
        Returns::Layers => {
            let each = model.len() / job.ranks;
            model[rank * each..(rank + 1) * each].to_vec()
        }
        Returns::Units => slices(rank % job.tensor, job.tensor),
    }
}
