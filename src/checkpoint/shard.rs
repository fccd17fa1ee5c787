//! One rank's part of a checkpoint: the optimizer's state of its fragments, with the weights, as
//! one safetensors file.
//!
//! Each fragment has three tensors: `values.NAME`, `exp_avg.NAME` and `exp_avg_sq.NAME`. Values are
//! the f32 master copy if weights are stored in bf16. Of a matrix that Muon updates, `exp_avg` is
//! the momentum, and `exp_avg_sq` is empty. The header lists which elements of which parameter each
//! fragment has, and where they are in the whole model. So the state can be put together for a
//! different number of ranks.

use super::numel;
use crate::parallel::Zero;
use crate::tensor::{Cut, Init, Spec, Whole};
use anyhow::{Context, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

pub(super) const KINDS: [&str; 3] = ["values", "exp_avg", "exp_avg_sq"];

/// No parameter has more elements.
const MOST: u64 = 1 << 50;

/// The name of the header's only entry.
const HEADER: &str = "shard";

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShardHeader {
    /// Steps that the optimizer has taken.
    pub steps: u64,
    pub fragments: BTreeMap<String, Held>,
}

/// The elements that a rank holds of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// The parameter's shape on this rank.
    shape: Vec<usize>,
    pub elements: Range<usize>,
    /// The name and shape of the tensor that the parameter is part of, as a single rank would hold
    /// it.
    pub whole: (String, Vec<usize>),
    cut: Cut,
    /// Whether this rank, of those that share the model and hold these elements, writes them to
    /// checkpoints.
    pub counts: bool,
    /// Whether there is no second moment: Muon updates it.
    #[serde(default)]
    pub one_moment: bool,
}

impl Held {
    fn of(spec: &Spec, elements: Range<usize>, one_moment: bool) -> Held {
        let whole = (spec.whole.name.clone(), spec.whole.shape.clone());
        Held {
            shape: spec.shape.clone(),
            elements,
            whole,
            cut: spec.cut.clone(),
            counts: spec.copies.counts(),
            one_moment,
        }
    }

    /// The number of elements in the tensor of a kind.
    pub fn numel(&self, kind: &str) -> usize {
        if self.one_moment && kind == "exp_avg_sq" {
            0
        } else {
            self.elements.len()
        }
    }

    /// Refuses a record that contradicts itself, or whose sizes overflow.
    pub fn ensure_sound(&self) -> Result<()> {
        let Held { shape, elements, whole: (name, of), cut, .. } = self;
        let (Some(here), Some(_)) = (numel(shape), numel(of)) else {
            anyhow::bail!("{name} has an absurd shape")
        };
        if let Cut::Rows(ranges) = cut {
            let inner: usize = of.iter().skip(1).product();
            let absurd = |rows: &Range<usize>| {
                rows.start > rows.end || rows.end as u64 > MOST / inner.max(1) as u64
            };
            anyhow::ensure!(!ranges.iter().any(absurd), "{name} is cut into absurd rows");
        }
        let expected = cut.shape(&Whole::new("", of, Init::Constant(0.0)))?;
        anyhow::ensure!(
            *shape == expected,
            "{name} {of:?} is cut into {expected:?}, not {shape:?}"
        );
        anyhow::ensure!(
            elements.start <= elements.end && elements.end <= here,
            "{name} has no {self}"
        );
        Ok(())
    }

    /// Calls `each` with every run of elements that is contiguous in the whole: its offsets in the
    /// fragment, and its first element's offset in the whole. Skips padding.
    pub fn runs(&self, mut each: impl FnMut(Range<usize>, usize)) {
        let whole = Whole::new("", &self.whole.1, Init::Constant(0.0));
        let first = self.elements.start;
        self.cut.runs(&whole, self.elements.clone(), |run, at| {
            each(run.start - first..run.end - first, at)
        });
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Range { start, end } = self.elements;
        write!(f, "elements {start} to {end} of shape {:?}", self.shape)?;
        if self.one_moment {
            write!(f, ", with one moment")
        } else {
            Ok(())
        }
    }
}

