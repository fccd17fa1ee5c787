//! lab09 · Save on N ranks, resume on M
//!
//! A job was saved on 4 ranks, and today there are only 3: how does it continue? Each rank's file
//! has slices of parameters, and their ends depend on the number of ranks. Put together, every
//! parameter is whole, and any number of ranks takes its own slices of it.
//!
//! Run `cargo run --bin lab09`. Four ranks train and save, other ranks resume, and the lab compares
//! parameters, moments and losses.

use anyhow::Result;
use candle_core::Device;
use candle_core::safetensors::SliceSafetensors;
use kit::Beside;
use shardlab::checkpoint::universal::Universal;
use shardlab::comm::Comm;

// ANCHOR: heart
/// Puts the slices of a parameter together. Each old rank's file has some of its elements, or none,
/// in the order of the ranks.
fn put_together(files: &[Vec<u8>], parameter: &str) -> Result<Vec<f32>> {
    let mut whole = Vec::new();
    for file in files {
        let tensors = SliceSafetensors::new(file)?;
        // Beside its values lie its moments. A rank that holds nothing of it has neither.
        if let Ok(slice) = tensors.load(&format!("values.{parameter}"), &Device::Cpu) {
            whole.extend(slice.to_vec1::<f32>()?);
        }
    }
    Ok(whole)
}

/// The elements of a parameter that new rank `rank` of `ranks` holds under ZeRO-3, which cuts each
/// parameter by itself. The last slices may be shorter, or empty.
fn take_mine(whole: &[f32], rank: usize, ranks: usize) -> &[f32] {
    let length = whole.len().div_ceil(ranks);
    let from = whole.len().min(rank * length);
    let to = whole.len().min(from + length);
    &whole[from..to]
}
// ANCHOR_END: heart

/// Compares every parameter with the library's, put together; and what each new rank takes with
/// what the library's rank has saved. `old` are the files of the ranks that saved, `new` those of
/// each job that resumed under ZeRO-3 or on one rank.
pub fn compare(saved: &Universal, old: &[Vec<u8>], new: &[Vec<Vec<u8>>]) -> Result<Beside> {
    let mut lesson = Vec::new();
    let mut library = Vec::new();
    for name in saved.parameters.keys() {
        let whole = put_together(old, name)?;
        let [values, ..] = saved.read(name)?;
        library.extend(values);
        lesson.extend_from_slice(&whole);
        for files in new {
            for (rank, file) in files.iter().enumerate() {
                let mine = take_mine(&whole, rank, files.len());
                let theirs = put_together(std::slice::from_ref(file), name)?;
                // One after the other, slices with other ends would be the same numbers: so their
                // lengths, too.
                lesson.push(mine.len() as f32);
                lesson.extend_from_slice(mine);
                library.push(theirs.len() as f32);
                library.extend(theirs);
            }
        }
    }
    Ok(Beside::of(&Comm::alone(), &lesson, &library, 0.0)?)
}
