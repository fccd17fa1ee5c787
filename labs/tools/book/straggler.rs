//! The figure of a slow rank: iterations that end when the last rank's gradients are averaged.
//!
//! The figure's script (`book/figures/straggler.js`) shows them, and computes none.

use super::cases::json_of;
use super::noise::noise;
use crate::draw::{Anchor, Coat, Ink, Sketch};
use anyhow::Result;
use itertools::iproduct;
use serde_json::json;
use shardlab::comm::Link;
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::plan::{Network, simulate};

/// Seconds of an iteration's forward and backward pass, without noise, on a rank that is not slow.
const COMPUTE: f64 = 0.01;
const SLOW_RANK: usize = 1;
const ITERATIONS: usize = 40;
/// Gradients: 6 million f32. Every number of ranks that a reader can choose divides it.
const GRADIENTS: usize = 6 << 20;
/// The seconds that the figure shows, of so many ranks at most.
const WINDOW: f64 = 0.06;
const MOST_DRAWN: usize = 8;
const LINK: Link = Link { latency: 5e-6, bandwidth: 25e9 };

/// A job in which one rank computes `slow` times as long as the others, and each rank's time varies
/// by the part `noise` up and down.
#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    slow: f64,
    noise: f64,
}

impl Job {
    /// Seconds in which a rank computes in an iteration.
    fn computes(&self, iteration: usize, rank: usize) -> f64 {
        let slow = if rank == SLOW_RANK { self.slow } else { 1.0 };
        COMPUTE * slow * (1.0 + 2.0 * self.noise * noise(1024 * iteration + rank + 1))
    }

    /// Seconds of the library's ring all-reduce, once all ranks are there.
    fn reduce(&self) -> Result<f64> {
        let task = Task::new(Collective::AllReduce, Algorithm::Ring, self.ranks, GRADIENTS, 4, 0)?;
        // Each message is busy for its latency, too, as on a network card.
        Ok(simulate(&task, 4, &Network { pipelined: false, ..Network::uniform(LINK) }))
    }

    /// Mean seconds of an iteration, and mean seconds in which a rank waits in it.
    fn means(&self) -> Result<[f64; 2]> {
        let reduce = self.reduce()?;
        let [mut steps, mut waits] = [0.0, 0.0];
        for iteration in 0..ITERATIONS {
            let computes: Vec<f64> =
                (0..self.ranks).map(|rank| self.computes(iteration, rank)).collect();
            let last = computes.iter().copied().fold(0.0, f64::max);
            steps += last + reduce;
            waits += last - computes.iter().sum::<f64>() / self.ranks as f64;
        }
        Ok([steps, waits].map(|sum| sum / ITERATIONS as f64))
    }
}

/// The seconds of every job that a reader can choose, and of the larger ones in the figure's
/// table; of what is drawn also the microseconds that each rank computes in the first iterations.
pub(super) fn cases() -> Result<String> {
    let slows = [1.0, 1.1, 1.25, 1.5, 2.0, 3.0];
    let case = |(ranks, slow, noise)| {
        let job = Job { ranks, slow, noise };
        let reduce = job.reduce()?;
        let [step, waits] = job.means()?;
        let mut drawn: Vec<Vec<u64>> = Vec::new();
        let mut end = 0.0;
        while ranks <= MOST_DRAWN && end < WINDOW {
            let computes = |rank| (1e6 * job.computes(drawn.len(), rank)).round() as u64;
            let all: Vec<u64> = (0..ranks).map(computes).collect();
            end += all.iter().copied().max().unwrap_or(0) as f64 / 1e6 + reduce;
            drawn.push(all);
        }
        Ok(json!({
            "ranks": ranks, "slow": slow, "noise": noise, "reduce": reduce,
            "step": step, "waits": waits, "all": drawn,
        }))
    };
    let jobs = iproduct!([2, 3, 4, 6, 8, 64, 512], slows, [0.0, 0.05, 0.1, 0.2, 0.3]);
    Ok(json_of([("cases", jobs.map(case).collect::<Result<_>>()?)]))
}

/// The first picture, which stays where scripts do not run: four ranks, one of which is slow.
pub(super) fn picture() -> Result<String> {
    const LEFT: f64 = 52.0;
    const WIDE: f64 = 426.0;
    const TOP: f64 = 30.0;
    const HIGH: f64 = 28.0;
    let job = Job { ranks: 4, slow: 1.5, noise: 0.1 };
    let reduce = job.reduce()?;
    let mut sketch = Sketch::default();
    sketch.boxed((1.0, 1.0), (14.0, 14.0), Ink::Kind(3), Coat::Light, "");
    sketch.words((21.0, 13.0), Anchor::Start, "all-reduce");
    sketch.boxed((121.0, 1.0), (14.0, 14.0), Ink::Page, Coat::Dashes, "");
    sketch.words((141.0, 13.0), Anchor::Start, "waits");
    let x = |time: f64| LEFT + WIDE * time.min(WINDOW) / WINDOW;
    for rank in 0..job.ranks {
        let y = TOP + HIGH * rank as f64;
        sketch.words((0.0, y + 16.0), Anchor::Start, format!("rank {rank}"));
        let mut bar = |from: f64, to: f64, ink, coat| {
            if x(to) > x(from) {
                sketch.boxed((x(from), y), (x(to) - x(from), HIGH - 6.0), ink, coat, "");
            }
        };
        let mut start = 0.0;
        for iteration in 0..ITERATIONS {
            let computes = |rank| job.computes(iteration, rank);
            let last = (0..job.ranks).map(computes).fold(0.0, f64::max);
            let [own, last] = [start + computes(rank), start + last];
            bar(start, own, Ink::Rank(rank), Coat::Light);
            bar(own, last, Ink::Page, Coat::Dashes);
            bar(last, last + reduce, Ink::Kind(3), Coat::Light);
            start = last + reduce;
        }
    }
    let bottom = TOP + HIGH * job.ranks as f64;
    sketch.words((LEFT, bottom + 12.0), Anchor::Start, "0 ms");
    sketch.words((LEFT + WIDE, bottom + 12.0), Anchor::End, "60 ms");
    let title =
        "Iterations of four ranks: rank 1 computes 1.5 times as long, and the others wait for it";
    Ok(sketch.svg(title, bottom + 18.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says: a slow rank costs all ranks the same time, however many they are, and
    /// noise costs the more, the more ranks there are.
    #[test]
    fn all_wait_for_the_slowest() {
        let means = |ranks, slow, noise| Job { ranks, slow, noise }.means().unwrap();
        for ranks in [2, 8, 512] {
            let [good, slow] = [1.0, 1.5].map(|slow| means(ranks, slow, 0.0)[0]);
            assert!((slow - good - 0.5 * COMPUTE).abs() < 1e-12);
        }
        assert_eq!(means(8, 1.0, 0.0)[1], 0.0);
        let waits = [2, 8, 64, 512].map(|ranks| means(ranks, 1.0, 0.1)[1]);
        assert!(waits.is_sorted() && waits[0] > 0.0, "{waits:?}");
        assert!(waits[3] > 0.09 * COMPUTE && waits[3] < 0.1 * COMPUTE, "{waits:?}");
    }
}
