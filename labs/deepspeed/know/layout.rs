//! Which elements of a flat buffer are whose.
//!
//! All parameters of a group are written one after the other into one buffer, which is padded until
//! it can be divided into equal parts, one for each rank. So the padding is at the end of the last
//! part, and of more parts if it is longer than one.

use std::collections::BTreeMap;
use std::ops::Range;

/// Parameters of a group of the optimizer, in order, with their shapes.
pub(crate) type Shapes = Vec<(String, Vec<usize>)>;

/// Elements at the end of each rank's part that belong to no parameter. `numel` elements are
/// divided into parts of `part`.
pub fn paddings(numel: usize, part: usize, ranks: usize) -> Vec<usize> {
    (1..=ranks).map(|rank| (rank * part).saturating_sub(numel).min(part)).collect()
}

/// The order in which `round_robin_gradients` puts a group's parameters into the buffer: those
/// whose turn is rank 0, then those whose turn is rank 1, and so on. DeepSpeed records the
/// fragments as if they were in the model's order.
pub(crate) fn by_turns(parameters: usize, ranks: usize) -> Vec<usize> {
    (0..ranks).flat_map(|rank| (rank..parameters).step_by(ranks)).collect()
}

/// Each rank's fragments, if the buffer has the parameters in this order.
pub(crate) fn fragments(
    shapes: &Shapes,
    order: impl Iterator<Item = usize>,
    part: usize,
    ranks: usize,
) -> Vec<BTreeMap<String, Range<usize>>> {
    let mut all = vec![BTreeMap::new(); ranks];
    let mut begin = 0;
    for at in order {
        let (name, shape) = &shapes[at];
        let end = begin + shape.iter().product::<usize>();
        for (rank, fragments) in all.iter_mut().enumerate() {
            let from = begin.max(rank * part);
            let to = end.min((rank + 1) * part);
            if from < to {
                fragments.insert(name.clone(), from - rank * part..to - rank * part);
            }
        }
        begin = end;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ten elements on four ranks are padded to 16. The last rank's part is all padding, and that
    /// of the one before has two.
    #[test]
    fn padding_can_be_longer_than_a_part() {
        assert_eq!(paddings(10, 4, 4), [0, 0, 2, 4]);
        assert_eq!(paddings(266_240, 348, 768)[764..], [0, 328, 348, 348]);
        assert_eq!(paddings(24_960, 3120, 8), [0; 8]);
    }

    #[test]
    fn turns() {
        assert_eq!(by_turns(7, 3), [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(by_turns(2, 4), [0, 1]);
    }

    proptest! {
        /// Fragments and paddings of a part fill it, and no fragment reaches into the padding.
        #[test]
        fn fragments_end_where_the_padding_begins(
            sizes in prop::collection::vec(1usize..40, 1..12), ranks in 1usize..20, turns: bool,
        ) {
            let shapes: Shapes = sizes.iter().enumerate().map(|(at, size)| (at.to_string(), vec![*size])).collect();
            let numel: usize = sizes.iter().sum();
            let part = numel.next_multiple_of(2 * ranks) / ranks;
            let order = if turns { by_turns(sizes.len(), ranks) } else { (0..sizes.len()).collect() };
            let all = fragments(&shapes, order.into_iter(), part, ranks);
            for (fragments, padding) in all.iter().zip(paddings(numel, part, ranks)) {
                let ends = fragments.values().map(|range| range.end).max().unwrap_or(0);
                prop_assert_eq!(ends + padding, part);
                prop_assert_eq!(fragments.values().map(Range::len).sum::<usize>(), ends);
            }
        }
    }
}
