//! The numbers that ranks exchange: eight types, five reductions.

use crate::named::named;
use crate::simd::vectorized;
use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::ops::{Add, Mul, Range};

named! {
    /// The number types that a [`Comm`](super::Comm) moves.
    #[derive(Serialize, Deserialize)]
    pub enum Dtype {
        I32 = "i32",
        I64 = "i64",
        U64 = "u64",
        U8 = "u8",
        F16 = "f16",
        Bf16 = "bf16",
        F32 = "f32",
        F64 = "f64",
    }
}

/// Evaluates an expression with the element type of a [`Dtype`] in place of `$T`.
macro_rules! by_type {
    ($dtype:expr, $T:ident => $value:expr) => {
        by_type!($dtype, $T => $value, I32 i32, I64 i64, U64 u64, U8 u8, F16 half::f16, Bf16 half::bf16, F32 f32, F64 f64)
    };
    ($dtype:expr, $T:ident => $value:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $($crate::comm::Dtype::$name => {
                type $T = $type;
                $value
            })*
        }
    };
}

impl Dtype {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        by_type!(self, T => size_of::<T>())
    }

    /// Whether the mean of values of this type is a value of this type.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
    }
}

named! {
    /// How the ranks' values are combined, element by element.
    #[derive(Serialize, Deserialize)]
    pub enum Reduce {
        /// Integers wrap around on overflow, as MPI's do.
        Sum = "sum",
        Min = "min",
        Max = "max",
        Prod = "prod",
        /// Sum divided by the number of ranks; floats only.
        Mean = "mean",
    }
}

/// A number that ranks can exchange and reduce.
///
/// Arithmetic uses the type `Wide`: sums of half types are in f32 and rounded once, at the end.
pub trait Element: Pod + Send + Sync {
    type Wide: Pod + Send + Sync;
    const DTYPE: Dtype;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// `a op b`. [`Reduce::Mean`] adds here, and [`Element::divide`] divides at the end.
    fn combine(op: Reduce, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `sum / ranks`. Integers have no mean, so nothing calls it for them.
    fn divide(sum: Self::Wide, ranks: usize) -> Self::Wide;
}

macro_rules! element {
    ($type:ty as $wide:ty, $dtype:ident, $widen:expr, $narrow:expr, $add:expr, $mul:expr, $min:expr, $max:expr, $divide:expr) => {
        impl Element for $type {
            type Wide = $wide;
            const DTYPE: Dtype = Dtype::$dtype;

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
                    Reduce::Sum | Reduce::Mean => $add(a, b),
                    Reduce::Prod => $mul(a, b),
                    Reduce::Min => $min(a, b),
                    Reduce::Max => $max(a, b),
                }
            }
            #[inline(always)]
            fn divide(sum: $wide, ranks: usize) -> $wide {
                $divide(sum, ranks)
            }
        }
    };
}

/// Of two floats the one that `takes_second` chooses by their order, in which 0.0 is above -0.0: so
/// the result has the same bits in whatever order ranks are combined. NaN wins: the other ranks
/// must not outvote a rank that overflowed.
macro_rules! extreme {
    ($wide:ty, $takes_second:ident) => {
        |a: $wide, b: $wide| {
            if a.is_nan() || b.is_nan() {
                <$wide>::NAN
            } else if b.total_cmp(&a).$takes_second() {
                b
            } else {
                a
            }
        }
    };
}

macro_rules! float {
    ($type:ty as $wide:ty, $dtype:ident, $widen:expr, $narrow:expr) => {
        element!(
            $type as $wide,
            $dtype,
            $widen,
            $narrow,
            Add::add,
            Mul::mul,
            extreme!($wide, is_lt),
            extreme!($wide, is_gt),
            |sum, ranks| sum / ranks as $wide
        );
    };
}

macro_rules! integer {
    ($type:ty, $dtype:ident) => {
        element!(
            $type as $type,
            $dtype,
            |x| x,
            |x| x,
            <$type>::wrapping_add,
            <$type>::wrapping_mul,
            std::cmp::min,
            std::cmp::max,
            |sum, _| { sum }
        );
    };
}

float!(f16 as f32, F16, f16::to_f32, f16::from_f32);
float!(bf16 as f32, Bf16, bf16::to_f32, bf16::from_f32);
float!(f32 as f32, F32, |x| x, |x| x);
float!(f64 as f64, F64, |x| x, |x| x);
integer!(i32, I32);
integer!(i64, I64);
integer!(u64, U64);
integer!(u8, U8);

/// All ranks' parts of a vector, equally long, as bytes that are aligned as their type is.
pub trait Parts {
    fn ranks(&self) -> usize;
    /// Bytes of one part.
    fn bytes(&self) -> usize;
    fn of(&mut self, rank: usize) -> &mut [u8];
    /// Two different ranks' parts.
    fn two(&mut self, ranks: [usize; 2]) -> [&mut [u8]; 2];
    /// Counts bytes that were read in `from`'s memory for a different rank's.
    fn count(&mut self, from: usize, bytes: usize);
}

