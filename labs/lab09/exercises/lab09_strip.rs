//! lab09-strip · The converter that strips too much
//!
//! Broken on purpose: it converts a checkpoint of 48 ranks, and fails on one of 768 ranks, after
//! 95,600 steps that cannot be repeated: "narrow(): length must be non-negative: 348 - 1024
//! = -676". The same with 11 numbers on 5 ranks:
//!
//! ```text
//! rank                 0          1          2           3          4
//! numbers              1 2 3 4    5 6 7 8    9 10 11 ·   · · · ·    · · · ·
//! recorded padding     0          0          0           0          9
//!
//! sizes [8, 3]         error: narrow(): length must be non-negative: 4 - 9 = -5
//! ```
//!
//! The parameters of a group lie end to end, and the group is padded until it can be cut into equal
//! slices. The converter cuts each slice's padding off, joins the rest, and takes the parameters
//! out of it one after the other. It also passes the records on, and other programs use them.
//!
//! Repair the converter. It must also convert files whose records are wrong:
//!
//! - `parameters` are the parameters, whole and in order.
//! - `paddings` are right for every rank: how many numbers of its slice come after the last
//!   parameter.

/// One rank's file.
pub struct Shard {
    /// The rank's slice of the group, padding included. Equally long on every rank.
    pub numbers: Vec<f32>,
    /// How many of these numbers are padding, as the program that saved has recorded it.
    pub padding: usize,
}

/// A checkpoint that any number of ranks can read.
pub struct Converted {
    pub parameters: Vec<Vec<f32>>,
    /// How many numbers of each rank's slice are padding.
    pub paddings: Vec<usize>,
}

/// Converts the files of all ranks. `sizes` are the elements of each parameter of the group, in
/// order.
pub fn convert(shards: &[Shard], sizes: &[usize]) -> Result<Converted, String> {
    let mut flat = Vec::new();
    let mut paddings = Vec::new();
    for shard in shards {
        let numel = shard.numbers.len();
        let padding = shard.padding;
        let length = numel.checked_sub(padding).ok_or_else(|| {
            let length = numel as isize - padding as isize;
            format!("narrow(): length must be non-negative: {numel} - {padding} = {length}")
        })?;
        flat.extend_from_slice(&shard.numbers[..length]);
        paddings.push(padding);
    }
    let mut begin = 0;
    let mut parameters = Vec::new();
    for size in sizes {
        parameters.push(flat[begin..begin + size].to_vec());
        begin += size;
    }
    Ok(Converted { parameters, paddings })
}
