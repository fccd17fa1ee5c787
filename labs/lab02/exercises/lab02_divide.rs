//! lab02-divide · Divided by what?
//!
//! In three jobs with two ranks each, backward passes have given these gradients for one parameter. A rank adds up those of
//! its micro-batches, and an all-reduce adds up the ranks' sums. So both ranks have 40, in each job. By what does a job divide
//! it? The optimizer needs the gradient of the mean loss per sequence, as if one rank had computed all sequences at once.
//!
//! ```text
//!     sequences of each         its loss      gradients of all      after the
//!     micro-batch               is their      micro-batches         all-reduce
//! A   4                         mean          rank 0: 14            40
//!                                             rank 1: 26
//! B   4                         mean          rank 0: 5 and 9       40
//!                                             rank 1: 12 and 14
//! C   3 on rank 0, 5 on rank 1  sum           rank 0: 14            40
//!                                             rank 1: 26
//! ```

/// What the jobs A, B and C divide by, in this order.
pub fn divisors() -> [usize; 3] {
    todo!("three numbers: each job divides its 40 by one of them")
}
