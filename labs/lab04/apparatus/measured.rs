//! What a short training with one stage held and sent, and the formulas beside it.

use super::job::Job;
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::zero::{MemoryUsage, Stage, Zero};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A short training with one stage.
pub struct Measured {
    pub stage: Stage,
    /// The loss of each step, mean over ranks.
    pub losses: Vec<f64>,
    /// A hash of all parameters.
    pub hash: u64,
    /// The gradient norm by which each rank clipped in the first step.
    pub norms: Vec<f64>,
    /// Bytes that this rank holds after the last step.
    pub held: MemoryUsage,
    /// Bytes that a rank sent in the last step, mean over ranks.
    pub sent: f64,
    /// Bytes that a rank sends per step, by what the step reduced and gathered.
    pub formula: f64,
    /// Elements of the matrices that each rank updates with Muon, in rank order.
    pub owned: Vec<u64>,
    /// Seconds that remained of the fastest step beside its passes, those of the optimizer; 0 if
    /// nobody noted them.
    pub update: f64,
}

impl Measured {
    /// Looks at a training after its last step, which sent `sent` bytes. All ranks call it. `norm`
    /// is the first step's.
    pub fn look(
        comm: &Comm,
        stage: Stage,
        zero: &mut Zero,
        mut losses: Vec<f64>,
        norm: f64,
        sent: u64,
    ) -> Result<Measured> {
        comm.all_reduce(&mut losses, Reduce::Mean)?;
        let sent = comm.reduced(sent as f64, Reduce::Mean)?;
        let norms = comm.gathered(&[norm])?;
        let hash = hash(zero)?;
        let held = zero.memory();
        let formula = zero.bytes_a_step();
        let mut owned = 0;
        zero.fragments(|fragment, elements, state| {
            if state.exp_avg_sq.len() < state.exp_avg.len() && fragment.spec.is_hidden_matrix() {
                owned += elements.len() as u64;
            }
        })?;
        let owned = comm.gathered(&[owned])?;
        Ok(Measured {
            stage,
            losses,
            hash,
            norms,
            held,
            sent,
            formula,
            owned,
            update: 0.0,
        })
    }

    /// Parameters, gradients and optimizer state, in memory or offloaded: measured bytes, and bytes
    /// by the formula.
    pub fn beside_formula(&self, job: &Job) -> [(&'static str, f64, f64); 3] {
        let plan = job.holds(self.stage, self.owned.first().copied().unwrap_or(0));
        let parameters = self.held.parameters + self.held.parameters_offloaded;
        let optimizer = self.held.optimizer + self.held.optimizer_offloaded;
        [
            ("parameters", parameters as f64, plan[0] as f64),
            ("gradients", self.held.gradients as f64, plan[1] as f64),
            ("optimizer", optimizer as f64, plan[2] as f64),
        ]
    }

    /// Bytes of parameters and optimizer state that are not in the rank's own memory.
    pub fn offloaded(&self) -> usize {
        self.held.parameters_offloaded + self.held.optimizer_offloaded
    }

    /// Bytes held, measured and by the formula.
    pub fn holds(&self, job: &Job) -> (f64, f64) {
        self.beside_formula(job)
            .iter()
            .fold((0.0, 0.0), |(measured, predicted), row| (measured + row.1, predicted + row.2))
    }

    /// Bytes in the rank's own memory, with the most of its buffers.
    pub fn in_all(&self, job: &Job) -> f64 {
        self.holds(job).0 - self.offloaded() as f64 + self.held.peak_buffers as f64
    }

    /// Whether all that the rank held and sent is what the formulas say.
    pub fn matches_formula(&self, job: &Job) -> bool {
        let agrees = |&(_, measured, predicted): &(_, f64, f64)| agree(measured, predicted);
        self.beside_formula(job).iter().all(agrees) && agree(self.sent, self.formula)
    }
}

/// Whether a measured value is within 1% of the formula.
pub fn agree(measured: f64, predicted: f64) -> bool {
    (measured - predicted).abs() <= 0.01 * predicted
}

/// A hash of all parameters' names and bits. No rank has to hold the whole model for it. All ranks
/// call it.
pub fn hash(zero: &mut Zero) -> Result<u64> {
    let mut sum = 0u64;
    zero.each(|spec, values| {
        let mut hasher = DefaultHasher::new();
        (&spec.name, bytemuck::cast_slice::<f32, u8>(values)).hash(&mut hasher);
        // Each stage has its own order of parameters.
        sum = sum.wrapping_add(hasher.finish());
    })?;
    Ok(sum)
}
