//! What stage 1 divides: a share's optimizer state, in memory or in files.

use super::begin::{Begin, Stretch};
use super::store::{Offload, Store, Windowed};
use crate::optim::{AdamWConfig, Moments, Piece, Rule, update_pieces};
use crate::tensor::stored::{Precision, Stored, narrow};
use anyhow::Result;

/// AdamW for a share of the parameters, with the f32 master where they are stored in fewer bits.
pub(super) struct Optimizer {
    config: AdamWConfig,
    pieces: Vec<Piece>,
    /// First and second moment.
    m: Store<f32>,
    v: Store<f32>,
    /// The values before they are rounded, if they are.
    master: Option<Store<f32>>,
    steps: i32,
}

impl Optimizer {
    /// For parameters stored as `T`, of which this rank updates these stretches.
    pub fn new<T: Stored>(
        config: AdamWConfig,
        stretches: &[Stretch],
        begin: &Begin,
        offload: Option<&Offload>,
    ) -> Result<Optimizer> {
        let piece = |stretch: &Stretch| Piece { len: stretch.len, decays: stretch.spec.decays() };
        let pieces: Vec<Piece> = stretches.iter().map(piece).collect();
        let numel = pieces.iter().map(|piece| piece.len).sum();
        let zeros = || Store::zeros(numel, offload);
        let master = match T::PRECISION {
            Precision::F32 => None,
            Precision::Bf16 => Some(begin.share(stretches, offload)?),
        };
        Ok(Optimizer { config, pieces, m: zeros()?, v: zeros()?, master, steps: 0 })
    }

    /// One step of the share's values, window by window.
    pub fn update<T: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        gradients: &[T],
        lr: f64,
        scale: f32,
    ) -> Result<()> {
        self.steps += 1;
        let rule = Rule::new(&self.config, self.steps, lr, scale);
        for window in self.m.windows() {
            let (mut m, mut v) = (self.m.window(window.clone())?, self.v.window(window.clone())?);
            let mut values = values.window(window.clone())?;
            let (pieces, gradients) = (&self.pieces, &gradients[window.clone()]);
            let mut update = |values: &mut [f32]| {
                let moments = Moments { m: &mut m, v: &mut v };
                update_pieces(&rule, pieces, window.start, values, gradients, moments);
            };
            match &mut self.master {
                None => T::change(&mut values, update),
                Some(master) => {
                    let mut master = master.window(window.clone())?;
                    update(&mut master);
                    narrow(&master, &mut values);
                }
            }
        }
        Ok(())
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.m.bytes() + self.v.bytes() + self.master.as_ref().map_or(0, Store::bytes)
    }

    /// Bytes in files.
    pub fn file_bytes(&self) -> usize {
        self.m.file_bytes() + self.v.file_bytes() + self.master.as_ref().map_or(0, Store::file_bytes)
    }
}
