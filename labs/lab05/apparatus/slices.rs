//! Whether two ranks hold the same numbers where they share a matrix.

use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::tensor::{Cut, Params};
use std::hash::{DefaultHasher, Hasher};

/// The matrices that the ranks of a group share.
#[derive(Default)]
pub struct Slices {
    pub matrices: usize,
    /// Those of which two ranks hold the same slice: the matrix's name, and the first two such
    /// ranks.
    pub alike: Vec<(String, [usize; 2])>,
}

/// Compares the ranks' slices of every cut matrix. They exchange a hash of each slice, 8 bytes, so
/// this needs neither the whole matrix nor a second model, and a job of any size can afford it. All
/// ranks call it.
pub fn compare_slices(group: &Comm, params: &Params) -> Result<Slices> {
    let values = params.values();
    let specs = params.specs().iter();
    let cut: Vec<_> = specs.filter(|spec| spec.cut != Cut::All).collect();
    let mine: Vec<u64> = cut.iter().map(|spec| hash(&values[spec.range()])).collect();
    let all = group.gathered(&mine)?;
    let ranks: Vec<&[u64]> = all.chunks(mine.len().max(1)).collect();
    let mut alike = Vec::new();
    for (i, spec) in cut.iter().enumerate() {
        if let Some(two) = first_alike(&ranks, i) {
            alike.push((spec.name.clone(), two));
        }
    }
    Ok(Slices { matrices: cut.len(), alike })
}

/// The first two ranks that have the same hash of matrix `i`.
fn first_alike(ranks: &[&[u64]], i: usize) -> Option<[usize; 2]> {
    for second in 1..ranks.len() {
        let hash = ranks[second][i];
        let first = ranks[..second].iter().position(|rank| rank[i] == hash);
        if let Some(first) = first
            && hash != EQUAL_BY_RIGHT
        {
            return Some([first, second]);
        }
    }
    None
}

/// The hash of a slice that is one number repeated. Biases begin so, and padding does: these are
/// equal on all ranks by right.
const EQUAL_BY_RIGHT: u64 = 0;

fn hash(slice: &[f32]) -> u64 {
    if slice.iter().all(|x| *x == slice[0]) {
        return EQUAL_BY_RIGHT;
    }
    let mut hasher = DefaultHasher::new();
    for x in slice {
        hasher.write_u32(x.to_bits());
    }
    hasher.finish()
}
