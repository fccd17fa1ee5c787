//! What stage 1 divides: a share's optimizer state, in memory or in a file.

use super::offload::{Offload, StateFile};
use crate::optim::{AdamW, AdamWConfig, Piece};
use crate::tensor::stored::{Precision, Stored, narrow};
use anyhow::Result;

/// AdamW for a share of the parameters, with the f32 master where they are stored in fewer bits.
pub(super) enum Optimizer {
    Memory {
        adamw: AdamW,
        /// Empty where the values are the master.
        master: Vec<f32>,
    },
    File(StateFile),
}

impl Optimizer {
    /// `share` is what the parameters begin with, not rounded.
    pub fn new<T: Stored>(
        config: AdamWConfig,
        pieces: Vec<Piece>,
        share: &[f32],
        offload: Option<&Offload>,
    ) -> Result<Optimizer> {
        if let Some(offload) = offload {
            return Ok(Optimizer::File(StateFile::new::<T>(config, pieces, share, offload)?));
        }
        let master = if T::PRECISION == Precision::F32 { Vec::new() } else { share.to_vec() };
        Ok(Optimizer::Memory { adamw: AdamW::for_pieces(config, pieces), master })
    }

    /// One step of the share's values.
    pub fn update<T: Stored>(&mut self, values: &mut [T], gradients: &[T], lr: f64, scale: f32) -> Result<()> {
        match self {
            Optimizer::Memory { adamw, master } => {
                if T::PRECISION == Precision::F32 {
                    T::change(values, |values| adamw.update(values, gradients, lr, scale));
                } else {
                    adamw.update(master, gradients, lr, scale);
                    narrow(master, values);
                }
                Ok(())
            }
            Optimizer::File(file) => file.update(values, gradients, lr, scale),
        }
    }

    /// Bytes in memory: of a file, the window's.
    pub fn bytes(&self) -> usize {
        match self {
            Optimizer::Memory { adamw, master } => adamw.bytes() + size_of::<f32>() * master.capacity(),
            Optimizer::File(_) => 0,
        }
    }

    /// Bytes in a file.
    pub fn file_bytes(&self) -> usize {
        match self {
            Optimizer::Memory { .. } => 0,
            Optimizer::File(file) => file.bytes(),
        }
    }
}
