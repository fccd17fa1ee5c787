//! lab04-holds · What one rank holds
//!
//! Ten ranks train 15 billion parameters in f32, with AdamW and ZeRO's stage 2. What does each rank
//! hold of these?
//!
//! ```text
//!                   the whole    one of 10 ranks
//! parameters            60 GB
//! gradients             60 GB
//! AdamW's moments      120 GB    in all: ? GB
//! ```

pub fn one_rank() -> u64 {
    todo!("a number of GB")
}
