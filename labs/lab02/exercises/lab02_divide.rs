//! lab02-divide · Divided by what?
//!
//! Each rank adds up the gradients of two batches. An all-reduce adds up the ranks' sums. A batch's
//! loss is the mean over its 4 samples. By what must 60 be divided, to get the gradient of the mean
//! over all samples?
//!
//! ```text
//! rank 0     5 +  9
//! rank 1    12 + 14
//! rank 2     8 + 12        all-reduce: 60
//! ```

pub fn divisor() -> usize {
    todo!("60 is divided by this")
}
