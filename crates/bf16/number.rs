//! Factors' elements, and their rounding to bf16.

use crate::matrix::Matrix;
use half::bf16;

/// An element of a factor.
pub trait Number: Copy + sealed::Sealed {
    /// The bf16 that it is rounded to, in the upper half of 32 bits: the bits of the same number in
    /// f32.
    fn rounded(self) -> u32;

    /// A factor of such elements.
    fn factor(matrix: Matrix<Self>) -> Factor;

    /// Both rounded, as the instruction takes them: the one at the even position in the lower half.
    fn pair(even: Self, odd: Self) -> u32;

    /// The same numbers, if they are f32.
    fn f32s(numbers: &[Self]) -> Option<&[f32]>;
}

/// A factor of a product.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    F32(Matrix<'a>),
    Bf16(Matrix<'a, bf16>),
}

impl Factor<'_> {
    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Factor::F32(x) => x.shape(),
            Factor::Bf16(x) => x.shape(),
        }
    }
}

const SIGN: u32 = 0x8000_0000;
const EXPONENT: u32 = 0x7f80_0000;
const QUIET: u32 = 0x0040_0000;

impl Number for f32 {
    #[inline(always)]
    fn rounded(self) -> u32 {
        let bits = self.to_bits();
        let half_of_the_last = 0x7fff + (bits >> 16 & 1); // a tie goes to the even number
        let rounded = bits.wrapping_add(half_of_the_last);
        let normal = if bits & EXPONENT == 0 { bits & SIGN } else { rounded };
        let number = if bits & !SIGN > EXPONENT { bits | QUIET } else { normal };
        number & 0xffff_0000
    }

    fn factor(matrix: Matrix<f32>) -> Factor {
        Factor::F32(matrix)
    }

    #[inline(always)]
    fn pair(even: f32, odd: f32) -> u32 {
        pair(even.rounded(), odd.rounded())
    }

    #[inline(always)]
    fn f32s(numbers: &[f32]) -> Option<&[f32]> {
        Some(numbers)
    }
}

impl Number for bf16 {
    #[inline(always)]
    fn rounded(self) -> u32 {
        let bits = u32::from(self.to_bits()) << 16;
        if bits & EXPONENT == 0 { bits & SIGN } else { bits }
    }

    fn factor(matrix: Matrix<bf16>) -> Factor {
        Factor::Bf16(matrix)
    }

    #[inline(always)]
    fn pair(even: bf16, odd: bf16) -> u32 {
        // Neighbours lie in memory as a pair does.
        let both = u32::from(even.to_bits()) | u32::from(odd.to_bits()) << 16;
        both & normal(both)
    }

    #[inline(always)]
    fn f32s(_numbers: &[bf16]) -> Option<&[f32]> {
        None
    }
}

/// The bits of a pair that remain if numbers below the normal range become zeros of their sign.
#[inline(always)]
fn normal(pair: u32) -> u32 {
    let even = if pair & EXPONENT >> 16 == 0 { SIGN >> 16 } else { 0xffff };
    let odd = if pair & EXPONENT == 0 { SIGN } else { 0xffff_0000 };
    even | odd
}

/// Two numbers that the instruction takes together: the one at the even position in the lower half.
#[inline(always)]
pub fn pair(even: u32, odd: u32) -> u32 {
    even >> 16 | odd
}

/// The numbers of a [`pair`], at the even and at the odd position.
#[inline(always)]
pub fn unpaired(pair: u32) -> [f32; 2] {
    [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)]
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
}
