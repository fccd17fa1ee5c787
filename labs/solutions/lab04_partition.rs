//! lab04-partition · Equal parts of unequal tensors

/// DeepSpeed pads a group to a multiple of this many numbers for each rank.
const ALIGNMENT: usize = 2;

/// What a rank holds of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// As many on every rank; padding included, as zeros.
    pub numbers: Vec<f32>,
    /// How many of these numbers are padding.
    pub padding: usize,
}

/// What rank `rank` of `ranks` holds of a group of tensors.
pub fn share(tensors: &[Vec<f32>], ranks: usize, rank: usize) -> Share {
    let mut flat = tensors.concat();
    let numel = flat.len();
    flat.resize(numel.next_multiple_of(ALIGNMENT * ranks), 0.0);
    let part = flat.len() / ranks;
    let (start, end) = (rank * part, (rank + 1) * part);
    // A part that begins behind the last tensor is padding as a whole, and no more than that.
    Share { numbers: flat[start..end].to_vec(), padding: end.saturating_sub(numel).min(part) }
}
