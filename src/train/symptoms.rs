//! What shows that ranks are not training one model on data of their own.

use super::replicas::distance;
use crate::comm::Comm;
use crate::data::Batch;
use crate::show::{Plot, Screen, Series};
use crate::tensor::Params;
use anyhow::Result;

/// What one rank has seen of itself and the others.
#[derive(Default)]
pub struct Symptoms {
    /// Equal on two ranks only if they drew the same sequences in every step.
    pub drawn: u64,
    last: Vec<u64>,
    /// (step, distance of the replicas)
    distance: Vec<(f64, f64)>,
    /// (step, different sequences in all ranks' last batches)
    distinct: Vec<(f64, f64)>,
}

impl Symptoms {
    /// Notes a batch that this rank trains on.
    pub fn draw(&mut self, batch: &Batch) {
        self.last = batch.starts.iter().map(|&start| start as u64).collect();
        self.drawn = self.last.iter().fold(self.drawn, |hash, start| hash.wrapping_mul(0x100_0000_01B3) ^ start);
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

    /// How far the replicas are from each other, by step.
    pub fn plot_distance(&self, screen: &Screen) -> String {
        let title = "distance of the replicas, relative to their weights";
        let plot = Plot::new(title, "step").series(Series::line("largest", self.distance.iter().copied()));
        plot.height(8).render(screen) + "\n"
    }

    /// How many different sequences the ranks drew of those that were asked for, by step.
    pub fn plot_sequences(&self, screen: &Screen, asked: usize) -> String {
        let asked = self.distinct.iter().map(|&(step, _)| (step, asked as f64));
        let plot = Plot::new("different sequences in a step", "step").series(Series::line("asked for", asked));
        let plot = plot.series(Series::dots("drawn", self.distinct.iter().copied()));
        plot.height(8).render(screen) + "\n"
    }
}
