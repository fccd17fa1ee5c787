//! The rank that everyone waits for: one layer's experts, measured on one rank after the other.

use super::load::largest_share;
use anyhow::Result;
use kit::machine::one_by_one;
use kit::show::{Activity, Interval, Screen, Timeline, percent};
use shardlab::comm::Comm;
use shardlab::data::Uniform;
use shardlab::model::{Build, Layer, Mlp, Pass, Plain, Role};
use shardlab::parallel::ExpertParallel;
use shardlab::plan::ModelShape;
use shardlab::tensor::{Activation, Init, Params, Whole};
use std::time::Instant;

/// Turns of each rank.
const TURNS: usize = 6;

/// One layer's experts on all ranks.
pub struct Waiting {
    /// Among those with experts.
    pub layer: usize,
    /// Copies that each rank's experts have.
    pub copies: Vec<u64>,
    /// Seconds of each rank, forward and backward.
    pub seconds: Vec<[f64; 2]>,
    /// Seconds of a rank that has its even part of the copies.
    pub even: [f64; 2],
}

/// Measures the layer whose busiest rank has most of its `copies` for each expert: one rank after
/// the other.
///
/// # Errors
/// If a pass or a message fails.
pub fn waiting(world: &Comm, shape: &ModelShape, copies: &[Vec<u64>]) -> Result<Waiting> {
    let ranks = world.size();
    let of_ranks = |layer: &Vec<u64>| -> Vec<u64> {
        layer.chunks(layer.len() / ranks).map(|part| part.iter().sum()).collect()
    };
    let largest = |layer: usize| largest_share(&copies[layer..=layer], ranks);
    let layer = (0..copies.len())
        .max_by(|&a, &b| largest(a).total_cmp(&largest(b)))
        .unwrap_or(0);
    let all = &copies[layer];
    let mine = &all[ExpertParallel::new(world.clone()).share(all.len())];
    let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
    let balanced = vec![mean.round() as u64; mine.len()];
    let expert = expert(shape)?;
    let figures = one_by_one(world, TURNS, || {
        let [forward, backward] = seconds(&expert, shape.embd, mine)?;
        let [even_forward, even_backward] = seconds(&expert, shape.embd, &balanced)?;
        Ok([forward, backward, even_forward, even_backward])
    })?;
    let mean = |at: usize| figures.iter().map(|rank| rank[at]).sum::<f64>() / ranks as f64;
    Ok(Waiting {
        layer,
        copies: of_ranks(all),
        seconds: figures.iter().map(|&[forward, backward, ..]| [forward, backward]).collect(),
        even: [mean(2), mean(3)],
    })
}

/// An expert of this shape.
fn expert(shape: &ModelShape) -> Result<Mlp> {
    let params = Params::new();
    let matrix = |name: &str, rows, columns, role| {
        Plain.linear(&params, Whole::new(name, &[rows, columns], Init::Normal(0.02)), role)
    };
    let fc = matrix("fc.weight", shape.ffn(), shape.embd, Role::MlpIn)?;
    let out = matrix("out.weight", shape.embd, shape.ffn(), Role::MlpOut)?;
    params.allocate(1);
    Ok(Mlp { fc, out, name: "expert".to_string() })
}

/// Seconds of a forward and of a backward pass of experts with so many copies each.
fn seconds(expert: &Mlp, width: usize, loads: &[u64]) -> Result<[f64; 2]> {
    let pass = Pass::training(None);
    let mut seconds = [0.0; 2];
    for &copies in loads.iter().filter(|&&copies| copies > 0) {
        let rows = copies as usize;
        let numbers = Uniform { seed: 1, rank: 0, batch: rows, width }.batch(0);
        let dy = vec![1.0; numbers.len()];
        let x = Activation::start(numbers, (1, rows, width))?;
        let begun = Instant::now();
        let y = expert.forward(&x, &pass)?;
        let forward = Instant::now();
        y.backward(dy, None)?;
        seconds[0] += (forward - begun).as_secs_f64();
        seconds[1] += forward.elapsed().as_secs_f64();
    }
    Ok(seconds)
}

impl Waiting {
    /// The rank that computes longest.
    pub fn last(&self) -> usize {
        let all = |rank: usize| self.seconds[rank].iter().sum::<f64>();
        (0..self.seconds.len()).max_by(|&a, &b| all(a).total_cmp(&all(b))).unwrap_or(0)
    }

    /// The longest forward pass of a rank and the longest backward pass: all wait for both.
    fn longest(&self) -> [f64; 2] {
        [0, 1].map(|pass| self.seconds.iter().map(|both| both[pass]).fold(0.0, f64::max))
    }

    /// How much longer than with an even load, as a part of that.
    pub fn cost(&self) -> f64 {
        self.longest().iter().sum::<f64>() / self.even.iter().sum::<f64>() - 1.0
    }

    /// What each rank does meanwhile. The first layer with experts is layer `first` of the model.
    pub fn timeline(&self, step: usize, first: usize) -> Timeline<'static> {
        let longest = self.longest();
        let row = |(rank, &[forward, backward]): (usize, &[f64; 2])| {
            let part = |activity, start: f64, seconds: f64| Interval {
                activity,
                start,
                end: start + seconds,
            };
            let intervals = vec![
                part(Activity::FORWARD, 0.0, forward),
                part(Activity::WAITING, forward, longest[0] - forward),
                part(Activity::BACKWARD, longest[0], backward),
                part(Activity::WAITING, longest[0] + backward, longest[1] - backward),
            ];
            (format!("rank {rank} {:>5} copies", self.copies[rank]), intervals)
        };
        Timeline {
            title: format!(
                "Layer {}'s experts in step {step}: everyone waits for rank {}",
                first + self.layer,
                self.last()
            ),
            rows: self.seconds.iter().enumerate().map(row).collect(),
            marks: Vec::new(),
            axis: "",
        }
    }

    /// What imbalance costs here.
    pub fn words(&self, screen: &Screen) -> String {
        format!(
            "{}; with forced balance, as in published speeds, {}: +{}.",
            screen.seconds(self.longest().iter().sum()),
            screen.seconds(self.even.iter().sum()),
            percent(self.cost().max(0.0)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        Waiting {
            layer: 1,
            copies: vec![30, 10],
            seconds: vec![[3.0, 6.0], [1.0, 2.0]],
            even: [2.0, 4.0],
        }
    }

    #[test]
    fn all_wait_for_the_last_rank_twice() {
        let waiting = waiting();
        assert_eq!((waiting.last(), waiting.cost()), (0, 0.5));
        let timeline = waiting.timeline(7, 0);
        let waits: f64 = timeline.rows[1]
            .1
            .iter()
            .filter(|one| one.activity == Activity::WAITING)
            .map(|one| one.end - one.start)
            .sum();
        assert_eq!(waits, 6.0);
        let text = timeline.render(&Screen::plain());
        assert!(text.contains("everyone waits for rank 0"), "{text}");
        let words = waiting.words(&Screen::plain());
        assert!(
            words.starts_with("9.00 s; with") && words.ends_with("6.00 s: +50.0%."),
            "{words}"
        );
    }
}
