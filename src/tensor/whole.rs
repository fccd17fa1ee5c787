//! The whole tensor that a parameter is part of, and which of its elements this rank holds.
//!
//! Under tensor parallelism a rank's parameter is a shard of a matrix. A pipeline's last stage
//! holds a copy of the first stage's token table. One description answers all questions about such
//! a parameter: its initial values, how to reshard it, whether it counts in a norm, and which slice
//! of a pretrained tensor it takes.
//!
//! ```text
//! qkv.weight of 2 heads, whole [6, 4]       Cut::stacked(3, 1..2) of [2, 4] each: head 1
//!   rows 0 1   q of heads 0, 1                row 1
//!   rows 2 3   k                              row 3
//!   rows 4 5   v                              row 5
//! ```

use super::random::Init;
use crate::mesh::Axis;
use crate::plan::Part;
use candle_core::{Result, bail};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A tensor of the model, as a single rank would hold it.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// Unique within the model, such as `blocks.0.qkv.weight`.
    pub name: String,
    pub shape: Vec<usize>,
    pub init: Init,
    pub part: Part,
}

/// The elements of a whole that a parameter consists of, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// All elements.
    All,
    /// Ranges of rows, one after the other. Rows beyond the whole's last row are padding, such as a
    /// vocabulary's. They begin as zeros, and no checkpoint contains them.
    Rows(Vec<Range<usize>>),
    /// A range of columns, from every row.
    Columns(Range<usize>),
}

/// The other ranks that hold the same elements. Data parallelism's replicas do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// No other rank.
    One,
    /// All ranks along an axis. `first` marks the rank that counts the elements in norms and writes
    /// them to checkpoints.
    Same { axis: Axis, first: bool },
    /// A second pipeline stage, where the model uses the parameter again. `first` marks the stage
    /// that counts the elements in norms and writes them to checkpoints.
    Tied { first: bool },
}

impl Whole {
    pub fn new(name: impl Into<String>, shape: &[usize], init: Init) -> Whole {
        Whole {
            name: name.into(),
            shape: shape.to_vec(),
            init,
            part: Part::Common,
        }
    }

    /// The number of rows, and of elements per row. A vector has one element per row.
    fn rows(&self) -> (usize, usize) {
        match &self.shape[..] {
            [] => (1, 1),
            [rows, inner @ ..] => (*rows, inner.iter().product()),
        }
    }
}

impl Cut {
    /// Takes one range of rows.
    pub fn rows(rows: Range<usize>) -> Cut {
        Cut::stacked(1, 0, rows)
    }

    /// Takes the same rows from each of the whole's `parts` stacked parts of `each` rows: q|k|v by
    /// heads, gate|up.
    pub fn stacked(parts: usize, each: usize, rows: Range<usize>) -> Cut {
        Cut::Rows(
            (0..parts)
                .map(|part| part * each + rows.start..part * each + rows.end)
                .collect(),
        )
    }

    /// The same cut on rank `to` of a group whose ranks take equal parts, one after the other, of
    /// which this is `from`'s.
    pub fn on(&self, from: usize, to: usize) -> Cut {
        let shifted = |range: &Range<usize>| {
            let start = range.start + to * range.len() - from * range.len();
            start..start + range.len()
        };
        match self {
            Cut::All => Cut::All,
            Cut::Rows(ranges) => Cut::Rows(ranges.iter().map(shifted).collect()),
            Cut::Columns(columns) => Cut::Columns(shifted(columns)),
        }
    }

    /// The shape of what this cut takes of `whole`; an error if `whole` cannot be cut this way.
    ///
    /// # Errors
    /// If `whole` cannot be cut this way.
    pub fn shape(&self, whole: &Whole) -> Result<Vec<usize>> {
        let shape = &whole.shape;
        match self {
            Cut::All => Ok(shape.clone()),
            Cut::Rows(ranges) if !shape.is_empty() => {
                let rows = ranges.iter().map(Range::len).sum();
                Ok([&[rows], &shape[1..]].concat())
            }
            Cut::Columns(columns) if shape.len() == 2 && columns.end <= shape[1] => {
                Ok(vec![shape[0], columns.len()])
            }
            _ => bail!("{} {shape:?} cannot be cut into {self:?}", whole.name),
        }
    }

    /// The rows of `whole` on this rank, without padding, if they are one range: those of a sharded
    /// vocabulary.
    pub fn row_range(&self, whole: &Whole) -> Range<usize> {
        let (height, _) = whole.rows();
        match self {
            Cut::Rows(ranges) if ranges.len() == 1 => {
                ranges[0].start.min(height)..ranges[0].end.min(height)
            }
            _ => 0..height,
        }
    }