/// The file's bytes. No communication.
pub(super) fn encode(zero: &mut Zero) -> Result<Vec<u8>> {
    let header = header(zero)?;
    let mut tensors: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    // State in files comes in chunks, in order.
    zero.fragments(|fragment, _, state| {
        let kinds: [&[f32]; 3] = [state.values, state.exp_avg, state.exp_avg_sq];
        for (kind, numbers) in KINDS.iter().zip(kinds) {
            let tensor = tensors.entry(format!("{kind}.{}", fragment.spec.name)).or_default();
            tensor.extend_from_slice(bytemuck::cast_slice(numbers));
        }
    })?;
    let mut views = Vec::new();
    for (name, bytes) in &tensors {
        let shape = vec![bytes.len() / 4];
        views.push((name, TensorView::new(Dtype::F32, shape, bytes)?));
    }
    let header = HashMap::from([(HEADER.to_string(), serde_json::to_string(&header)?)]);
    Ok(safetensors::serialize(views, Some(header))?)
}

fn header(zero: &mut Zero) -> Result<ShardHeader> {
    let steps = zero.steps();
    let mut fragments = BTreeMap::new();
    zero.fragments(|fragment, _, state| {
        let one_moment = state.exp_avg_sq.len() < state.exp_avg.len();
        let held = Held::of(&fragment.spec, fragment.elements.clone(), one_moment);
        fragments.insert(fragment.spec.name.clone(), held);
    })?;
    Ok(ShardHeader { steps, fragments })
}

impl ShardHeader {
    /// Reads the header of a file's bytes.
    pub fn read(bytes: &[u8]) -> Result<ShardHeader> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let entry = metadata.metadata().as_ref().and_then(|entries| entries.get(HEADER));
        Ok(serde_json::from_str(entry.context("its header lists no fragments")?)?)
    }
}

/// A rank's part of a checkpoint that fits the rank's training.
pub(super) struct Shard {
    bytes: Vec<u8>,
    header: ShardHeader,
}

impl Shard {
    /// Reads a file's bytes. The error says why they are not the state of this rank of this
    /// training.
    pub fn decode(bytes: Vec<u8>, zero: &mut Zero) -> Result<Shard> {
        let header = ShardHeader::read(&bytes)?;
        let expected = super::shard::header(zero)?.fragments;
        let file = SafeTensors::deserialize(&bytes)?;
        for (name, held) in &expected {
            let found = header.fragments.get(name).with_context(|| format!("it has no {name}"))?;
            anyhow::ensure!(found == held, "it has {found} of {name}, and this rank {held}");
            for kind in KINDS {
                let tensor = file.tensor(&format!("{kind}.{name}"))?;
                anyhow::ensure!(
                    tensor.shape() == [held.numel(kind)],
                    "{kind}.{name} is {:?}",
                    tensor.shape()
                );
            }
        }
        if let Some(more) = header.fragments.keys().find(|name| !expected.contains_key(*name)) {
            anyhow::bail!("it has {more}, which this rank does not have");
        }
        Ok(Shard { bytes, header })
    }

    /// Puts the state back. All ranks call it.
    pub fn restore(&self, zero: &mut Zero) -> Result<()> {
        let file = SafeTensors::deserialize(&self.bytes)?;
        let tensors: HashMap<String, TensorView> = file.tensors().into_iter().collect();
        zero.restore(self.header.steps, |fragment, elements, state| {
            let first = elements.start - fragment.elements.start;
            for (kind, numbers) in KINDS.iter().zip([state.values, state.exp_avg, state.exp_avg_sq])
            {
                // `decode` has found them all.
                let Some(tensor) = tensors.get(&format!("{kind}.{}", fragment.spec.name)) else {
                    continue;
                };
                let bytes = &tensor.data()[4 * first..][..4 * numbers.len()];
                bytemuck::cast_slice_mut(numbers).copy_from_slice(bytes);
            }
        })
    }
}
