//! Deliberate mistakes in data parallelism, and the symptoms that expose them.

use super::parity::stored_values;
use crate::show::{Plot, Screen, Series};
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Sampler};
use shardlab::tensor::Params;
use shardlab::train::{MicroBatch, Observer};

/// A piece of data parallelism that `--break` leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// Every rank starts from its own weights
    NoBroadcast,
    /// Every rank keeps its own gradients
    NoAverage,
    /// Every rank trains on rank 0's data
    SameBatches,
}

/// Symptoms show in the batches that a training draws.
impl Observer for Symptoms {
    fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
        let sampler = self.instead.unwrap_or(micro_batch.sampler);
        let batch = MicroBatch { sampler, ..micro_batch }.draw();
        // Sequences that begin at one place are the same.
        self.draw(batch.starts.iter().map(|&start| start as u64));
        batch
    }
}

/// One rank's observations of the ranks' data and models.
#[derive(Default)]
pub struct Symptoms {
    pub broken: Option<Break>,
    /// Draws other batches than the training, if a mistake does.
    pub instead: Option<Sampler>,
    /// A hash of all samples so far. Two ranks have the same hash only if they drew the same
    /// samples in every step.
    drawn: u64,
    /// The last batch, with a number for each sample.
    last: Vec<u64>,
    /// (step, distance of the replicas)
    distance: Vec<(f64, f64)>,
    /// (step, different samples in all ranks' last batches)
    distinct: Vec<(f64, f64)>,
}

impl Symptoms {
    /// Observes a run that leaves `broken` out.
    pub fn of(broken: Option<Break>) -> Symptoms {
        Symptoms { broken, ..Symptoms::default() }
    }

    /// Records a batch that this rank trains on, with a number for each sample. Equal numbers mean
    /// equal samples.
    pub fn draw(&mut self, samples: impl IntoIterator<Item = u64>) {
        self.last = samples.into_iter().collect();
        self.drawn = self
            .last
            .iter()
            .fold(self.drawn, |hash, sample| hash.wrapping_mul(0x100_0000_01B3) ^ sample);
    }

    /// Compares the ranks after `step` steps if the run is broken on purpose. This costs a
    /// broadcast of the model. All ranks call it.
    pub fn look(&mut self, comm: &Comm, params: &Params, step: usize) -> Result<()> {
        if self.broken.is_none() {
            return Ok(());
        }
        self.distance.push((step as f64, distance(comm, &stored_values(params))?));
        if step > 0 {
            let mut all = comm.gathered(&self.last)?;
            all.sort_unstable();
            all.dedup();
            self.distinct.push((step as f64, all.len() as f64));
        }
        Ok(())
    }

    /// Plots the symptom of what was left out, if anything was. `what` names the samples; `asked`
    /// is how many of them all ranks together request per step.
    pub fn show(&self, screen: &Screen, what: &str, asked: usize) {
        match self.broken {
            None => (),
            Some(Break::SameBatches) => screen.say(self.plot_distinct(screen, what, asked)),
            Some(Break::NoBroadcast | Break::NoAverage) => screen.say(self.plot_distance(screen)),
        }
    }

    /// All ranks' hashes of their samples, in rank order.
    pub fn drawn_by_all(&self, comm: &Comm) -> Result<Vec<u64>> {
        Ok(comm.gathered(&[self.drawn])?)
    }

    /// Plots the distance between the replicas, by step.
    fn plot_distance(&self, screen: &Screen) -> String {
        let title = "distance of the replicas, relative to their weights";
        let plot =
            Plot::new(title, "step").series(Series::line("largest", self.distance.iter().copied()));
        plot.height(8).render(screen) + "\n"
    }

    /// Plots the number of different samples that the ranks drew, and the number that they asked
    /// for, by step. `what` names the samples.
    fn plot_distinct(&self, screen: &Screen, what: &str, asked: usize) -> String {
        let asked = self.distinct.iter().map(|&(step, _)| (step, asked as f64));
        let title = format!("different {what} in a step");
        let plot = Plot::new(&title, "step").series(Series::line("asked for", asked));
        let plot = plot.series(Series::dots("drawn", self.distinct.iter().copied()));
        plot.height(8).render(screen) + "\n"
    }
}

/// The largest distance of a rank's parameters, `mine`, from rank 0's, relative to their norm. It
/// is 0 if all ranks hold the same parameters.
fn distance(comm: &Comm, mine: &[f32]) -> Result<f64> {
    let mut first = mine.to_vec();
    comm.broadcast(&mut first, 0)?;
    let square = |x: f32| f64::from(x) * f64::from(x);
    let apart: f64 = mine.iter().zip(&first).map(|(a, b)| square(a - b)).sum();
    let size: f64 = first.iter().map(|&x| square(x)).sum();
    Ok(comm.reduced((apart / size).sqrt(), Reduce::Max)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;

    #[test]
    fn replicas_that_differ_are_apart() {
        let apart = |weights: [[f32; 2]; 3]| {
            launch::run(3, |comm| distance(&comm, &weights[comm.rank()])).unwrap()
        };
        assert_eq!(apart([[3.0, 4.0]; 3]), [0.0; 3]);
        assert_eq!(apart([[3.0, 4.0], [3.0, 5.0], [6.0, 0.0]]), [1.0; 3]);
    }
}
