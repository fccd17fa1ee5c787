//! What parameters begin with, for a rank that will hold a share of them.

use super::store::{Offload, Store, Windowed};
use crate::tensor::{Params, Spec, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

/// Where the values come from.
pub(super) enum Begin {
    /// Functions of (seed, name, element): each rank makes what it will hold, and nobody the whole model.
    Seed(u64),
    /// Values that are there, in the flat layout: a checkpoint's.
    Values(Vec<f32>),
}

/// A stretch of a rank's share: some elements of a parameter, and padding up to `len`.
pub(super) struct Stretch {
    pub spec: Arc<Spec>,
    pub elements: Range<usize>,
    pub len: usize,
}

impl Begin {
    fn write(&self, spec: &Spec, elements: Range<usize>, out: &mut [f32]) {
        match self {
            Begin::Seed(seed) => spec.begin(*seed, elements, out),
            Begin::Values(values) => out.copy_from_slice(&values[spec.range()][elements]),
        }
    }

    /// A share that consists of these stretches.
    pub fn share<T: Stored>(&self, stretches: &[Stretch], offload: Option<&Offload>) -> Result<Store<T>> {
        let numel = stretches.iter().map(|stretch| stretch.len).sum();
        let mut share = Store::<T>::zeros(numel, offload)?;
        for window in share.windows() {
            let (mut numbers, mut start) = (share.window(window.clone())?, 0);
            for Stretch { spec, elements, len } in stretches {
                let common = start.max(window.start)..(start + elements.len()).min(window.end);
                if !common.is_empty() {
                    let first = elements.start + common.start - start;
                    T::change(&mut numbers[common.start - window.start..common.end - window.start], |out| {
                        self.write(spec, first..first + out.len(), out);
                    });
                }
                start += len;
            }
        }
        Ok(share)
    }

    /// All parameters, in the flat layout.
    pub fn all<T: Stored>(self, params: &Params) -> Vec<T> {
        if let Begin::Values(values) = self {
            return T::rounded(values);
        }
        let mut all = vec![T::zeroed(); params.numel()];
        for spec in params.specs() {
            T::change(&mut all[spec.range()], |out| self.write(&spec, 0..spec.numel(), out));
        }
        all
    }
}
