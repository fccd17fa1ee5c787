//! Stages 0 to 2: every rank holds all parameters. In stage 0 it updates them all; in stages 1 and 2 a share of them.
//!
//! Each parameter group, laid end to end, is cut into equal parts ([`FlatGroup`]). A rank has the optimizer's state of its
//! parts alone, gets the averaged gradients of those parts, updates them, and then all parts are gathered: the other half of
//! the all-reduce, carrying parameters where DDP's carries gradients. So it costs the network nothing to divide the optimizer.

use super::reduce::ToOwners;
use super::{Averaged, Each, Engine, Held, Stage, Visit, Volumes, ZeroConfig};
use crate::comm::Comm;
use crate::optim::{AdamW, Begin, Fragment};
use crate::parallel::partition::FlatGroup;
use crate::parallel::{Ddp, sharded_norm};
use crate::tensor::stored::widen;
use crate::tensor::{Home, Listener, Params, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Replicated<T: Stored> {
    params: Arc<Params>,
    comm: Comm,
    stage: Stage,
    local_norm: bool,
    groups: Vec<FlatGroup>,
    /// This rank's part of each group, as offsets in the flat buffers.
    share: Vec<Range<usize>>,
    /// Each group's, for this rank's share of it.
    optimizers: Vec<AdamW>,
    gradients: Gradients<T>,
    peak_buffers: usize,
    _listener: Option<Listener>,
}

/// How gradients are averaged.
enum Gradients<T: Stored> {
    /// All of them on every rank.
    Everywhere(Ddp<T>),
    /// Each rank's share on that rank.
    OnOwners(Arc<ToOwners<T>>),
}

impl<T: Stored> Gradients<T> {
    /// Calls `work` with the averaged gradients of `share`, group by group.
    fn of_share<R>(&self, params: &Params, share: &[Range<usize>], work: impl FnOnce(Vec<&mut [T]>) -> R) -> R {
        match self {
            // Only the share is kept, end to end.
            Gradients::OnOwners(reducer) if reducer.keeps_share() => {
                let lengths = share.iter().map(|held| (0, held.len()));
                work(pieces(&mut reducer.kept(), lengths))
            }
            _ => {
                let ends = std::iter::once(0).chain(share.iter().map(|held| held.end));
                let lengths = share.iter().zip(ends).map(|(held, before)| (held.start - before, held.len()));
                work(pieces(&mut params.stored_gradients::<T>(), lengths))
            }
        }
    }
}

/// Consecutive pieces of a buffer: for each, the elements to skip before it, and its own.
fn pieces<T>(mut rest: &mut [T], lengths: impl Iterator<Item = (usize, usize)>) -> Vec<&mut [T]> {
    let piece = |(skipped, length)| {
        let (piece, after) = std::mem::take(&mut rest)[skipped..].split_at_mut(length);
        rest = after;
        piece
    };
    lengths.map(piece).collect()
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
        let held = |group: &FlatGroup| match config.stage {
            Stage::Zero => group.whole(),
            _ => group.range(comm.rank()),
        };
        let share: Vec<Range<usize>> = groups.iter().map(held).collect();
        let (gradients, listener) = match config.stage {
            Stage::Zero => {
                let ddp = Ddp::with_buckets(params, comm, config.reduce_bucket);
                ddp.overlap(config.overlap);
                (Gradients::Everywhere(ddp), None)
            }
            _ => {
                let (reducer, listener) = ToOwners::new(params, comm, &groups, &share, config);
                (Gradients::OnOwners(reducer), Some(listener))
            }
        };
        let optimizer = |share: &Range<usize>| {
            let share = Fragment::of_range(params.specs(), share.clone());
            AdamW::of_share::<T>(config.adamw, share, begin, config.offload.as_ref())
        };
        let optimizers = share.iter().map(optimizer).collect::<Result<_>>()?;
        Ok(Replicated {
            params: params.clone(),
            comm: comm.clone(),
            stage: config.stage,
            local_norm: config.local_norm,
            groups,
            share,
            optimizers,
            gradients,
            peak_buffers: 0,
            _listener: listener,
        })
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

impl<T: Stored> Engine for Replicated<T> {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        match &self.gradients {
            Gradients::Everywhere(ddp) => ddp.begin(),
            Gradients::OnOwners(reducer) => reducer.begin(),
        }
        Ok(())
    }

    fn synchronise(&self, last_micro_step: bool) {
        match &self.gradients {
            Gradients::Everywhere(ddp) => ddp.synchronise(last_micro_step),
            Gradients::OnOwners(reducer) => reducer.synchronise(last_micro_step),
        }
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        match &self.gradients {
            Gradients::OnOwners(reducer) => reducer.finish(&self.params),
            Gradients::Everywhere(ddp) => {
                let averaged = ddp.finish()?;
                self.peak_buffers = self.peak_buffers.max(ddp.bucket_bytes());
                Ok(averaged)
            }
        }
    }

    fn add_copies(&mut self, group: &Comm) -> Result<()> {
        self.gradients.of_share(&self.params, &self.share, |gradients| {
            let mut parts = self.optimizers.iter().zip(gradients);
            parts.try_for_each(|(adamw, part)| super::add_copies(group, adamw.share(), part))
        })
    }

    fn norm<'a>(&'a self, mut groups: Vec<&'a Comm>, numel: usize) -> Result<f64> {
        groups.extend((self.stage > Stage::Zero && !self.local_norm).then_some(&self.comm));
        self.gradients.of_share(&self.params, &self.share, |gradients| {
            let parts = self.optimizers.iter().zip(&gradients);
            let counted: Vec<&[T]> = parts.flat_map(|(adamw, part)| super::counted(adamw.share(), part)).collect();
            sharded_norm(&groups, &counted, numel)
        })
    }

    fn update(&mut self, lr: f64, scale: f32) -> Result<()> {
        let Replicated { params, share, optimizers, gradients, .. } = self;
        gradients.of_share(params, share, |gradients| {
            let mut values = params.stored_values_mut::<T>();
            let mut groups = optimizers.iter_mut().zip(&*share).zip(gradients);
            groups.try_for_each(|((adamw, share), part)| adamw.update(&mut values[share.clone()], part, lr, scale))
        })?;
        self.spread()
    }

    fn visit(&mut self, each: &mut Visit) -> Result<()> {
        let mut values = self.params.stored_values_mut::<T>();
        let mut groups = self.optimizers.iter_mut().zip(&self.share);
        groups.try_for_each(|(adamw, share)| adamw.visit(&mut values[share.clone()], &mut *each))
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
            Gradients::OnOwners(reducer) => Volumes { gathered: numel, reduced: reducer.reduced(), bytes_each },
        }
    }

    fn held(&self) -> Held {
        let (kept, buffers, peak_buffers) = match &self.gradients {
            Gradients::Everywhere(ddp) => (0, ddp.bucket_bytes(), self.peak_buffers),
            Gradients::OnOwners(reducer) => {
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
