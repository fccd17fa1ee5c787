//! The explorer of resharding: which new rank reads which elements of which old rank's slice.
//!
//! Real ranks shard the parameters with the library's ZeRO, and every element is followed from the
//! rank that had it to the rank that has it. The figure's script (`book/figures/reshard.js`) shows
//! it, and cuts nothing.

use super::cases::json_of;
use anyhow::Result;
use serde_json::{Value, json};
use shardlab::launch;
use shardlab::optim::AdamWConfig;
use shardlab::parallel::partition::{FlatGroup, Sharded};
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::tensor::{Init, Params, Precision, Spec};
use std::sync::Arc;

/// The parameters, which follow each other in one flat buffer. All are matrices: one group.
pub(crate) const PARAMETERS: [(&str, [usize; 2]); 4] =
    [("embed", [4, 2]), ("qkv", [3, 2]), ("fc", [2, 2]), ("out", [2, 2])];

/// The first picture: the stage of the new job, its ranks, and the ranks that saved.
pub(crate) const FIRST: (Stage, usize, usize) = (Stage::One, 3, 4);

/// Consecutive elements of one parameter in a rank's slice.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub parameter: usize,
    /// The first one, and the one after the last, as offsets in the parameter.
    pub elements: [usize; 2],
    /// Offset of the first one in the slice.
    pub at: usize,
}

/// What one rank holds.
pub(crate) struct Slice {
    /// Elements, padding included.
    pub numel: usize,
    pub held: Vec<Held>,
}

/// Elements that a new rank reads from the slice of one old rank, in the order of the new slice.
pub(crate) struct Piece {
    pub held: Held,
    pub from: usize,
    /// Offset in the old slice.
    pub there: usize,
}

/// The slices of all ranks, as the library's ZeRO cuts them.
pub(crate) fn slices(stage: Stage, ranks: usize) -> Result<Vec<Slice>> {
    launch::run(ranks, |comm| {
        let params = Params::new();
        for (name, shape) in PARAMETERS {
            params.declare(name, &shape, Init::Constant(0.0))?;
        }
        let config = ZeroConfig::new(stage, Precision::F32, AdamWConfig::default());
        let mut zero = Zero::init(&params, &comm, config, 0)?;
        let mut held = Vec::new();
        zero.fragments(|fragment, elements, _| {
            let parameter = fragment.spec.index;
            let elements = [elements.start, elements.end];
            held.push(Held { parameter, elements, at: fragment.start });
        })?;
        // The library visits no fragment that is only padding.
        let numel = match stage {
            Stage::Three => {
                let of = |spec: &Arc<Spec>| Sharded { numel: spec.numel(), ranks }.shard_numel();
                params.specs().iter().map(of).sum()
            }
            _ => FlatGroup::all(&params, |_| ranks)
                .iter()
                .map(|group| group.flat.shard_numel())
                .sum(),
        };
        Ok(Slice { numel, held })
    })
}

/// Where the elements of a new slice were: a piece is what it has in common with one old slice. Old
/// ranks have a parameter's elements in their order.
pub(crate) fn pieces(old: &[Slice], new: &Slice) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for held in &new.held {
        for (from, slice) in old.iter().enumerate() {
            for there in slice.held.iter().filter(|there| there.parameter == held.parameter) {
                let first = held.elements[0].max(there.elements[0]);
                let end = held.elements[1].min(there.elements[1]);
                if first < end {
                    let at = held.at + first - held.elements[0];
                    let held = Held { elements: [first, end], at, ..*held };
                    pieces.push(Piece { held, from, there: there.at + first - there.elements[0] });
                }
            }
        }
    }
    pieces
}

/// The slices of all ranks for a script, each as its elements and the parts in it: parameter, first
/// element, the one after the last, and the offset in the slice.
fn json_of_slices(slices: &[Slice]) -> Value {
    let held = |held: &Held| json!([held.parameter, held.elements[0], held.elements[1], held.at]);
    let slice =
        |slice: &Slice| json!([slice.numel, slice.held.iter().map(held).collect::<Vec<_>>()]);
    json!(slices.iter().map(slice).collect::<Vec<_>>())
}

/// The pieces of a new rank, each as a part of its slice, the old rank, and the offset in the slice
/// of that one.
fn json_of_pieces(pieces: &[Piece]) -> Value {
    let piece = |piece: &Piece| {
        let Held { parameter, elements: [first, end], at } = piece.held;
        json!([parameter, first, end, at, piece.from, piece.there])
    };
    json!(pieces.iter().map(piece).collect::<Vec<_>>())
}

/// Everything that a reader can choose, as JSON with one case per line:
///
/// - `parameters`: their names and elements
/// - `slices`: for each stage and number of ranks, each rank's slice
/// - `pieces`: for each new stage, number of new ranks and number of ranks that saved, what each of
///   the new ranks reads
pub(super) fn cases() -> Result<String> {
    let of = |stage| (1..=8).map(|ranks| slices(stage, ranks)).collect::<Result<Vec<_>>>();
    let old = of(Stage::One)?;
    let mut all_slices = Vec::new();
    let mut all_pieces = Vec::new();
    for (stage, new) in [(1, &old), (3, &of(Stage::Three)?)] {
        for new in new {
            let resumed = new.len();
            all_slices
                .push(json!({ "stage": stage, "ranks": resumed, "slices": json_of_slices(new) }));
            for old in &old {
                let read = |slice: &Slice| json_of_pieces(&pieces(old, slice));
                let pieces: Vec<Value> = new.iter().map(read).collect();
                all_pieces.push(json!({
                    "stage": stage, "resumed": resumed, "saved": old.len(), "pieces": pieces,
                }));
            }
        }
    }
    let parameter =
        |(name, shape): (&str, [usize; 2])| json!([name, shape.iter().product::<usize>()]);
    Ok(json_of([
        ("parameters", PARAMETERS.map(parameter).to_vec()),
        ("slices", all_slices),
        ("pieces", all_pieces),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says: twice as many ranks do not read half a slice each, because of padding.
    #[test]
    fn padding_moves_the_ends_of_slices() {
        let four = slices(Stage::One, 4).unwrap();
        let eight = slices(Stage::One, 8).unwrap();
        assert_eq!((four[0].numel, eight[0].numel), (6, 4));
        let from = |slice| pieces(&four, slice).iter().map(|piece| piece.from).collect::<Vec<_>>();
        assert_eq!(from(&eight[1]), [0, 1]);
        assert!(eight[6].held.is_empty() && eight[7].held.is_empty());
        // Rank 1 of three under ZeRO-3 reads a piece of each parameter, and of qkv one.
        let three = slices(Stage::Three, 3).unwrap();
        let parts: Vec<_> = pieces(&four, &three[1])
            .iter()
            .map(|piece| (piece.held.parameter, piece.from))
            .collect();
        assert_eq!(parts, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn every_element_is_read_once() {
        let elements: usize =
            PARAMETERS.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        for (stage, resumed) in [(Stage::One, 3), (Stage::One, 8), (Stage::Three, 5)] {
            let new = slices(stage, resumed).unwrap();
            for saved in 1..=8 {
                let old = slices(Stage::One, saved).unwrap();
                let read: usize = new
                    .iter()
                    .flat_map(|slice| pieces(&old, slice))
                    .map(|piece| piece.held.elements[1] - piece.held.elements[0])
                    .sum();
                assert_eq!(read, elements, "{resumed} ranks of {saved}");
            }
        }
    }
}
