//! lab02-divide · Divided by what?
//!
//! In three jobs with two ranks each, backward passes have given these gradients for one parameter. A rank adds up those of
//! its micro-batches, and an all-reduce adds up the ranks' sums. So both ranks have 40, in each job. By what does a job divide
//! it? The optimizer needs the gradient of the mean loss per sequence, as if one rank had computed all sequences at once.
//!
//! ```text
//!      sequences in each          a micro-batch's    gradients           after the
//!      micro-batch                loss is            rank 0   rank 1     all-reduce
//! A    4                          their mean         14       26             40
//! B    4                          their mean         5, 9     12, 14         40
//! C    3 on rank 0, 5 on rank 1   their sum          14       26             40
//! ```

/// What the jobs A, B and C divide by, in this order.
pub fn divisors() -> [usize; 3] {
    todo!("three numbers: each job divides its 40 by one of them")
}
