//! lab08-blocks · One scale for many numbers
//!
//! fp8 e4m3 has 4 significant bits, and numbers from 2^-9 to 448. What is too large becomes NaN,
//! and what is too small becomes 0. So numbers that are stored in it share a scale, an f32: each is
//! divided by it, rounded, and multiplied by it again where it is used. Take the scale with which
//! the largest number of its group, of either sign, becomes 448. Who shares a scale is a choice.
//! These are two rows of 4 numbers, and what comes back:
//!
//! ```text
//!             896  1.3   0.001   -2.1      0.5  -0.001    0.06    0.25
//!  Tensor     896  1.25  0       -2        0.5   0        0.0586  0.25
//!  Row        896  1.25  0       -2        0.5  -0.00098  0.0580  0.25
//!  Block(2)   896  1.25  0.00103 -2.1      0.5  -0.00098  0.0580  0.25
//! ```
//!
//! A block is so many neighbours in a row, and the last one of a row may be shorter. Write
//! `stored`, and then say what one outlier does. The check emulates: the numbers are fp8's, and the
//! arithmetic is f32's.

/// The numbers that share a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Group {
    Tensor,
    Row,
    Block(usize),
}

/// The nearest number of fp8 e4m3: NaN beyond 448.
pub fn e4m3(x: f32) -> f32 {
    let exponent = (x.to_bits() >> 23 & 0xff) as i32 - 127;
    let apart = 2f32.powi(exponent.max(-6) - 3);
    let rounded = (x / apart).round_ties_even() * apart;
    if rounded.abs() > 448.0 { f32::NAN } else { rounded }
}

/// What comes back of `x`, rows of `cols` numbers.
pub fn stored(x: &[f32], cols: usize, group: Group) -> Vec<f32> {
    todo!("{} numbers in rows of {cols}, by {group:?}, such as {}", x.len(), e4m3(x[0]))
}

/// One number of 1,024 rows of 4,096 becomes a million times as large: how many others lose digits
/// with a scale per tensor, per row, per 128 numbers and per 32?
pub fn ruined() -> [usize; 4] {
    todo!("four numbers")
}
