//! One buffer, cut for several numbers of ranks.

use crate::draw::{Piece, Slices};
use shardlab::parallel::partition::Flat;

/// Two parameters of 6 and 4 elements, as 4 ranks hold them, whole, and as 3 and 2 ranks hold them.
pub(super) fn slices() -> Slices {
    let piece = |label: String, numel, rank, padding| Piece { label, numel, rank, padding };
    let row = |ranks: usize| {
        let flat = Flat { numel: 10, ranks };
        let slice = |rank: usize| {
            let held = flat.range(rank).len();
            let padding = flat.padding(rank);
            let pieces = [
                piece(format!("rank {rank}"), held, Some(rank), false),
                piece(padding.to_string(), padding, Some(rank), true),
            ];
            pieces.into_iter().filter(|piece| piece.numel > 0)
        };
        (format!("{ranks} ranks"), (0..ranks).flat_map(slice).collect())
    };
    let whole = [("a, 6 elements", 6), ("b, 4 elements", 4)]
        .map(|(name, numel)| piece(name.into(), numel, None, false));
    Slices(vec![row(4), ("whole".to_string(), whole.into()), row(3), row(2)])
}
