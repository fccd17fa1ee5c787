//! lab04-partition · Equal parts of unequal tensors
//!
//! With ZeRO's stages 1 and 2 each rank holds the optimizer's numbers for a part of the model. Tensors have all sizes, but
//! collectives want parts of one length. So DeepSpeed lays the tensors of a group end to end, as they come, fills up with
//! zeros behind the last until the length is a multiple of 2 x ranks, and cuts the whole into as many equal parts as there
//! are ranks: part r is rank r's, wherever in a tensor it begins.
//!
//! The zeros are padding. They are trained with the rest and mean nothing, but a checkpoint that is to be read on another
//! number of ranks has to leave them out. For that each rank writes down how many of its own numbers are padding. (A run on
//! 768 ranks could not be converted, because what its ranks had written down was wrong; that run is in the check.)

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
    let flat = tensors.concat();
    todo!("{} numbers, padded to a multiple of {}: which are rank {rank}'s?", flat.len(), ALIGNMENT * ranks)
}
