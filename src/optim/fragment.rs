//! A rank's state is a list of fragments: consecutive elements of parameters, end to end.
//!
//! Under data parallelism a rank's optimizer has one fragment for each parameter, all of it. ZeRO's stages 1 and 2 cut a row
//! of parameters anywhere, so that a rank's first and last fragment may be parts of parameters; stage 3 gives each rank a
//! fragment of each parameter, with padding after it. Whoever writes a checkpoint, reads one for another number of ranks, or
//! draws who holds which slice, goes through fragments: [`Spec::runs`] says where their elements are in the whole model.

use super::store::{Offload, Store, Windowed};
use crate::tensor::{Spec, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;

/// Consecutive elements of one parameter, in a rank's share.
#[derive(Clone, Debug)]
pub struct Fragment {
    pub spec: Arc<Spec>,
    /// Which of the parameter's elements.
    pub elements: Range<usize>,
    /// Offset of the first one in the share.
    pub start: usize,
    /// Elements of the share after the last one that belong to no parameter.
    pub padding: usize,
}

impl Fragment {
    /// A share that consists of these elements of these parameters, each followed by so much padding.
    pub fn end_to_end(parts: impl IntoIterator<Item = (Arc<Spec>, Range<usize>, usize)>) -> Vec<Fragment> {
        let mut next = 0;
        let fragment = |(spec, elements, padding): (Arc<Spec>, Range<usize>, usize)| {
            let start = next;
            next += elements.len() + padding;
            Fragment { spec, elements, start, padding }
        };
        parts.into_iter().map(fragment).collect()
    }

    /// The share that consists of this range of the flat buffers.
    pub fn of_range(specs: &[Arc<Spec>], share: Range<usize>) -> Vec<Fragment> {
        let mut specs = specs.to_vec();
        specs.sort_by_key(|spec| spec.range().start);
        Fragment::end_to_end(specs.into_iter().filter_map(|spec| {
            let range = spec.range();
            let common = range.start.max(share.start)..range.end.min(share.end);
            (!common.is_empty()).then(|| (spec, common.start - range.start..common.end - range.start, 0))
        }))
    }

    /// The number of elements of a share, padding included.
    pub fn numel(share: &[Fragment]) -> usize {
        share.last().map_or(0, |last| last.start + last.elements.len() + last.padding)
    }

    /// The fragment's part in a window of the share: the offsets in the window, and the parameter's elements.
    fn within(&self, window: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
        let end = self.start + self.elements.len();
        let common = self.start.max(window.start)..end.min(window.end);
        let first = self.elements.start + common.start.saturating_sub(self.start);
        let here = common.start.saturating_sub(window.start)..common.end.saturating_sub(window.start);
        (!common.is_empty()).then(|| (here, first..first + common.len()))
    }

    /// Calls `each` with every fragment of a share that has elements in a window of it: the offsets in the window, and the
    /// parameter's elements.
    pub fn in_window(
        share: &[Fragment],
        window: &Range<usize>,
        mut each: impl FnMut(&Fragment, Range<usize>, Range<usize>),
    ) {
        for fragment in share {
            if let Some((here, elements)) = fragment.within(window) {
                each(fragment, here, elements);
            }
        }
    }
}

/// Writes the values that these elements of a parameter begin with.
pub type Begin<'a> = &'a dyn Fn(&Spec, Range<usize>, &mut [f32]);

/// A share's values as they begin; padding is zeros.
pub fn begun<T: Stored>(share: &[Fragment], begin: Begin, offload: Option<&Offload>) -> Result<Store<T>> {
    let mut store = Store::<T>::zeros(Fragment::numel(share), offload)?;
    for window in store.windows() {
        let mut numbers = store.window(window.clone())?;
        Fragment::in_window(share, &window, |fragment, here, elements| {
            T::change(&mut numbers[here], |out| begin(&fragment.spec, elements, out));
        });
    }
    Ok(store)
}
