//! The types in which weights and gradients are stored. Arithmetic is always f32: reading a stored
//! number widens it, and writing rounds it.

use super::math::vectorized;
use crate::comm::Element;
use crate::named::named;
use crate::plan::BytesEach;
use half::bf16;

named! {
    /// A storage type of values and gradients.
    pub enum Precision by default F32 {
        /// 4 bytes per number.
        F32 = "f32",
        /// 2 bytes: f32's exponent and 8 of its 24 significant bits. The optimizer then keeps an
        /// f32 master copy of the weights: most steps are too small to change a bf16 number.
        Bf16 = "bf16",
    }
}

/// Evaluates `$value`, in which `$T` is the type of `$precision`. It is a macro because a generic
/// function would have a location of its own, and a collective reports its caller's.
macro_rules! by_precision {
    ($precision:expr, $T:ident => $value:expr) => {
        match $precision {
            $crate::tensor::Precision::F32 => {
                type $T = f32;
                $value
            }
            $crate::tensor::Precision::Bf16 => {
                type $T = half::bf16;
                $value
            }
        }
    };
}
pub(crate) use by_precision;

impl Precision {
    /// Bytes per parameter in training, with gradients that are kept as `gradients` and with the
    /// optimizer's numbers: two moments, and beside a bf16 parameter its master copy.
    pub fn bytes_each(self, gradients: Precision) -> BytesEach {
        let optimizer = match self {
            Precision::F32 => BytesEach::F32.optimizer,
            Precision::Bf16 => BytesEach::MIXED.optimizer,
        };
        BytesEach {
            parameter: self.bytes() as u64,
            gradient: gradients.bytes() as u64,
            optimizer,
        }
    }

    /// The nearest numbers that the type has.
    pub fn rounded(self, numbers: &[f32]) -> Vec<f32> {
        match self {
            Precision::F32 => numbers.to_vec(),
            Precision::Bf16 => bf16::widened(bf16::narrowed(numbers)),
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

/// Numbers in one of the two types.
pub enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

/// A storage type of values and gradients.
pub trait Stored: Element<Wide = f32> {
    const PRECISION: Precision;

    /// The numbers if they have this type.
    fn of(numbers: &Numbers) -> Option<&Vec<Self>>;
    /// The numbers if they have this type, to be changed.
    fn of_mut(numbers: &mut Numbers) -> Option<&mut Vec<Self>>;
    /// Wraps numbers of this type.
    fn numbers(numbers: Vec<Self>) -> Numbers;
    /// The nearest numbers that can be stored.
    fn narrowed(numbers: &[f32]) -> Vec<Self>;
    /// Stored numbers as f32.
    fn widened(numbers: Vec<Self>) -> Vec<f32>;
    /// Calls `read` with all numbers as f32, chunk by chunk.
    fn read(numbers: &[Self], read: impl FnMut(&[f32]));
    /// Calls `change` with all numbers as f32, and stores the result.
    fn change(numbers: &mut [Self], change: impl FnOnce(&mut [f32]));
}

impl Stored for f32 {
    const PRECISION: Precision = Precision::F32;

    fn of(numbers: &Numbers) -> Option<&Vec<f32>> {
        match numbers {
            Numbers::F32(numbers) => Some(numbers),
            Numbers::Bf16(_) => None,
        }
    }

    fn of_mut(numbers: &mut Numbers) -> Option<&mut Vec<f32>> {
        match numbers {
            Numbers::F32(numbers) => Some(numbers),
            Numbers::Bf16(_) => None,
        }
    }

    fn numbers(numbers: Vec<f32>) -> Numbers {
        Numbers::F32(numbers)
    }

    fn narrowed(numbers: &[f32]) -> Vec<f32> {
        numbers.to_vec()
    }

    fn widened(numbers: Vec<f32>) -> Vec<f32> {
        numbers
    }

    fn read(numbers: &[f32], mut read: impl FnMut(&[f32])) {
        read(numbers);
    }

    fn change(numbers: &mut [f32], change: impl FnOnce(&mut [f32])) {
        change(numbers);
    }
}

/// The numbers that a read widens at a time. The copy stays in the first-level cache.
const CHUNK: usize = 2048;

impl Stored for bf16 {
    const PRECISION: Precision = Precision::Bf16;

    fn of(numbers: &Numbers) -> Option<&Vec<bf16>> {
        match numbers {
            Numbers::Bf16(numbers) => Some(numbers),
            Numbers::F32(_) => None,
        }
    }

    fn of_mut(numbers: &mut Numbers) -> Option<&mut Vec<bf16>> {
        match numbers {
            Numbers::Bf16(numbers) => Some(numbers),
            Numbers::F32(_) => None,
        }
    }

    fn numbers(numbers: Vec<bf16>) -> Numbers {
        Numbers::Bf16(numbers)
    }

    fn narrowed(numbers: &[f32]) -> Vec<bf16> {
        let mut narrow = vec![bf16::ZERO; numbers.len()];
        self::narrow(numbers, &mut narrow);
        narrow
    }

    fn widened(numbers: Vec<bf16>) -> Vec<f32> {
        let mut wide = vec![0.0; numbers.len()];
        widen(&numbers, &mut wide);
        wide
    }

    fn read(numbers: &[bf16], mut read: impl FnMut(&[f32])) {
        let mut wide = [0.0; CHUNK];
        for chunk in numbers.chunks(CHUNK) {
            let wide = &mut wide[..chunk.len()];
            widen(chunk, wide);
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

/// Writes the stored numbers as f32.
pub fn widen<T: Stored>(from: &[T], to: &mut [f32]) {
    #[inline(always)]
    fn each<T: Stored>((from, to): (&[T], &mut [f32])) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widen());
    }
    vectorized!((from, to), each);
}

/// Rounds to the nearest numbers that can be stored.
pub fn narrow<T: Stored>(from: &[f32], to: &mut [T]) {
    #[inline(always)]
    fn each<T: Stored>((from, to): (&[f32], &mut [T])) {
        to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::narrow(from));
    }
    vectorized!((from, to), each);
}

/// `sum += more`, with one rounding.
pub fn add<T: Stored>(sum: &mut [T], more: &[T]) {
    #[inline(always)]
    fn each<T: Stored>((sum, more): (&mut [T], &[T])) {
        sum.iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum = T::narrow(sum.widen() + more.widen()));
    }
    vectorized!((sum, more), each);
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
        bf16::read(&stored, |chunk| read.extend_from_slice(chunk));
        for (read, written) in read.iter().zip(&numbers) {
            // Half of the last of 8 bits.
            assert!((read - written).abs() <= written.abs() / 256.0, "{read} for {written}");
        }
        bf16::change(&mut stored, |numbers| numbers.iter_mut().for_each(|x| *x *= -2.0));
        assert!(stored.iter().zip(&read).all(|(stored, read)| stored.to_f32() == -2.0 * read));
    }
}
