//! Fragments: a rank's shard of the model's state is a list of fragments, each with consecutive
//! elements of one parameter.
//!
//! Under data parallelism a rank's optimizer has one fragment per parameter, which contains all of
//! it. ZeRO's stages 1 and 2 cut a sequence of parameters anywhere, so a rank's first and last
//! fragment may be slices of parameters. Stage 3 gives each rank a fragment of each parameter,
//! followed by padding. Writing a checkpoint, resharding one for a different number of ranks, and
//! drawing which rank holds which slice are loops over fragments. [`Spec::runs`] locates their
//! elements in the whole model.

use super::store::{Offload, StateStore, Windowed};
use crate::tensor::{Spec, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

/// Consecutive elements of one parameter, in a rank's shard.
#[derive(Clone, Debug)]
pub struct Fragment {
    pub spec: Arc<Spec>,
    /// Offsets in the parameter.
    pub elements: Range<usize>,
    /// Offset of the first element in the shard.
    pub start: usize,
    /// Elements of the shard after the fragment that belong to no parameter.
    pub padding: usize,
}

impl Fragment {
    /// A shard of fragments end to end. A fragment is given by its parameter, its elements, and its
    /// padding.
    pub fn end_to_end(
        fragments: impl IntoIterator<Item = (Arc<Spec>, Range<usize>, usize)>,
    ) -> Vec<Fragment> {
        let mut next = 0;
        let fragment = |(spec, elements, padding): (Arc<Spec>, Range<usize>, usize)| {
            let start = next;
            next += elements.len() + padding;
            Fragment { spec, elements, start, padding }
        };
        fragments.into_iter().map(fragment).collect()
    }

    /// The shard that consists of a range of the flat buffers.
    pub fn of_range(specs: &[Arc<Spec>], shard: Range<usize>) -> Vec<Fragment> {
        let mut specs = specs.to_vec();
        specs.sort_by_key(|spec| spec.range().start);
        Fragment::end_to_end(specs.into_iter().filter_map(|spec| {
            let range = spec.range();
            let common = range.start.max(shard.start)..range.end.min(shard.end);
            (!common.is_empty())
                .then(|| (spec, common.start - range.start..common.end - range.start, 0))
        }))
    }

    /// Its elements in the shard, without the padding.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.elements.len()
    }

    /// The number of elements of a shard, padding included.
    pub fn numel(shard: &[Fragment]) -> usize {
        shard.last().map_or(0, |last| last.start + last.elements.len() + last.padding)
    }

    /// Calls `each` with every fragment of a shard that has elements in a window of it. Passes
    /// their offsets in the window, and in the parameter.
    pub fn in_window(
        shard: &[Fragment],
        window: &Range<usize>,
        mut each: impl FnMut(&Fragment, Range<usize>, Range<usize>),
    ) {
        for fragment in shard {
            let Range { start, end } = fragment.range();
            let common = start.max(window.start)..end.min(window.end);
            if !common.is_empty() {
                let first = fragment.elements.start + common.start - fragment.start;
                let here = common.start - window.start..common.end - window.start;
                each(fragment, here, first..first + common.len());
            }
        }
    }
}

/// Writes the initial values of a range of a parameter.
pub type InitialValues<'a> = &'a dyn Fn(&Spec, Range<usize>, &mut [f32]);

/// A store with a shard's initial values. Padding is zeros.
///
/// # Errors
/// If a file for offloaded state cannot be made or written.
pub fn initial_store<T: Stored>(
    shard: &[Fragment],
    begin: InitialValues,
    offload: Option<&Offload>,
) -> Result<StateStore<T>> {
    let mut store = StateStore::<T>::zeros(Fragment::numel(shard), offload)?;
    for window in store.windows() {
        let mut numbers = store.window(window.clone())?;
        Fragment::in_window(shard, &window, |fragment, here, elements| {
            T::change(&mut numbers[here], |out| begin(&fragment.spec, elements, out));
        });
    }
    Ok(store)
}
