//! What can be sent and added: eight number types, five reductions.

use crate::simd::vectorized;
use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use std::ops::Range;

/// The number types that a [`Comm`](super::Comm) moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    I32,
    I64,
    U64,
    U8,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
        }
    }

    /// Whether the mean of values of this type is a value of this type.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
    }

    /// The type's name as Rust spells it.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::U64 => "u64",
            Dtype::U8 => "u8",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
        }
    }
}

/// How the ranks' values are combined, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Integers wrap around on overflow, as MPI's do.
    Sum,
    Min,
    Max,
    Prod,
    /// Sum divided by the number of ranks; floats only.
    Mean,
}

impl Reduce {
    /// The reduction's name as messages print it.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Min => "min",
            Reduce::Max => "max",
            Reduce::Prod => "prod",
            Reduce::Mean => "mean",
        }
    }
}

/// A number that ranks can exchange and reduce.
///
/// `Wide` is the type that arithmetic is done in: half types are added in f32 and rounded once, at the end.
pub trait Element: Pod + Send + Sync {
    type Wide: Pod + Send + Sync;
    const DTYPE: Dtype;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// `a op b`; [`Reduce::Mean`] adds here and is divided by [`Element::divide`] at the end.
    fn combine(op: Reduce, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `sum / ranks`; never called for integers, which have no mean.
    fn divide(sum: Self::Wide, ranks: usize) -> Self::Wide;
}

macro_rules! float {
    ($type:ty, $wide:ty, $dtype:expr, $widen:expr, $narrow:expr) => {
        impl Element for $type {
            type Wide = $wide;
            const DTYPE: Dtype = $dtype;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> $type {
                $narrow(wide)
            }
            #[inline(always)]
            fn combine(op: Reduce, a: $wide, b: $wide) -> $wide {
                match op {
                    Reduce::Sum | Reduce::Mean => a + b,
                    Reduce::Prod => a * b,
                    // NaN wins: a rank that overflowed must not be outvoted by the others.
                    Reduce::Min if b < a || b.is_nan() => b,
                    Reduce::Max if b > a || b.is_nan() => b,
                    Reduce::Min | Reduce::Max => a,
                }
            }
            #[inline(always)]
            fn divide(sum: $wide, ranks: usize) -> $wide {
                sum / ranks as $wide
            }
        }
    };
}

float!(f16, f32, Dtype::F16, f16::to_f32, f16::from_f32);
float!(bf16, f32, Dtype::Bf16, bf16::to_f32, bf16::from_f32);
float!(f32, f32, Dtype::F32, |x| x, |x| x);
float!(f64, f64, Dtype::F64, |x| x, |x| x);

macro_rules! integer {
    ($type:ty, $dtype:expr) => {
        impl Element for $type {
            type Wide = $type;
            const DTYPE: Dtype = $dtype;

            fn widen(self) -> $type {
                self
            }
            fn narrow(wide: $type) -> $type {
                wide
            }
            #[inline(always)]
            fn combine(op: Reduce, a: $type, b: $type) -> $type {
                match op {
                    Reduce::Sum | Reduce::Mean => a.wrapping_add(b),
                    Reduce::Prod => a.wrapping_mul(b),
                    Reduce::Min => a.min(b),
                    Reduce::Max => a.max(b),
                }
            }
            fn divide(sum: $type, _ranks: usize) -> $type {
                sum
            }
        }
    };
}

integer!(i32, Dtype::I32);
integer!(i64, Dtype::I64);
integer!(u64, Dtype::U64);
integer!(u8, Dtype::U8);

/// What is to be done with the ranks' parts of a vector.
pub struct Reduction {
    pub dtype: Dtype,
    pub op: Reduce,
    /// The ranks whose parts the result replaces.
    pub into: Range<usize>,
}

/// All ranks' parts of a vector: as many elements of each, as bytes that are aligned as their type is.
pub trait Parts {
    fn ranks(&self) -> usize;
    /// The bytes of one part.
    fn bytes(&self) -> usize;
    fn of(&mut self, rank: usize) -> &mut [u8];
    /// Two different ranks' parts.
    fn two(&mut self, ranks: [usize; 2]) -> [&mut [u8]; 2];
}

/// What is to be done with vectors of all ranks, which are all of one length.
pub enum Work {
    Reduce(Reduction),
    /// The vectors consist of one part for each rank; part r is reduced into rank r's vector.
    ReduceScatter(Dtype, Reduce),
    /// As there; rank r's part r is copied into all others.
    AllGather,
}

/// Runs a function that is generic over the element type.
macro_rules! by_type {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            Dtype::I32 => $function::<i32>($($argument),*),
            Dtype::I64 => $function::<i64>($($argument),*),
            Dtype::U64 => $function::<u64>($($argument),*),
            Dtype::U8 => $function::<u8>($($argument),*),
            Dtype::F16 => $function::<f16>($($argument),*),
            Dtype::Bf16 => $function::<bf16>($($argument),*),
            Dtype::F32 => $function::<f32>($($argument),*),
            Dtype::F64 => $function::<f64>($($argument),*),
        }
    };
}