    /// Splits `elements` of the cut into runs that are contiguous in `whole`. Calls `each` with
    /// every run: its elements, and the offset of its first one in the whole. Skips padding.
    pub fn runs(
        &self,
        whole: &Whole,
        elements: Range<usize>,
        mut each: impl FnMut(Range<usize>, usize),
    ) {
        let (height, width) = whole.rows();
        let mut run = |of_cut: Range<usize>, first: usize| {
            let common = of_cut.start.max(elements.start)..of_cut.end.min(elements.end);
            if !common.is_empty() {
                let skipped = common.start - of_cut.start;
                each(common, first + skipped);
            }
        };
        match self {
            Cut::All => run(elements.clone(), elements.start),
            Cut::Rows(ranges) => {
                let mut start = 0;
                for rows in ranges {
                    let there = rows.end.min(height).saturating_sub(rows.start);
                    run(start..start + there * width, rows.start * width);
                    start += rows.len() * width;
                }
            }
            Cut::Columns(columns) => {
                let wide = columns.len().max(1);
                for row in elements.start / wide..elements.end.div_ceil(wide) {
                    run(row * wide..(row + 1) * wide, row * width + columns.start);
                }
            }
        }
    }
}

impl Copies {
    /// Whether this rank counts the elements in norms and writes them to checkpoints. Exactly one
    /// of the ranks that hold them does.
    pub fn counts(self) -> bool {
        match self {
            Copies::One => true,
            Copies::Same { first, .. } | Copies::Tied { first } => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A whole whose elements are their own places, and what `cut` takes of it: padding is None.
    fn taken(whole: &Whole, cut: &Cut, elements: Range<usize>) -> Vec<Option<usize>> {
        let mut taken = vec![None; elements.len()];
        cut.runs(whole, elements.clone(), |here, at| {
            for (i, place) in here.zip(at..) {
                taken[i - elements.start] = Some(place);
            }
        });
        taken
    }

    fn matrix(rows: usize, columns: usize) -> Whole {
        Whole::new("w", &[rows, columns], Init::Constant(0.0))
    }

    #[test]
    fn cuts_take_the_elements_they_name() {
        let whole = matrix(6, 2);
        let all = |cut: &Cut| {
            let numel = cut.shape(&whole).unwrap().iter().product();
            taken(&whole, cut, 0..numel)
                .into_iter()
                .map(|place| place.map_or(-1, |place| place as i64))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(&Cut::All), (0..12).collect::<Vec<_>>());
        assert_eq!(all(&Cut::rows(2..4)), [4, 5, 6, 7]);
        assert_eq!(all(&Cut::stacked(3, 2, 1..2)), [2, 3, 6, 7, 10, 11]);
        assert_eq!(all(&Cut::Columns(1..2)), [1, 3, 5, 7, 9, 11]);
        // Rows 6 and 7 are padding.
        assert_eq!(all(&Cut::rows(5..8)), [10, 11, -1, -1, -1, -1]);
        assert_eq!(all(&Cut::rows(7..8)), [-1, -1]);
        assert!(Cut::Columns(1..3).shape(&whole).is_err());
        assert!(
            Cut::Columns(0..1)
                .shape(&Whole::new("gain", &[4], Init::Constant(1.0)))
                .is_err()
        );
    }

    #[test]
    fn another_rank_takes_the_next_part() {
        assert_eq!(Cut::stacked(3, 4, 1..2).on(1, 3), Cut::stacked(3, 4, 3..4));
        assert_eq!(Cut::stacked(3, 4, 2..4).on(1, 0), Cut::stacked(3, 4, 0..2));
        assert_eq!(Cut::Columns(0..5).on(0, 2), Cut::Columns(10..15));
    }

    /// Shards begin as the slices of the whole, and padding as zeros.
    #[test]
    fn a_shard_begins_as_the_slice_of_the_whole() {
        let init = Init::Normal(1.0);
        let begun = |cut: Cut, name: &str| {
            let params = crate::tensor::Params::new();
            params
                .declare_shard(name, Whole::new("w", &[6, 2], init), cut, Copies::One)
                .unwrap();
            params.allocate(5);
            params.values().clone()
        };
        let whole = begun(Cut::All, "w");
        assert_eq!(begun(Cut::rows(2..4), "w.tile1"), whole[4..8]);
        let of = |places: &[usize]| places.iter().map(|&place| whole[place]).collect::<Vec<_>>();
        assert_eq!(begun(Cut::stacked(3, 2, 1..2), "w"), of(&[2, 3, 6, 7, 10, 11]));
        assert_eq!(begun(Cut::Columns(1..2), "w"), of(&[1, 3, 5, 7, 9, 11]));
        assert_eq!(begun(Cut::rows(5..8), "w"), [whole[10], whole[11], 0.0, 0.0, 0.0, 0.0]);
    }

    proptest! {
        /// Whatever part of a cut is asked for, it is that part of the whole cut.
        #[test]
        fn a_part_of_a_cut_is_that_part(
            rows in 1usize..9, columns in 1usize..7, a in 0usize..9, b in 0usize..12, kind in 0usize..3,
            from in 0usize..60, to in 0usize..60,
        ) {
            let whole = matrix(rows, columns);
            let cut = match kind {
                0 => Cut::All,
                1 => Cut::Rows(vec![a.min(b)..a.max(b), 0..1]),
                _ => Cut::Columns(a.min(b).min(columns)..a.max(b).min(columns)),
            };
            let numel = cut.shape(&whole).unwrap().iter().product::<usize>();
            let (from, to) = (from.min(to).min(numel), from.max(to).min(numel));
            let all = taken(&whole, &cut, 0..numel);
            prop_assert_eq!(&taken(&whole, &cut, from..to)[..], &all[from..to]);
            prop_assert!(all.iter().flatten().all(|&place| place < rows * columns));
        }
    }
}
