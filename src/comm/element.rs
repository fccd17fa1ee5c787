//! What can be sent and added: eight number types, five reductions.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

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

            fn widen(self) -> $wide {
                $widen(self)
            }
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

/// Combines the ranks' parts in rank order: `out[i] = parts[0][i] op parts[1][i] op …`.
///
/// All slices hold the same number of elements of `dtype`, as bytes. Because every element is combined in rank order
/// whatever the length, a result does not depend on how a vector is cut into buckets or shards.
pub fn reduce_in_rank_order(dtype: Dtype, op: Reduce, parts: &[&[u8]], out: &mut [u8]) {
    match dtype {
        Dtype::I32 => reduce_typed::<i32>(op, parts, out),
        Dtype::I64 => reduce_typed::<i64>(op, parts, out),
        Dtype::U64 => reduce_typed::<u64>(op, parts, out),
        Dtype::U8 => reduce_typed::<u8>(op, parts, out),
        Dtype::F16 => reduce_typed::<f16>(op, parts, out),
        Dtype::Bf16 => reduce_typed::<bf16>(op, parts, out),
        Dtype::F32 => reduce_typed::<f32>(op, parts, out),
        Dtype::F64 => reduce_typed::<f64>(op, parts, out),
    }
}

fn reduce_typed<T: Element>(op: Reduce, parts: &[&[u8]], out: &mut [u8]) {
    // A block that stays in the first-level cache while all ranks' parts are added into it.
    const BLOCK: usize = 1024;
    let size = size_of::<T>();
    let mut wide: Vec<T::Wide> = Vec::with_capacity(BLOCK);
    for (block, out) in out.chunks_mut(BLOCK * size).enumerate() {
        let bytes = block * BLOCK * size..block * BLOCK * size + out.len();
        wide.clear();
        wide.extend(elements::<T>(&parts[0][bytes.clone()]).map(T::widen));
        for part in &parts[1..] {
            for (sum, x) in wide.iter_mut().zip(elements::<T>(&part[bytes.clone()])) {
                *sum = T::combine(op, *sum, x.widen());
            }
        }
        for (out, &x) in out.chunks_exact_mut(size).zip(&wide) {
            let x = if op == Reduce::Mean { T::divide(x, parts.len()) } else { x };
            out.copy_from_slice(bytemuck::bytes_of(&T::narrow(x)));
        }
    }
}

/// Combines the ranks' parts in rank order, as [`reduce_in_rank_order`] does to the bit, and leaves the result in all of
/// them. The bytes must be aligned as their type is.
pub fn all_reduce_in_rank_order(dtype: Dtype, op: Reduce, parts: &mut [&mut [u8]]) {
    match dtype {
        Dtype::I32 => all_reduce_typed::<i32>(op, parts),
        Dtype::I64 => all_reduce_typed::<i64>(op, parts),
        Dtype::U64 => all_reduce_typed::<u64>(op, parts),
        Dtype::U8 => all_reduce_typed::<u8>(op, parts),
        Dtype::F16 => all_reduce_typed::<f16>(op, parts),
        Dtype::Bf16 => all_reduce_typed::<bf16>(op, parts),
        Dtype::F32 => all_reduce_typed::<f32>(op, parts),
        Dtype::F64 => all_reduce_typed::<f64>(op, parts),
    }
}

fn all_reduce_typed<T: Element>(op: Reduce, parts: &mut [&mut [u8]]) {
    const BLOCK: usize = 1024;
    let ranks = parts.len();
    let mut parts: Vec<&mut [T]> = parts.iter_mut().map(|part| bytemuck::cast_slice_mut(part)).collect();
    let mut wide = [T::Wide::zeroed(); BLOCK];
    for start in (0..parts[0].len()).step_by(BLOCK) {
        let block = start..parts[0].len().min(start + BLOCK);
        let wide = &mut wide[..block.len()];
        wide.iter_mut().zip(&parts[0][block.clone()]).for_each(|(sum, x)| *sum = x.widen());
        for part in &parts[1..] {
            wide.iter_mut().zip(&part[block.clone()]).for_each(|(sum, x)| *sum = T::combine(op, *sum, x.widen()));
        }
        if op == Reduce::Mean {
            wide.iter_mut().for_each(|sum| *sum = T::divide(*sum, ranks));
        }
        for part in &mut parts {
            part[block.clone()].iter_mut().zip(&*wide).for_each(|(out, &sum)| *out = T::narrow(sum));
        }
    }
}

/// The elements in a slice of bytes, which need not be aligned: they may have travelled as bytes.
pub(super) fn elements<T: Element>(bytes: &[u8]) -> impl Iterator<Item = T> + '_ {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Element>(op: Reduce, parts: &[&[T]]) -> Vec<T> {
        let bytes: Vec<&[u8]> = parts.iter().map(|p| bytemuck::cast_slice(p)).collect();
        let mut out = vec![T::zeroed(); parts[0].len()];
        reduce_in_rank_order(T::DTYPE, op, &bytes, bytemuck::cast_slice_mut(&mut out));
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
