//! lab04-partition · Equal slices of unequal tensors
//!
//! In ZeRO's stages 1 and 2 each rank holds the optimizer states of a slice of the model. Tensors
//! have many sizes, but collectives need slices of equal length. So DeepSpeed lays the tensors of a
//! group end to end, in their order. It appends zeros until the length is a multiple of 2 x ranks,
//! and cuts the whole into one slice per rank. Slice r belongs to rank r, even if it begins in the
//! middle of a tensor.
//!
//! ```text
//! two tensors, a of 5 numbers and b of 6, on 3 ranks
//!
//!            rank 0         rank 1         rank 2
//! numbers    a a a a        a b b b        b b b 0
//! padding    0              0              1
//! ```
//!
//! The zeros are padding. They are trained with the rest and mean nothing. But a checkpoint must
//! leave them out if it is to be read on a different number of ranks. So each rank records how many
//! of its numbers are padding. (A run on 768 ranks could not be converted because these records
//! were wrong. The check contains that run.)

/// DeepSpeed pads a group to a multiple of this many numbers per rank.
const ALIGNMENT: usize = 2;

/// The slice of a group that one rank holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Equally many on every rank, including the padding, which is zeros.
    pub numbers: Vec<f32>,
    /// How many of these numbers are padding.
    pub padding: usize,
}

/// The slice of a group of tensors that rank `rank` of `ranks` holds.
pub fn slice(tensors: &[Vec<f32>], ranks: usize, rank: usize) -> Slice {
    let flat = tensors.concat();
    todo!(
        "{} numbers, padded to a multiple of {}: which are rank {rank}'s?",
        flat.len(),
        ALIGNMENT * ranks
    )
}
