//! lab06-bubble · A rank's waits, on paper
//!
//! A pipeline of 9 ranks, 10 micro-batches, GPipe. On each rank a forward pass takes 2 ms, a
//! backward pass 3 ms. How long does rank 2 wait in a step, all its waits together?
//!
//! ```text
//! ms        0   2   4   6   8
//! rank 0    F0  F1  F2  F3  F4  …
//! rank 1        F0  F1  F2  F3  …
//! rank 2            F0  F1  F2  …    waits ? ms
//! ```

pub fn waits() -> u64 {
    todo!("a number of ms")
}
