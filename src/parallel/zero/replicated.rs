//! Stages 0 to 2: every rank holds all parameters. In stage 0 it updates them all; in stages 1 and 2 a share of them.
//!
//! Each parameter group, laid end to end, is cut into equal parts ([`FlatGroup`]). A rank has the optimizer's state of its
//! parts alone, gets the averaged gradients of those parts, updates them, and then all parts are gathered: the other half of
//! the all-reduce, carrying parameters where DDP's carries gradients. So it costs the network nothing to divide the optimizer.

use super::reduce::ToOwners;
use super::{Averaged, Each, Engine, Held, Stage, Visit, Volumes, ZeroConfig};
use crate::comm::Comm;
use crate::optim::{AdamW, Begin, Fragment, stored_norm};
use crate::parallel::partition::FlatGroup;
use crate::parallel::{Ddp, sharded_norm};
use crate::tensor::stored::widen;
use crate::tensor::{Home, Listener, Params, Spec, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Replicated<T: Stored> {
    params: Arc<Params>,
    comm: Comm,
    stage: Stage,
    local_norm: bool,
    groups: Vec<FlatGroup>,
    /// Each group's, for this rank's share of it.
    optimizers: Vec<AdamW>,
    gradients: Gradients<T>,
    peak_buffers: usize,
}

/// How gradients are averaged.
enum Gradients<T: Stored> {
    /// All of them on every rank.
    Everywhere(Ddp<T>),
    /// Each rank's share on that rank.
    OnOwners(Arc<ToOwners<T>>, #[allow(dead_code, reason = "listens until it is dropped")] Listener),
}

impl<T: Stored> Replicated<T> {
    pub fn new(params: &Arc<Params>, comm: &Comm, config: &ZeroConfig, begin: Begin) -> Result<Replicated<T>> {
        let groups = FlatGroup::all(params, comm.size());
        let mut values = vec![T::zeroed(); params.numel()];
        for spec in params.specs() {
            T::change(&mut values[spec.range()], |out| begin(spec, 0..spec.numel(), out));
        }
        if config.stage > Stage::Zero {
            // Room for the padding, which the gather of equal parts brings.
            values.reserve_exact(groups.iter().map(|group| group.flat.padded() - group.flat.numel).sum());
        }
        params.set_values(Home::Here(T::numbers(values)));
        if config.stage < Stage::Two {
            params.set_gradients(Home::Here(T::numbers(vec![T::zeroed(); params.numel()])));
        }
        let (gradients, share) = match config.stage {
            Stage::Zero => {
                let ddp = Ddp::with_buckets(params, comm, config.reduce_bucket);
                ddp.overlap(config.overlap);
                (Gradients::Everywhere(ddp), groups.iter().map(|group| group.whole()).collect())
            }
            _ => {
                let (reducer, listener) = ToOwners::new(params, comm, &groups, config);
                let share = reducer.share().to_vec();
                (Gradients::OnOwners(reducer, listener), share)
            }
        };
        let optimizer = |share: &Range<usize>| {
            AdamW::of_share::<T>(config.adamw, fragments(params.specs(), share), begin, config.offload.as_ref())
        };
        let optimizers = share.iter().map(optimizer).collect::<Result<_>>()?;
        let (params, comm, stage, local_norm) = (params.clone(), comm.clone(), config.stage, config.local_norm);
        Ok(Replicated { params, comm, stage, local_norm, groups, optimizers, gradients, peak_buffers: 0 })
    }

    /// This rank's part of each group, as offsets in the flat buffers.
    fn share(&self) -> Vec<Range<usize>> {
        match &self.gradients {
            Gradients::Everywhere(_) => self.groups.iter().map(|group| group.whole()).collect(),
            Gradients::OnOwners(reducer, _) => reducer.share().to_vec(),
        }
    }

    /// Calls `read` with this rank's share of the averaged gradients, group by group.
    fn read<R>(&self, read: impl FnOnce(&[&[T]]) -> R) -> R {
        match &self.gradients {
            Gradients::OnOwners(reducer, _) => reducer.read(&self.params, read),
            Gradients::Everywhere(_) => {
                let all = self.params.stored_gradients::<T>();
                read(&self.groups.iter().map(|group| &all[group.whole()]).collect::<Vec<_>>())
            }
        }
    }

    // ANCHOR: gather
    /// Every rank gets all ranks' updated shares, group by group.
    fn gather_values(&self) -> Result<()> {
        let mut left = match self.params.set_values(Home::Nowhere) {
            Home::Here(mut numbers) => T::of_mut(&mut numbers).map(std::mem::take).unwrap_or_default(),
            _ => Vec::new(),
        };
        let mut in_flight = Vec::new();
        // From the last group on: what is left is the groups before it.
        for FlatGroup { start, flat } in self.groups.iter().rev() {
            let mut group = if *start == 0 { std::mem::take(&mut left) } else { left.split_off(*start) };
            group.resize(flat.padded(), T::zeroed());
            in_flight.push((flat.numel, self.comm.start_all_gather(group)?));
        }
        let mut values = Vec::new();
        for (numel, gather) in in_flight.into_iter().rev() {
            let mut group = gather.wait()?;
            group.truncate(numel);
            if values.is_empty() { values = group } else { values.extend_from_slice(&group) }
        }
        self.params.set_values(Home::Here(T::numbers(values)));
        Ok(())
    }
    // ANCHOR_END: gather
}

/// The parts of parameters that lie in a range of the flat buffers.
fn fragments(specs: &[Arc<Spec>], share: &Range<usize>) -> Vec<Fragment> {
    let mut specs = specs.to_vec();
    specs.sort_by_key(|spec| spec.range().start);
    Fragment::end_to_end(specs.into_iter().filter_map(|spec| {
        let range = spec.range();
        let common = range.start.max(share.start)..range.end.min(share.end);
        (!common.is_empty()).then(|| (spec, common.start - range.start..common.end - range.start, 0))
    }))
}

impl<T: Stored> Engine for Replicated<T> {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        match &self.gradients {
            Gradients::Everywhere(ddp) => ddp.begin(),
            Gradients::OnOwners(reducer, _) => reducer.begin(),
        }
        Ok(())
    }

    fn synchronise(&self, last_micro_step: bool) {
        match &self.gradients {
            Gradients::Everywhere(ddp) => ddp.synchronise(last_micro_step),
            Gradients::OnOwners(reducer, _) => reducer.synchronise(last_micro_step),
        }
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        match &self.gradients {
            Gradients::OnOwners(reducer, _) => reducer.finish(&self.params),
            Gradients::Everywhere(ddp) => {
                let averaged = ddp.finish()?;
                self.peak_buffers = self.peak_buffers.max(ddp.bucket_bytes());
                Ok(averaged)
            }
        }
    }

    fn norm(&self) -> Result<f64> {
        let (share, sharded) = (self.share(), self.stage > Stage::Zero && !self.local_norm);
        self.read(|gradients| {
            let parts = share.iter().zip(gradients).zip(&self.optimizers);
            let counted: Vec<&[T]> = parts.flat_map(|((_, part), adamw)| super::counted(adamw.share(), part)).collect();
            match sharded {
                true => sharded_norm(&self.comm, &counted, self.params.numel()),
                false => Ok(stored_norm(&counted)),
            }
        })
    }

    fn update(&mut self, lr: f64, scale: f32) -> Result<()> {
        let (share, mut optimizers) = (self.share(), std::mem::take(&mut self.optimizers));
        let result = self.read(|gradients| {
            let mut values = self.params.stored_values_mut::<T>();
            let mut groups = optimizers.iter_mut().zip(share).zip(gradients);
            groups.try_for_each(|((adamw, share), gradients)| adamw.update(&mut values[share], gradients, lr, scale))
        });
        self.optimizers = optimizers;
        result?;
        self.spread()
    }

    fn visit(&mut self, each: &mut Visit) -> Result<()> {
        let (share, mut values) = (self.share(), self.params.stored_values_mut::<T>());
        let mut groups = self.optimizers.iter_mut().zip(share);
        groups.try_for_each(|(adamw, share)| adamw.visit(&mut values[share], &mut *each))
    }

    fn spread(&mut self) -> Result<()> {
        if self.stage > Stage::Zero { self.gather_values() } else { Ok(()) }
    }

    fn optimizers(&mut self) -> &mut [AdamW] {
        &mut self.optimizers
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        let (values, mut wide) = (self.params.stored_values::<T>(), Vec::new());
        for spec in self.params.specs() {
            wide.resize(spec.numel(), 0.0);
            widen(&values[spec.range()], &mut wide);
            each(spec, &wide);
        }
        Ok(())
    }

    fn volumes(&self) -> Volumes {
        let (numel, bytes_each) = (self.params.numel(), size_of::<T>());
        match &self.gradients {
            Gradients::Everywhere(_) => Volumes { gathered: 0, reduced: numel, bytes_each },
            Gradients::OnOwners(reducer, _) => Volumes { gathered: numel, reduced: reducer.reduced(), bytes_each },
        }
    }

    fn held(&self) -> Held {
        let (kept, buffers, peak_buffers) = match &self.gradients {
            Gradients::Everywhere(ddp) => (0, ddp.bucket_bytes(), self.peak_buffers),
            Gradients::OnOwners(reducer, _) => {
                let (now, peak) = reducer.bucket_bytes();
                (reducer.kept_bytes(), now, peak)
            }
        };
        let (optimizer, optimizer_file) = super::state_bytes(&self.optimizers);
        Held {
            parameters: size_of::<T>() * self.params.stored_values::<T>().capacity(),
            gradients: size_of::<T>() * self.params.stored_gradients::<T>().capacity() + kept,
            optimizer,
            parameters_file: 0,
            optimizer_file,
            buffers,
            peak_buffers,
        }
    }
}
