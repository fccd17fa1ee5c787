//! What a lab can leave out on purpose, and what shows that ranks are not training one model on data of their own.

use super::replicas::distance;
use crate::comm::Comm;
use crate::show::{Plot, Screen, Series};
use crate::tensor::Params;
use anyhow::Result;

/// A part of data parallelism that `--break` leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// Every rank starts from weights of its own
    NoBroadcast,
    /// Every rank keeps its own gradients
    NoAverage,
    /// Every rank trains on rank 0's data
    SameBatches,
}

/// What one rank has seen of itself and the others.
#[derive(Default)]
pub struct Symptoms {
    /// Equal on two ranks only if they drew the same samples in every step.
    pub drawn: u64,
    last: Vec<u64>,
    /// (step, distance of the replicas)
    distance: Vec<(f64, f64)>,
    /// (step, different samples in all ranks' last batches)
    distinct: Vec<(f64, f64)>,
}

impl Symptoms {
    /// Notes a batch that this rank trains on: a number for each of its samples, equal only for equal ones.
    pub fn draw(&mut self, samples: impl IntoIterator<Item = u64>) {
        self.last = samples.into_iter().collect();
        self.drawn = self.last.iter().fold(self.drawn, |hash, sample| hash.wrapping_mul(0x100_0000_01B3) ^ sample);
    }

    /// Compares the ranks after `step` steps. All ranks must call it: it costs a broadcast of the model, so only runs that
    /// are broken on purpose do.
    pub fn look(&mut self, comm: &Comm, params: &Params, step: usize) -> Result<()> {
        self.distance.push((step as f64, distance(comm, params)?));
        if step > 0 {
            let mut all = vec![0; self.last.len() * comm.size()];
            comm.all_gather(&self.last, &mut all)?;
            all.sort_unstable();
            all.dedup();
            self.distinct.push((step as f64, all.len() as f64));
        }
        Ok(())
    }

    /// The picture that exposes what was left out, of samples called `what`, of which all ranks together asked for `asked`
    /// in a step.
    pub fn plot(&self, screen: &Screen, broken: Break, what: &str, asked: usize) -> String {
        match broken {
            Break::SameBatches => self.plot_distinct(screen, what, asked),
            Break::NoBroadcast | Break::NoAverage => self.plot_distance(screen),
        }
    }

    /// How far the replicas are from each other, by step.
    fn plot_distance(&self, screen: &Screen) -> String {
        let title = "distance of the replicas, relative to their weights";
        let plot = Plot::new(title, "step").series(Series::line("largest", self.distance.iter().copied()));
        plot.height(8).render(screen) + "\n"
    }

    /// How many different samples (`what` they are called) the ranks drew of those that were asked for, by step.
    fn plot_distinct(&self, screen: &Screen, what: &str, asked: usize) -> String {
        let asked = self.distinct.iter().map(|&(step, _)| (step, asked as f64));
        let title = format!("different {what} in a step");
        let plot = Plot::new(&title, "step").series(Series::line("asked for", asked));
        let plot = plot.series(Series::dots("drawn", self.distinct.iter().copied()));
        plot.height(8).render(screen) + "\n"
    }
}