/// Combines the ranks' parts in rank order, and puts the result in their place.
///
/// Because every element is combined in rank order whatever the length, a result does not depend on how a vector is cut
/// into blocks, buckets or shards.
pub fn all_reduce_in_rank_order(how: &Reduction, parts: &mut dyn Parts) {
    by_type!(how.dtype, all_reduce_typed(how, parts))
}

/// Copies `from`'s part over all others'.
pub fn copy_to_all(from: usize, parts: &mut dyn Parts) {
    for to in (0..parts.ranks()).filter(|&to| to != from) {
        let [from, to] = parts.two([from, to]);
        to.copy_from_slice(from);
    }
}

/// Combines the ranks' parts in rank order: `out[i] = of(0)[i] op of(1)[i] op …`; parts as in [`Parts`].
pub fn reduce_in_rank_order<'a>(
    dtype: Dtype,
    op: Reduce,
    ranks: usize,
    of: &dyn Fn(usize) -> &'a [u8],
    out: &mut [u8],
) {
    by_type!(dtype, reduce_typed(op, ranks, of, out))
}

/// Elements whose sums stay in the first-level cache while all ranks' parts are added.
const BLOCK: usize = 1024;

fn all_reduce_typed<T: Element>(how: &Reduction, parts: &mut dyn Parts) {
    let (ranks, bytes, block) = (parts.ranks(), parts.bytes(), BLOCK * size_of::<T>());
    if ranks == 2 && how.into == (0..2) {
        let [a, b] = parts.two([0, 1]).map(bytemuck::cast_slice_mut::<u8, T>);
        return vectorized((how.op, a, b), both_typed);
    }
    let mut sum = [T::Wide::zeroed(); BLOCK];
    for start in (0..bytes).step_by(block) {
        let range = start..bytes.min(start + block);
        let sum = &mut sum[..range.len() / size_of::<T>()];
        for rank in 0..ranks {
            let part: &[T] = bytemuck::cast_slice(&parts.of(rank)[range.clone()]);
            vectorized((how.op, rank, &mut *sum, part), add);
        }
        for rank in how.into.clone() {
            let out: &mut [T] = bytemuck::cast_slice_mut(&mut parts.of(rank)[range.clone()]);
            vectorized((how.op, ranks, &*sum, out), finish);
        }
    }
}

fn reduce_typed<'a, T: Element>(op: Reduce, ranks: usize, of: &dyn Fn(usize) -> &'a [u8], out: &mut [u8]) {
    let mut sum = [T::Wide::zeroed(); BLOCK];
    for (block, out) in bytemuck::cast_slice_mut::<u8, T>(out).chunks_mut(BLOCK).enumerate() {
        let (sum, start) = (&mut sum[..out.len()], block * BLOCK);
        for rank in 0..ranks {
            let part: &[T] = bytemuck::cast_slice(of(rank));
            vectorized((op, rank, &mut *sum, &part[start..start + out.len()]), add);
        }
        vectorized((op, ranks, &*sum, out), finish);
    }
}

