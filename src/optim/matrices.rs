//! Muon's part of a rank's state: the momentum of whole matrices.
//!
//! A matrix belongs to one rank of a data group with all of its elements, because a step needs all
//! of them. Tensor ranks have slices of it. They put together what a step goes along, each makes it
//! orthogonal, and takes its own slice of the result.

use super::adamw::State;
use super::fragment::{Fragment, InitialValues, initial_store};
use super::muon::{MuonConfig, orthogonal};
use super::store::{Offload, StateStore, StoredBytes, Windowed};
use crate::tensor::stored::narrow;
use crate::tensor::{Precision, Spec, Stored};
use anyhow::Result;
use std::ops::Range;

/// Puts a matrix together from this rank's elements of it and the other tensor ranks'.
pub type Gathered<'a> = dyn Fn(&Spec, Vec<f32>) -> Result<Vec<f32>> + 'a;

/// Muon on the hidden matrices of a rank ([`Spec::is_hidden_matrix`]).
pub struct Muon {
    config: MuonConfig,
    shard: Vec<Fragment>,
    momentum: StateStore<f32>,
    /// The values before rounding, if stored values are rounded.
    master: Option<StateStore<f32>>,
    steps: u64,
}

impl Muon {
    /// An optimizer of whole matrices, which are stored as `T`. `begin` writes their initial
    /// values.
    ///
    /// # Errors
    /// If a file for offloaded state cannot be made or written.
    pub fn sharded<T: Stored>(
        config: MuonConfig,
        shard: Vec<Fragment>,
        begin: InitialValues,
        offload: Option<&Offload>,
    ) -> Result<Muon> {
        let momentum = StateStore::zeros(Fragment::numel(&shard), offload)?;
        let master = match T::PRECISION {
            Precision::F32 => None,
            Precision::Bf16 => Some(initial_store(&shard, begin, offload)?),
        };
        Ok(Muon { config, shard, momentum, master, steps: 0 })
    }

    /// Takes one step of the shard, with the gradients times `scale`. `values` and `gradients` are
    /// the shard's.
    ///
    /// # Errors
    /// If `gathered` fails, or state in files cannot be read or written.
    pub fn update<T: Stored, G: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        gradients: &[G],
        lr: f64,
        scale: f32,
        gathered: &Gathered,
    ) -> Result<()> {
        self.steps += 1;
        let config = self.config;
        self.each(values, |fragment, values, momentum| {
            let gradients = &gradients[fragment.range()];
            let mut towards = vec![0.0; gradients.len()];
            let mut at = 0;
            G::read(gradients, |chunk| {
                let here = at..at + chunk.len();
                at = here.end;
                config.aim(&mut towards[here.clone()], &mut momentum[here], chunk, scale);
            });
            let spec = &fragment.spec;
            let (step, shape) = config.whole_step(spec, &gathered(spec, towards)?);
            let mut mine = vec![0.0; values.len()];
            spec.runs(0..mine.len(), |run, at| {
                mine[run.clone()].copy_from_slice(&step[at..at + run.len()]);
            });
            config.walk(values, &mine, shape, lr);
            Ok(())
        })
    }

    /// Calls `each` with the state of every matrix of the shard, which `each` may change. There is
    /// no second moment.
    ///
    /// # Errors
    /// If state in files cannot be read or written. Without files: never.
    pub fn visit<T: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        mut each: impl FnMut(&Fragment, Range<usize>, State),
    ) -> Result<()> {
        self.each(values, |fragment, values, exp_avg| {
            let elements = fragment.elements.clone();
            each(fragment, elements, State { values, exp_avg, exp_avg_sq: &mut [] });
            Ok(())
        })
    }

    /// Calls `each` with every matrix, its values in f32 and its momentum. One matrix at a time is
    /// in memory, if the state is in files.
    fn each<T: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        mut each: impl FnMut(&Fragment, &mut [f32], &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        for fragment in &self.shard {
            let mut momentum = self.momentum.window(fragment.range())?;
            let mut stored = values.window(fragment.range())?;
            match &mut self.master {
                None => {
                    let mut result = Ok(());
                    T::change(&mut stored, |values| result = each(fragment, values, &mut momentum));
                    result?;
                }
                Some(master) => {
                    let mut master = master.window(fragment.range())?;
                    each(fragment, &mut master, &mut momentum)?;
                    narrow(&master, &mut stored);
                }
            }
        }
        Ok(())
    }

    /// The fragments that the state belongs to: each a whole matrix, or a tensor rank's slice.
    pub fn fragments(&self) -> &[Fragment] {
        &self.shard
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Continues after `steps` steps.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Bytes of the state.
    pub fn bytes(&self) -> StoredBytes {
        let all = [Some(&self.momentum), self.master.as_ref()];
        all.into_iter().flatten().map(StateStore::bytes).sum()
    }
}

impl MuonConfig {
    /// What a matrix moves along, made orthogonal, and the shape by which its rate is scaled.
    fn whole_step(&self, spec: &Spec, towards: &[f32]) -> (Vec<f32>, [usize; 2]) {
        let [rows, cols] = spec.whole.shape[..] else {
            unreachable!("a hidden matrix has two dimensions")
        };
        let stacked = self.split_qkv && spec.whole.name.ends_with("qkv.weight") && rows == 3 * cols;
        let shape = [if stacked { cols } else { rows }, cols];
        let parts = towards.chunks(shape[0] * shape[1]);
        let step = parts.flat_map(|part| orthogonal(part, shape, self.newton_schulz)).collect();
        (step, shape)
    }
}