/// Overwrites all other ranks' parts with `from`'s part.
pub fn copy_to_all(from: usize, parts: &mut dyn Parts) {
    for to in (0..parts.ranks()).filter(|&to| to != from) {
        let [source, copy] = parts.two([from, to]);
        copy.copy_from_slice(source);
        let bytes = copy.len();
        parts.count(from, bytes);
    }
}

/// Elements whose sums stay in the first-level cache while all ranks' parts are added.
const BLOCK: usize = 1024;

/// Combines the ranks' parts in rank order, and overwrites the parts of the ranks `into` with the
/// result.
///
/// Every element is combined in rank order, whatever the length. So a result does not depend on how
/// a vector is cut into blocks, buckets or shards.
///
/// The result counts as made in the memory of rank `home`: the other ranks' parts go there, and
/// copies of it leave from there.
pub fn all_reduce_in_rank_order<T: Element>(
    op: Reduce,
    home: usize,
    into: Range<usize>,
    parts: &mut dyn Parts,
) {
    let ranks = parts.ranks();
    let bytes = parts.bytes();
    let block = BLOCK * size_of::<T>();
    if ranks == 2 && into == (0..2) {
        let [a, b] = parts.two([0, 1]).map(bytemuck::cast_slice_mut::<u8, T>);
        vectorized!((op, a, b), both_typed);
        // Each of the two reads what the other has: a summand, or the result.
        parts.count(0, bytes);
        parts.count(1, bytes);
        return;
    }
    let mut sum = [T::Wide::zeroed(); BLOCK];
    for start in (0..bytes).step_by(block) {
        let range = start..bytes.min(start + block);
        let sum = &mut sum[..range.len() / size_of::<T>()];
        for rank in 0..ranks {
            let part: &[T] = bytemuck::cast_slice(&parts.of(rank)[range.clone()]);
            vectorized!((op, rank, &mut *sum, part), add);
            if rank != home {
                parts.count(rank, range.len());
            }
        }
        for rank in into.clone() {
            let out: &mut [T] = bytemuck::cast_slice_mut(&mut parts.of(rank)[range.clone()]);
            vectorized!((op, ranks, &*sum, out), finish);
            if rank != home {
                parts.count(home, range.len());
            }
        }
    }
}

/// Combines the ranks' parts in rank order: `out[i] = of(0)[i] op of(1)[i] op …`. Bytes are aligned
/// as their type is. `of(rank, range)` is that range of a rank's part.
pub fn reduce_in_rank_order<'a, T: Element>(
    op: Reduce,
    ranks: usize,
    of: &dyn Fn(usize, Range<usize>) -> &'a [u8],
    out: &mut [u8],
) {
    let mut sum = [T::Wide::zeroed(); BLOCK];
    for (block, out) in out.chunks_mut(BLOCK * size_of::<T>()).enumerate() {
        let start = block * BLOCK * size_of::<T>();
        let range = start..start + out.len();
        let out: &mut [T] = bytemuck::cast_slice_mut(out);
        let sum = &mut sum[..out.len()];
        for rank in 0..ranks {
            let part: &[T] = bytemuck::cast_slice(of(rank, range.clone()));
            vectorized!((op, rank, &mut *sum, part), add);
        }
        vectorized!((op, ranks, &*sum, out), finish);
    }
}

/// Calls a loop with the reduction as a constant: the compiler vectorises a loop without a choice
/// in it.
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

/// `sum[i] op= part[i]`. The first rank's part starts the sum.
#[inline(always)]
fn add<T: Element>((op, rank, sum, part): (Reduce, usize, &mut [T::Wide], &[T])) {
    #[inline(always)]
    fn each<T: Element>(op: Reduce, sum: &mut [T::Wide], part: &[T]) {
        sum.iter_mut()
            .zip(part)
            .for_each(|(sum, x)| *sum = T::combine(op, *sum, x.widen()));
    }
    if rank == 0 {
        sum.iter_mut().zip(part).for_each(|(sum, x)| *sum = x.widen());
    } else {
        by_op!(op, each(sum, part))
    }
}

/// `out[i] = sum[i]`, divided by the number of ranks for a mean.
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

/// The whole reduction of two ranks in one loop: `a[i] = b[i] = a[i] op b[i]`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Element>(op: Reduce, parts: &[&[T]]) -> Vec<T> {
        let mut out = vec![T::zeroed(); parts[0].len()];
        let of = |rank: usize, range: Range<usize>| &bytemuck::cast_slice(parts[rank])[range];
        reduce_in_rank_order::<T>(op, parts.len(), &of, bytemuck::cast_slice_mut(&mut out));
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

    #[test]
    fn of_two_zeros_the_order_of_ranks_decides_nothing() {
        for parts in [[0.0f32, -0.0], [-0.0, 0.0]] {
            let of = |op| reduce(op, &[&parts[..1], &parts[1..]])[0].to_bits();
            assert_eq!(of(Reduce::Max), 0.0f32.to_bits(), "{parts:?}");
            assert_eq!(of(Reduce::Min), (-0.0f32).to_bits(), "{parts:?}");
        }
    }
}