/// Calls a loop with the reduction as a constant: the compiler vectorises what does not choose.
macro_rules! by_op {
    ($op:expr, $loop:ident($($argument:expr),*)) => {
        match $op {
            Reduce::Sum => $loop(Reduce::Sum, $($argument),*),
            Reduce::Mean => $loop(Reduce::Mean, $($argument),*),
            Reduce::Min => $loop(Reduce::Min, $($argument),*),
            Reduce::Max => $loop(Reduce::Max, $($argument),*),
            Reduce::Prod => $loop(Reduce::Prod, $($argument),*),
        }
    };
}

/// `sum[i] op= part[i]`; the first rank's part is where it begins.
#[inline(always)]
fn add<T: Element>((op, rank, sum, part): (Reduce, usize, &mut [T::Wide], &[T])) {
    #[inline(always)]
    fn each<T: Element>(op: Reduce, sum: &mut [T::Wide], part: &[T]) {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum = T::combine(op, *sum, x.widen()));
    }
    if rank == 0 {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum = x.widen());
    } else {
        by_op!(op, each(sum, part))
    }
}

/// `out[i] = sum[i]`, or for a mean that divided by the number of ranks.
#[inline(always)]
fn finish<T: Element>((op, ranks, sum, out): (Reduce, usize, &[T::Wide], &mut [T])) {
    #[inline(always)]
    fn each<T: Element>(op: Reduce, ranks: usize, sum: &[T::Wide], out: &mut [T]) {
        out.iter_mut().zip(sum).for_each(|(out, &sum)| *out = result(op, ranks, sum));
    }
    by_op!(op, each(ranks, sum, out))
}

#[inline(always)]
fn result<T: Element>(op: Reduce, ranks: usize, sum: T::Wide) -> T {
    T::narrow(if op == Reduce::Mean { T::divide(sum, ranks) } else { sum })
}

/// The same with two ranks, without a detour: `a[i] = b[i] = a[i] op b[i]`.
#[inline(always)]
fn both_typed<T: Element>((op, a, b): (Reduce, &mut [T], &mut [T])) {
    #[inline(always)]
    fn each<T: Element>(op: Reduce, a: &mut [T], b: &mut [T]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = result(op, 2, T::combine(op, a.widen(), b.widen()));
            *b = *a;
        }
    }
    by_op!(op, each(a, b))
}

/// The elements in a slice of bytes, which need not be aligned: they may have travelled as bytes.
#[cfg(feature = "mpi")]
pub(super) fn elements<T: Element>(bytes: &[u8]) -> impl Iterator<Item = T> + '_ {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Element>(op: Reduce, parts: &[&[T]]) -> Vec<T> {
        let mut out = vec![T::zeroed(); parts[0].len()];
        let of = |rank: usize| bytemuck::cast_slice(parts[rank]);
        reduce_in_rank_order(T::DTYPE, op, parts.len(), &of, bytemuck::cast_slice_mut(&mut out));
        out
    }

    #[test]
    fn half_types_are_rounded_once() {
        // 2048 + 1 is not an f16, so rounding after each addition would never leave 2048.
        let x = |v: f32| vec![f16::from_f32(v)];
        let parts = [x(2048.0), x(1.0), x(1.0), x(1.0), x(1.0)];
        let parts: Vec<&[f16]> = parts.iter().map(|p| &p[..]).collect();
        assert_eq!(reduce(Reduce::Sum, &parts)[0].to_f32(), 2052.0);
    }

    #[test]
    fn order_is_rank_order() {
        // (1e8 + 1) - 1e8 is 0 in f32, and 1 if the two large values meet first.
        assert_eq!(reduce(Reduce::Sum, &[&[1e8f32], &[1.0], &[-1e8]]), [0.0]);
        assert_eq!(reduce(Reduce::Sum, &[&[1e8f32], &[-1e8], &[1.0]]), [1.0]);
    }

    #[test]
    fn nan_wins_min_and_max_wherever_it_stands() {
        for op in [Reduce::Min, Reduce::Max] {
            assert!(reduce(op, &[&[1.0f32], &[f32::NAN], &[2.0]])[0].is_nan());
            assert!(reduce(op, &[&[f32::NAN], &[1.0f32], &[2.0]])[0].is_nan());
        }
    }
}
