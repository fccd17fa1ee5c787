//! lab04-partition · Equal slices of unequal tensors

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
    let mut flat = tensors.concat();
    let numel = flat.len();
    flat.resize(numel.next_multiple_of(ALIGNMENT * ranks), 0.0);
    let part = flat.len() / ranks;
    let start = rank * part;
    let end = (rank + 1) * part;
    // A slice that begins after the last tensor consists of padding, and its padding is no longer
    // than the slice.
    Slice {
        numbers: flat[start..end].to_vec(),
        padding: end.saturating_sub(numel).min(part),
    }
}
