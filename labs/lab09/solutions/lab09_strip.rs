//! lab09-strip · The converter that strips too much

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
    let data: usize = sizes.iter().sum();
    let mut flat = Vec::new();
    let mut paddings = Vec::new();
    for (rank, shard) in shards.iter().enumerate() {
        // Padding is what comes after the last parameter, and a slice cannot have more of it than
        // numbers.
        let numel = shard.numbers.len();
        let padding = ((rank + 1) * numel).saturating_sub(data).min(numel);
        flat.extend_from_slice(&shard.numbers[..numel - padding]);
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
