//! Stages 1 and 2: every rank holds all parameters, and updates a share of them.
//!
//! All parameters, end to end, are cut into equal parts ([`partition::Flat`]). A rank has the optimizer's state of its part
//! alone, gets the averaged gradients of that part, updates it, and then all parts are gathered: the other half of the
//! all-reduce, carrying parameters where DDP's carries gradients. So it costs the network nothing to divide the optimizer.

use super::optimizer::Optimizer;
use super::reduce::Reducer;
use super::{Averaged, Engine, Held, Offload, Stage, Volumes, ZeroConfig};
use crate::comm::Comm;
use crate::optim::{Piece, clip_scale, sharded_norm, stored_norm};
use crate::parallel::partition;
use crate::tensor::stored::{Precision, Stored, widen};
use crate::tensor::{Params, Spec};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

/// Stages 1 and 2; also stage 0 with parameters stored in bf16, or with the optimizer's state in a file.
pub(super) struct Flat<T: Stored> {
    params: Arc<Params>,
    comm: Comm,
    stage: Stage,
    local_norm: bool,
    part: partition::Flat,
    reducer: Arc<Reducer<T>>,
    optimizer: Optimizer,
}

impl<T: Stored> Flat<T> {
    pub fn new(params: &Arc<Params>, comm: &Comm, config: &ZeroConfig, offload: Option<&Offload>) -> Result<Flat<T>> {
        let part = partition::Flat { numel: params.numel(), ranks: comm.size() };
        let values = std::mem::take(&mut *params.values_mut());
        *params.gradients() = Vec::new();
        let reducer = Reducer::<T>::new(params, comm, part, config);
        let share = reducer.share();
        let pieces = pieces(&params.specs(), &share);
        let optimizer = Optimizer::new::<T>(config.adamw, pieces, &values[share], offload)?;
        let mut values = T::rounded(values);
        // Room for the padding, which the gather of equal parts brings.
        values.reserve_exact(part.padded() - part.numel);
        *params.stored_values::<T>() = values;
        if config.stage < Stage::Two {
            *params.stored_gradients::<T>() = vec![T::zeroed(); part.numel];
        }
        let (stage, local_norm) = (config.stage, config.local_norm);
        Ok(Flat { params: params.clone(), comm: comm.clone(), stage, local_norm, part, reducer, optimizer })
    }

    // ANCHOR: gather
    /// Every rank gets all ranks' updated shares.
    fn gather_values(&self) -> Result<()> {
        let mut values = self.params.stored_values::<T>();
        let mut all = std::mem::take(&mut *values);
        all.resize(self.part.padded(), T::zeroed());
        all = self.comm.start_all_gather(all)?.wait()?;
        all.truncate(self.part.numel);
        *values = all;
        Ok(())
    }
    // ANCHOR_END: gather
}

/// The parts of parameters that lie in a share.
fn pieces(specs: &[Arc<Spec>], share: &Range<usize>) -> Vec<Piece> {
    let common = |spec: &Arc<Spec>| {
        let range = spec.range();
        let len = range.end.min(share.end).saturating_sub(range.start.max(share.start));
        Piece { len, decays: spec.decays() }
    };
    specs.iter().map(common).filter(|piece| piece.len > 0).collect()
}

impl<T: Stored> Engine for Flat<T> {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        self.reducer.begin();
        Ok(())
    }

    fn synchronise(&self, last_micro_step: bool) {
        self.reducer.synchronise(last_micro_step);
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        self.reducer.finish(&self.params)
    }

    fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        let Flat { params, comm, part, reducer, optimizer, .. } = self;
        let share = reducer.share();
        let norm = reducer.read(params, |gradients| match self.stage {
            Stage::Zero => Ok(stored_norm(gradients)),
            _ if self.local_norm => Ok(stored_norm(gradients)),
            _ => sharded_norm(comm, gradients, part.numel),
        })?;
        let scale = clip_scale(norm, clip);
        reducer.read(params, |gradients| {
            let mut values = params.stored_values::<T>();
            optimizer.update(&mut values[share], gradients, lr, scale)
        })?;
        if self.stage > Stage::Zero {
            self.gather_values()?;
        }
        Ok(norm)
    }

    fn gather_all(&mut self) -> Result<()> {
        if T::PRECISION != Precision::F32 {
            let mut whole = vec![0.0; self.part.numel];
            widen(&self.params.stored_values::<T>(), &mut whole);
            *self.params.values_mut() = whole;
        }
        Ok(())
    }

    fn drop_all(&mut self) {
        if T::PRECISION != Precision::F32 {
            *self.params.values_mut() = Vec::new();
        }
    }

    fn volumes(&self) -> Volumes {
        let gathered = if self.stage == Stage::Zero { 0 } else { self.part.numel };
        Volumes { gathered, reduced: self.part.numel * self.reducer.passes(), bytes_each: size_of::<T>() }
    }

    fn held(&self) -> Held {
        let (buffers, peak_buffers) = self.reducer.bucket_bytes();
        let whole = self.params.values().capacity() * size_of::<f32>();
        let parameters = size_of::<T>() * self.params.stored_values::<T>().capacity();
        Held {
            parameters,
            gradients: size_of::<T>() * self.params.stored_gradients::<T>().capacity() + self.reducer.share_bytes(),
            optimizer: self.optimizer.bytes(),
            optimizer_file: self.optimizer.file_bytes(),
            buffers: buffers + if T::PRECISION == Precision::F32 { 0 } else { whole },
            peak_buffers,
        }
    }
}

impl<T: Stored> Drop for Flat<T> {
    fn drop(&mut self) {
        if T::PRECISION != Precision::F32 {
            *self.params.stored_values::<T>() = Vec::new();
            *self.params.stored_gradients::<T>() = Vec::new();
        }
        self.params.set_hook(None);
        self.params.set_elsewhere(None);
    }
}
