//! The types that weights and gradients are stored in. Arithmetic is f32 whatever they are: a number is widened when it is
//! read, and rounded when it is written.

use super::math::vectorized;
use crate::comm::Element;
use crate::plan::BytesEach;
use half::bf16;

/// A storage type of values and gradients, as a flag names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Precision {
    /// 4 bytes a number.
    #[default]
    F32,
    /// 2 bytes: f32's exponent and 8 bits of its 24. The optimizer then keeps an f32 copy of the weights, its master: steps
    /// are smaller than what bf16 can tell apart.
    Bf16,
}

impl Precision {
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        }
    }

    /// How far losses may be apart when gradients are added in another order.
    pub fn loss_bound(self) -> f64 {
        match self {
            Precision::F32 => 1e-5,
            Precision::Bf16 => 1e-3,
        }
    }

    /// Bytes of one parameter's numbers in training, the optimizer's included.
    pub fn bytes_each(self) -> BytesEach {
        match self {
            Precision::F32 => BytesEach::F32,
            Precision::Bf16 => BytesEach::MIXED,
        }
    }

    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }
}

/// Numbers in either type.
pub enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

/// A storage type of values and gradients.
pub trait Stored: Element<Wide = f32> {
    const PRECISION: Precision;

    /// The numbers, if they are of this type.
    fn of(numbers: &Numbers) -> Option<&Vec<Self>>;
    /// The numbers, to be changed, if they are of this type.
    fn of_mut(numbers: &mut Numbers) -> Option<&mut Vec<Self>>;
    /// Forgets the type.
    fn numbers(numbers: Vec<Self>) -> Numbers;
    /// The nearest numbers of this type.
    fn rounded(numbers: Vec<f32>) -> Vec<Self>;
    /// Calls `read` with all numbers as f32, in pieces.
    fn read(numbers: &[Self], read: impl FnMut(&[f32]));
    /// Lets `change` work on the numbers as f32.
    fn change(numbers: &mut [Self], change: impl FnOnce(&mut [f32]));
}

impl Stored for f32 {
    const PRECISION: Precision = Precision::F32;

    fn of(numbers: &Numbers) -> Option<&Vec<f32>> {
        if let Numbers::F32(numbers) = numbers { Some(numbers) } else { None }
    }

    fn of_mut(numbers: &mut Numbers) -> Option<&mut Vec<f32>> {
        if let Numbers::F32(numbers) = numbers { Some(numbers) } else { None }
    }

    fn numbers(numbers: Vec<f32>) -> Numbers {
        Numbers::F32(numbers)
    }

    fn rounded(numbers: Vec<f32>) -> Vec<f32> {
        numbers
    }

    fn read(numbers: &[f32], mut read: impl FnMut(&[f32])) {
        read(numbers);
    }

    fn change(numbers: &mut [f32], change: impl FnOnce(&mut [f32])) {
        change(numbers);
    }
}

/// Numbers that are widened at a time, where they are only read: a copy that stays in the first-level cache.
const PIECE: usize = 2048;

impl Stored for bf16 {
    const PRECISION: Precision = Precision::Bf16;

    fn of(numbers: &Numbers) -> Option<&Vec<bf16>> {
        if let Numbers::Bf16(numbers) = numbers { Some(numbers) } else { None }
    }

    fn of_mut(numbers: &mut Numbers) -> Option<&mut Vec<bf16>> {
        if let Numbers::Bf16(numbers) = numbers { Some(numbers) } else { None }
    }

    fn numbers(numbers: Vec<bf16>) -> Numbers {
        Numbers::Bf16(numbers)
    }

    fn rounded(numbers: Vec<f32>) -> Vec<bf16> {
        let mut rounded = vec![bf16::ZERO; numbers.len()];
        narrow(&numbers, &mut rounded);
        rounded
    }

    fn read(numbers: &[bf16], mut read: impl FnMut(&[f32])) {
        let mut wide = [0.0; PIECE];
        for piece in numbers.chunks(PIECE) {
            let wide = &mut wide[..piece.len()];
            widen(piece, wide);
            read(wide);
        }
    }

    fn change(numbers: &mut [bf16], change: impl FnOnce(&mut [f32])) {
        let mut wide = vec![0.0; numbers.len()];
        widen(numbers, &mut wide);
        change(&mut wide);
        narrow(&wide, numbers);
    }
}

/// The same numbers as f32.
pub fn widen<T: Stored>(from: &[T], to: &mut [f32]) {
    #[inline(always)]
    fn each<T: Stored>((from, to): (&[T], &mut [f32])) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widen());
    }
    vectorized((from, to), each);
}

/// The nearest numbers that can be stored.
pub fn narrow<T: Stored>(from: &[f32], to: &mut [T]) {
    #[inline(always)]
    fn each<T: Stored>((from, to): (&[f32], &mut [T])) {
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::narrow(from));
    }
    vectorized((from, to), each);
}

/// `sum += more`, rounded once.
pub fn add<T: Stored>(sum: &mut [T], more: &[T]) {
    #[inline(always)]
    fn each<T: Stored>((sum, more): (&mut [T], &[T])) {
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = T::narrow(sum.widen() + more.widen()));
    }
    vectorized((sum, more), each);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_written_rounded() {
        let numbers: Vec<f32> = (0..5000).map(|i| (i as f32).sin()).collect();
        let mut stored = vec![bf16::ZERO; 5000];
        narrow(&numbers, &mut stored);
        let mut read = Vec::new();
        bf16::read(&stored, |stretch| read.extend_from_slice(stretch));
        for (read, written) in read.iter().zip(&numbers) {
            // Half of the last of 8 bits.
            assert!((read - written).abs() <= written.abs() / 256.0, "{read} for {written}");
        }
        bf16::change(&mut stored, |numbers| numbers.iter_mut().for_each(|x| *x *= -2.0));
        assert!(stored.iter().zip(&read).all(|(stored, read)| stored.to_f32() == -2.0 * read));
    }
}
