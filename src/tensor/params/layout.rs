//! A parameter's description, and where all of them lie in the flat buffers.

use crate::plan::Part;
use crate::tensor::{Copies, Cut, Whole};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A parameter's description.
#[derive(Debug)]
pub struct Spec {
    /// Unique within the model, such as `blocks.0.qkv.weight`.
    pub name: String,
    /// The shape on this rank: the whole's shape, unless the parameter is cut.
    pub shape: Vec<usize>,
    pub whole: Whole,
    pub cut: Cut,
    pub copies: Copies,
    /// Position in the order of declaration.
    pub index: usize,
    /// Offset of the first element in the flat buffers; 0 until the layout is built.
    pub(super) start: usize,
}

impl Spec {
    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The parameter's offsets in the flat buffers.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.numel()
    }

    /// Whether weight decay applies: to matrices, not to gains and biases.
    pub fn decays(&self) -> bool {
        self.whole.shape.len() == 2
    }

    /// Whether it is a matrix inside of a block, as `blocks.0.qkv.weight`: those that Muon updates.
    /// Tables of tokens and positions, the head, experts and vectors are not.
    pub fn is_hidden_matrix(&self) -> bool {
        let is_number = |word: &str| word.parse::<usize>().is_ok();
        self.decays()
            && self.whole.part == Part::Common
            && self.whole.name.split('.').any(is_number)
    }

    /// Splits `elements` of the parameter into runs that are contiguous in its whole. Calls `each`
    /// with every run: its elements, and the offset of its first one in the whole.
    pub fn runs(&self, elements: Range<usize>, each: impl FnMut(Range<usize>, usize)) {
        self.cut.runs(&self.whole, elements, each);
    }

    /// Writes the initial values of `elements` under `seed`. A value does not depend on how the
    /// whole is cut.
    pub fn initial(&self, seed: u64, elements: Range<usize>, out: &mut [f32]) {
        let from = elements.start;
        let Whole { name, init, .. } = &self.whole;
        if self.cut != Cut::All {
            // Padding begins as zeros.
            out.fill(0.0);
        }
        self.runs(elements, |here, at| {
            init.fill(seed, name, at, &mut out[here.start - from..here.end - from])
        });
    }
}

/// Parameters that the optimizer treats alike, as PyTorch's parameter groups: a range of the flat
/// buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub range: Range<usize>,
    /// Whether weight decay applies.
    pub decays: bool,
    /// Whether they belong to experts.
    pub expert: bool,
}

impl Group {
    /// Whether a parameter is one of them.
    pub fn has(&self, spec: &Spec) -> bool {
        self.decays == spec.decays() && self.expert == spec.whole.part.is_expert()
    }
}

/// All parameters of a model and their offsets.
pub struct FlatLayout {
    /// In the order of declaration.
    pub specs: Vec<Arc<Spec>>,
    /// The parameters to which weight decay applies, followed by all others; then those of experts,
    /// in the same order.
    pub groups: Vec<Group>,
    /// Elements of all parameters together.
    pub numel: usize,
    pub(super) progress: Vec<Progress>,
}

/// The progress of a parameter's gradient in a backward pass.
pub(super) struct Progress {
    /// The number of layers that use the parameter. Its gradient is complete after as many
    /// contributions.
    pub(super) uses: usize,
    pub(super) contributions: AtomicUsize,
    /// The buffer still has an earlier step's gradient, which is to be read as zeros.
    pub(super) outdated: AtomicBool,
}

impl FlatLayout {
    /// Gives every parameter its offset.
    pub(super) fn new(declared: Vec<(Spec, Progress)>) -> FlatLayout {
        let (mut specs, progress): (Vec<Spec>, Vec<Progress>) = declared.into_iter().unzip();
        let mut groups = Vec::new();
        let mut numel = 0;
        for (expert, decays) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut group = Group { range: numel..numel, decays, expert };
            for spec in specs.iter_mut() {
                if group.has(spec) {
                    spec.start = numel;
                    numel += spec.numel();
                }
            }
            group.range.end = numel;
            if specs.iter().any(|spec| group.has(spec)) {
                groups.push(group);
            }
        }
        FlatLayout {
            specs: specs.into_iter().map(Arc::new).collect(),
            groups,
            numel,
            progress,
        }
    }
}
