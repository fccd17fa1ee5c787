//! Either optimizer of a rank's shard: Muon has hidden matrices, AdamW all else.

use super::adamw::{AdamW, State};
use super::fragment::Fragment;
use super::matrices::{Gathered, Muon};
use super::store::{StoredBytes, Windowed};
use crate::tensor::Stored;
use anyhow::Result;
use std::ops::Range;

/// An optimizer with its shard.
pub enum Optimizer {
    AdamW(AdamW),
    Muon(Muon),
}

impl Optimizer {
    /// Takes one step of the shard. `values` and `gradients` are the shard's.
    ///
    /// # Errors
    /// Those of [`AdamW::update`] and [`Muon::update`].
    pub fn update<T: Stored, G: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        gradients: &[G],
        lr: f64,
        scale: f32,
        gathered: &Gathered,
    ) -> Result<()> {
        match self {
            Optimizer::AdamW(adamw) => adamw.update(values, gradients, lr, scale),
            Optimizer::Muon(muon) => muon.update(values, gradients, lr, scale, gathered),
        }
    }

    /// Calls `each` with the state of every fragment, as [`AdamW::visit`] does.
    ///
    /// # Errors
    /// If state in files cannot be read or written. Without files: never.
    pub fn visit<T: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        each: impl FnMut(&Fragment, Range<usize>, State),
    ) -> Result<()> {
        match self {
            Optimizer::AdamW(adamw) => adamw.visit(values, each),
            Optimizer::Muon(muon) => muon.visit(values, each),
        }
    }

    /// The fragments that the state belongs to.
    pub fn fragments(&self) -> &[Fragment] {
        match self {
            Optimizer::AdamW(adamw) => adamw.fragments(),
            Optimizer::Muon(muon) => muon.fragments(),
        }
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        match self {
            Optimizer::AdamW(adamw) => adamw.steps(),
            Optimizer::Muon(muon) => muon.steps(),
        }
    }

    /// Continues after `steps` steps.
    pub fn set_steps(&mut self, steps: u64) {
        match self {
            Optimizer::AdamW(adamw) => adamw.set_steps(steps),
            Optimizer::Muon(muon) => muon.set_steps(steps),
        }
    }

    /// Bytes of the state.
    pub fn bytes(&self) -> StoredBytes {
        match self {
            Optimizer::AdamW(adamw) => adamw.bytes(),
            Optimizer::Muon(muon) => muon.bytes(),
        }
    }
}
