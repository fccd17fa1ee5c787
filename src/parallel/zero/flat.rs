//! Stages 1 and 2: every rank holds all parameters, and updates a share of them.
//!
//! Each parameter group, laid end to end, is cut into equal parts ([`FlatGroup`]). A rank has the optimizer's state of its
//! parts alone, gets the averaged gradients of those parts, updates them, and then all parts are gathered: the other half of
//! the all-reduce, carrying parameters where DDP's carries gradients. So it costs the network nothing to divide the optimizer.

use super::begin::{Begin, Stretch};
use super::optimizer::Optimizer;
use super::reduce::Reducer;
use super::{Averaged, Each, Engine, Held, Stage, Volumes, ZeroConfig};
use crate::comm::Comm;
use crate::optim::{clip_scale, sharded_norm, stored_norm};
use crate::parallel::partition::FlatGroup;
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
    groups: Vec<FlatGroup>,
    /// Each group's.
    optimizers: Vec<Optimizer>,
    reducer: Arc<Reducer<T>>,
}

impl<T: Stored> Flat<T> {
    pub fn new(params: &Arc<Params>, comm: &Comm, config: &ZeroConfig, begin: Begin) -> Result<Flat<T>> {
        let groups = FlatGroup::all(params, comm.size());
        let reducer = Reducer::<T>::new(params, comm, &groups, config);
        let optimizer = |share: &Range<usize>| {
            Optimizer::new::<T>(config.adamw, &stretches(&params.specs(), share), &begin, config.offload.as_ref())
        };
        let optimizers = reducer.share().iter().map(optimizer).collect::<Result<_>>()?;
        let mut values = begin.all::<T>(params);
        // Room for the padding, which the gather of equal parts brings.
        let padding = groups.iter().map(|group| group.flat.padded() - group.flat.numel).sum();
        values.reserve_exact(padding);
        *params.stored_values::<T>() = values;
        if config.stage < Stage::Two {
            *params.stored_gradients::<T>() = vec![T::zeroed(); params.numel()];
        }
        let (params, comm) = (params.clone(), comm.clone());
        Ok(Flat { params, comm, stage: config.stage, local_norm: config.local_norm, groups, optimizers, reducer })
    }

    // ANCHOR: gather
    /// Every rank gets all ranks' updated shares, group by group.
    fn gather_values(&self) -> Result<()> {
        let mut values = self.params.stored_values::<T>();
        let mut left = std::mem::take(&mut *values);
        let mut under_way = Vec::new();
        // From the last group on: what is left is the groups before it.
        for FlatGroup { start, flat } in self.groups.iter().rev() {
            let mut group = if *start == 0 { std::mem::take(&mut left) } else { left.split_off(*start) };
            group.resize(flat.padded(), T::zeroed());
            under_way.push((flat.numel, self.comm.start_all_gather(group)?));
        }
        for (numel, gather) in under_way.into_iter().rev() {
            let mut group = gather.wait()?;
            group.truncate(numel);
            if values.is_empty() { *values = group } else { values.extend_from_slice(&group) }
        }
        Ok(())
    }
    // ANCHOR_END: gather
}

/// The parts of parameters that lie in a stretch of the flat buffers.
fn stretches(specs: &[Arc<Spec>], share: &Range<usize>) -> Vec<Stretch> {
    let common = |spec: &Arc<Spec>| {
        let range = spec.range();
        let common = range.start.max(share.start)..range.end.min(share.end);
        let elements = common.start.saturating_sub(range.start)..common.end.saturating_sub(range.start);
        (!common.is_empty()).then(|| Stretch { spec: spec.clone(), len: elements.len(), elements })
    };
    let mut stretches: Vec<Stretch> = specs.iter().filter_map(common).collect();
    stretches.sort_by_key(|stretch| stretch.spec.range().start);
    stretches
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
        let Flat { params, comm, reducer, optimizers, .. } = self;
        let norm = reducer.read(params, |gradients| match self.stage {
            Stage::Zero => Ok(stored_norm(gradients)),
            _ if self.local_norm => Ok(stored_norm(gradients)),
            _ => sharded_norm(comm, gradients, params.numel()),
        })?;
        let scale = clip_scale(norm, clip);
        reducer.read(params, |gradients| {
            let mut values = params.stored_values::<T>();
            let mut groups = optimizers.iter_mut().zip(reducer.share()).zip(gradients);
            groups.try_for_each(|((optimizer, share), gradients)| {
                optimizer.update(&mut values[share.clone()], gradients, lr, scale)
            })
        })?;
        if self.stage > Stage::Zero {
            self.gather_values()?;
        }
        Ok(norm)
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        let (values, mut wide) = (self.params.stored_values::<T>(), Vec::new());
        for spec in self.params.specs() {
            wide.resize(spec.numel(), 0.0);
            widen(&values[spec.range()], &mut wide);
            each(&spec, &wide);
        }
        Ok(())
    }

    fn volumes(&self) -> Volumes {
        let gathered = if self.stage == Stage::Zero { 0 } else { self.params.numel() };
        Volumes { gathered, reduced: self.params.numel() * self.reducer.passes(), bytes_each: size_of::<T>() }
    }

    fn held(&self) -> Held {
        let (buffers, peak_buffers) = self.reducer.bucket_bytes();
        let whole = self.params.values().capacity() * size_of::<f32>();
        let sum = |bytes: fn(&Optimizer) -> usize| self.optimizers.iter().map(bytes).sum();
        Held {
            parameters: size_of::<T>() * self.params.stored_values::<T>().capacity(),
            gradients: size_of::<T>() * self.params.stored_gradients::<T>().capacity() + self.reducer.share_bytes(),
            optimizer: sum(Optimizer::bytes),
            parameters_file: 0,
            optimizer_file: sum(Optimizer::file_bytes),
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
