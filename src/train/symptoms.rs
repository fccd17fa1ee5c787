//! What a lab can leave out on purpose, and what shows that ranks are not training one model on data of their own.

use super::replicas::distance;
use crate::comm::Comm;
use crate::parallel::Ddp;
use crate::show::{Plot, Screen, Series};
use crate::tensor::Params;
use anyhow::Result;
use std::sync::Arc;

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

/// Leaves `broken` out, if anything is: takes away what [`Ddp::new`] has just done. Returns what is left of `ddp`, and the
/// number of the rank whose data this rank draws.
pub fn leave_out(
    broken: Option<Break>,
    comm: &Comm,
    ddp: Ddp,
    params: &Arc<Params>,
    own_seed: u64,
) -> Result<(Ddp, usize)> {
    match broken {
        None => Ok((ddp, comm.rank())),
        Some(Break::NoBroadcast) => {
            if comm.rank() > 0 {
                params.allocate(own_seed);
            }
            Ok((ddp, comm.rank()))
        }
        Some(Break::NoAverage) => {
            drop(ddp);
            // In a group of one rank, its own gradients are the average.
            Ok((Ddp::new(params, &Comm::alone())?, comm.rank()))
        }
        Some(Break::SameBatches) => Ok((ddp, 0)),
    }
}

/// What one rank has seen of itself and the others.
#[derive(Default)]
pub struct Symptoms {
    broken: Option<Break>,
    /// Equal on two ranks only if they drew the same samples in every step.
    drawn: u64,
    last: Vec<u64>,
    /// (step, distance of the replicas)
    distance: Vec<(f64, f64)>,
    /// (step, different samples in all ranks' last batches)
    distinct: Vec<(f64, f64)>,
}

impl Symptoms {
    /// Of a run from which `broken` is left out.
    pub fn of(broken: Option<Break>) -> Symptoms {
        Symptoms { broken, ..Symptoms::default() }
    }

    /// Notes a batch that this rank trains on: a number for each of its samples, equal only for equal ones.
    pub fn draw(&mut self, samples: impl IntoIterator<Item = u64>) {
        self.last = samples.into_iter().collect();
        self.drawn = self.last.iter().fold(self.drawn, |hash, sample| hash.wrapping_mul(0x100_0000_01B3) ^ sample);
    }

    /// Compares the ranks after `step` steps, if the run is broken on purpose: it costs a broadcast of the model. All ranks
    /// must call it.
    pub fn look(&mut self, comm: &Comm, params: &Params, step: usize) -> Result<()> {
        if self.broken.is_none() {
            return Ok(());
        }
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

    /// Plots the symptom of what was left out, if anything was. `what` names the samples; `asked` is how many of them all
    /// ranks together request per step.
    pub fn show(&self, screen: &Screen, what: &str, asked: usize) {
        match self.broken {
            None => (),
            Some(Break::SameBatches) => screen.say(self.plot_distinct(screen, what, asked)),
            Some(Break::NoBroadcast | Break::NoAverage) => screen.say(self.plot_distance(screen)),
        }
    }

    /// What [`Symptoms::draw`] has seen, on every rank in rank order.
    pub fn drawn_by_all(&self, comm: &Comm) -> Result<Vec<u64>> {
        let mut all = vec![0; comm.size()];
        comm.all_gather(&[self.drawn], &mut all)?;
        Ok(all)
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
