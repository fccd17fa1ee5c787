//! The eight rungs: what each of them trains on, and our solution of it.

use crate::{Job, Rank, Result, Run, one_rank, run};

#[path = "solutions/ladder_buckets.rs"]
mod buckets;
#[path = "solutions/ladder_each.rs"]
mod each;
#[path = "solutions/ladder_flat.rs"]
mod flat;
#[path = "solutions/ladder_gather.rs"]
mod gather;
#[path = "solutions/ladder_mesh.rs"]
mod mesh;
#[path = "solutions/ladder_overlap.rs"]
mod overlap;
#[path = "solutions/ladder_pipeline.rs"]
mod pipeline;
#[path = "solutions/ladder_zero.rs"]
mod zero;

/// A program of the ladder.
pub type Program = fn(&Rank) -> Result<Vec<Vec<f32>>>;

/// What a rank returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// All layers, whole.
    Whole,
    /// A slice of every layer: all ranks' slices, end to end, are the layer.
    Slices,
    /// Some layers, whole: all ranks' layers, one after the other, are the model.
    Layers,
    /// Some units of every layer: those of a node's ranks, end to end, are the layer. All nodes
    /// have the same.
    Units,
}

/// One rung.
#[derive(Clone, Copy, Debug)]
pub struct Rung {
    /// The exercise's name.
    pub name: &'static str,
    /// What it does better than the rung before, and what it pays, in a few words.
    pub gains: &'static str,
    pub job: Job,
    pub returns: Returns,
    pub ours: Program,
}

/// The three steps of a run on four ranks.
const fn job(parts: usize, tensor: usize) -> Job {
    Job { ranks: 4, parts, tensor, steps: 3 }
}

/// From the first to the last.
pub const RUNGS: [Rung; 8] = [
    Rung {
        name: "ladder-each",
        gains: "four ranks, a quarter of the time",
        job: job(4, 1),
        returns: Returns::Whole,
        ours: each::train,
    },
    Rung {
        name: "ladder-flat",
        gains: "less time: one latency; more memory: a copy",
        job: job(4, 1),
        returns: Returns::Whole,
        ours: flat::train,
    },
    Rung {
        name: "ladder-overlap",
        gains: "less time: the link works beside the backward pass",
        job: job(4, 1),
        returns: Returns::Whole,
        ours: overlap::train,
    },
    Rung {
        name: "ladder-buckets",
        gains: "less time: fewer latencies; more memory: the buckets",
        job: job(4, 1),
        returns: Returns::Whole,
        ours: buckets::train,
    },
    Rung {
        name: "ladder-zero",
        gains: "less memory: a slice of the optimizer; more time",
        job: job(4, 1),
        returns: Returns::Whole,
        ours: zero::train,
    },
    Rung {
        name: "ladder-gather",
        gains: "less memory: a slice of everything; more bytes and time",
        job: job(4, 1),
        returns: Returns::Slices,
        ours: gather::train,
    },
    Rung {
        name: "ladder-pipeline",
        gains: "fewer bytes: only activations; a bubble",
        job: job(8, 1),
        returns: Returns::Layers,
        ours: pipeline::train,
    },
    Rung {
        name: "ladder-mesh",
        gains: "least time: no bubble, a fast link inside; more memory",
        job: job(2, 2),
        returns: Returns::Units,
        ours: mesh::train,
    },
];

impl Rung {
    /// Its name in one word: `flat`.
    pub fn word(&self) -> &'static str {
        self.name.trim_start_matches("ladder-")
    }

    /// The rung of an exercise.
    pub fn of(name: &str) -> Option<&'static Rung> {
        RUNGS.iter().find(|rung| rung.name == name)
    }

    /// The same training on one rank, whose batch is cut into as many parts: what all ranks
    /// together must compute.
    ///
    /// # Errors
    /// Those of the program.
    pub fn on_one_rank(&self) -> anyhow::Result<Run> {
        let job = Job { ranks: 1, tensor: 1, ..self.job };
        run(job, one_rank::train)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LAYERS;
    use crate::Score;
    use shardlab::allocator::Counting;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// The largest difference between two models.
    fn difference(x: &[Vec<f32>], y: &[Vec<f32>]) -> f32 {
        assert_eq!(x.len(), y.len());
        let pairs = x.iter().flatten().zip(y.iter().flatten());
        pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
    }

    /// The whole model, put together from what the ranks have returned.
    fn model(run: &Run, returns: Returns) -> Vec<Vec<f32>> {
        let ranks: Vec<&Vec<Vec<f32>>> = run.ranks.iter().map(|rank| &rank.weights).collect();
        let joined = |ranks: &[&Vec<Vec<f32>>]| {
            let layer = |layer: usize| ranks.iter().flat_map(|rank| rank[layer].clone()).collect();
            (0..ranks[0].len()).map(layer).collect()
        };
        match returns {
            Returns::Whole => ranks[0].clone(),
            Returns::Slices => joined(&ranks),
            Returns::Layers => ranks.into_iter().flatten().cloned().collect(),
            Returns::Units => joined(&ranks[..run.job.tensor]),
        }
    }

    #[test]
    fn every_rung_trains_what_one_rank_trains() {
        for rung in RUNGS {
            let run = run(rung.job, rung.ours).unwrap();
            let one = rung.on_one_rank().unwrap();
            let model = model(&run, rung.returns);
            assert_eq!(model.len(), LAYERS);
            let difference = difference(&model, &one.ranks[0].weights);
            // Tensor ranks add up summands, so a layer's sums are rounded in another order.
            let bound = if rung.returns == Returns::Units { 1e-3 } else { 0.0 };
            assert!(difference <= bound, "{}: {difference}", rung.name);
            if rung.returns == Returns::Whole {
                assert!(run.ranks.iter().all(|rank| rank.weights == model), "{}", rung.name);
            }
        }
    }

    /// Nothing is better than the best, and the best is not far away.
    #[test]
    fn no_program_is_better_than_the_best() {
        for rung in RUNGS {
            let best = crate::best(&rung).unwrap();
            let score = run(rung.job, rung.ours).unwrap().score();
            let of = |score: &Score| [score.peak as f64, score.sent as f64, score.seconds];
            for (score, bound) in of(&score).into_iter().zip(of(&best)) {
                // Sums of seconds are rounded.
                assert!(score >= bound * (1.0 - 1e-9), "{}: {score}, {bound}", rung.name);
                assert!(score <= bound * 3.0, "{}: {score}, {bound}", rung.name);
            }
        }
    }

    /// Each rung is better than the one before in something.
    #[test]
    fn every_rung_gains_something() {
        let scores: Vec<_> =
            RUNGS.iter().map(|rung| run(rung.job, rung.ours).unwrap().score()).collect();
        let one = RUNGS[0].on_one_rank().unwrap().score();
        assert!(scores[0].seconds < 0.5 * one.seconds);
        for (i, pair) in scores.windows(2).enumerate() {
            let [before, now] = pair else { unreachable!() };
            let better =
                now.peak < before.peak || now.sent < before.sent || now.seconds < before.seconds;
            assert!(better, "{}: {before:?}, {now:?}", RUNGS[i + 1].name);
        }
    }

    #[test]
    fn the_model_learns() {
        let job = Job { ranks: 1, parts: 1, tensor: 1, steps: 60 };
        let losses = run(job, one_rank::train).unwrap().ranks.swap_remove(0).losses;
        assert!(losses[59].2 < losses[0].2 - 1.0, "{losses:?}");
    }
}
