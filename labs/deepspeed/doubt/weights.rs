//! The model's own weights as a check: the f32 values, rounded to the type that the model computes
//! with, must equal them.

use crate::read::{Slice, Source};
use crate::torch::{Dtype, Stored};
use half::{bf16, f16};
use shardlab::error::BadInput;
use std::ops::Range;

/// Elements that are compared at a time.
const CHUNK: usize = 1 << 16;

/// The first element that differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    pub element: usize,
    pub value: f32,
    pub weight: f32,
}

impl Slice {
    /// Compares some elements of the value with the model's weight. `None` if the model's file does
    /// not have it.
    pub fn differs(
        &self,
        source: &Source,
        name: &str,
        first: usize,
        values: &[u8],
    ) -> Result<Option<Option<Difference>>, BadInput> {
        let dtype = source.shards[self.mp][0].groups[self.group].states[0].dtype;
        match source.models[self.mp].weights.get(name) {
            Some(weight) if weight.shape == self.shape && comparable(dtype, weight.dtype) => {
                compare(values, first, weight).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Whether values of this type can be compared with a weight of that type.
fn comparable(value: Dtype, weight: Dtype) -> bool {
    value == Dtype::F32 && matches!(weight, Dtype::F32 | Dtype::BF16 | Dtype::F16)
}

/// Compares f32 values, from element `first` of a parameter on, with the same elements of its
/// weight.
fn compare(values: &[u8], first: usize, weight: &Stored) -> Result<Option<Difference>, BadInput> {
    let count = values.len() / 4;
    let mut buffer = vec![0; CHUNK.min(count) * weight.dtype.size()];
    for begin in (0..count).step_by(CHUNK) {
        let range: Range<usize> = begin..(begin + CHUNK).min(count);
        let bytes = &mut buffer[..range.len() * weight.dtype.size()];
        weight.read(first + range.start..first + range.end, bytes)?;
        let values = values[range.start * 4..range.end * 4]
            .as_chunks::<4>()
            .0
            .iter()
            .map(|value| f32::from_le_bytes(*value));
        let found = match weight.dtype {
            Dtype::F32 => first_difference(values, bytes, |value| value, f32::from_le_bytes),
            Dtype::BF16 => first_difference(
                values,
                bytes,
                |value| bf16::from_f32(value).to_f32(),
                |b| bf16::from_le_bytes(b).to_f32(),
            ),
            _ => first_difference(
                values,
                bytes,
                |value| f16::from_f32(value).to_f32(),
                |b| f16::from_le_bytes(b).to_f32(),
            ),
        };
        if let Some((at, value, weight)) = found {
            return Ok(Some(Difference { element: first + range.start + at, value, weight }));
        }
    }
    Ok(None)
}

fn first_difference<const N: usize>(
    values: impl Iterator<Item = f32>,
    weights: &[u8],
    round: impl Fn(f32) -> f32,
    read: impl Fn([u8; N]) -> f32,
) -> Option<(usize, f32, f32)> {
    let pairs = values.zip(weights.as_chunks::<N>().0).enumerate();
    let mut pairs = pairs.map(|(at, (value, weight))| (at, value, read(*weight)));
    // Results that are no numbers have many bit patterns.
    pairs.find(|(_, value, weight)| {
        let value = round(*value);
        value.to_bits() != weight.to_bits() && !(value.is_nan() && weight.is_nan())
    })
}
