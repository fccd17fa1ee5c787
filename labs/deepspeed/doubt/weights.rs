//! The model's own weights as a check: the f32 values, rounded to the type that the model computes
//! with, must equal them.

use crate::read::{Slice, Source};
use crate::torch::{Dtype, Stored};
use half::{bf16, f16};
use shardlab::error::BadInput;

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
    let round = |value: f32| match weight.dtype {
        Dtype::BF16 => bf16::from_f32(value).to_f32(),
        Dtype::F16 => f16::from_f32(value).to_f32(),
        _ => value,
    };
    let mut begin = first;
    for values in values.chunks(4 * CHUNK) {
        let count = values.len() / 4;
        let mut bytes = vec![0; count * weight.dtype.size()];
        weight.read(begin..begin + count, &mut bytes)?;
        let weights = weight.dtype.to_f32(&bytes);
        let pairs = numbers(values).zip(numbers(&weights)).enumerate();
        for (at, (value, weight)) in pairs {
            let rounded = round(value);
            // Results that are no numbers have many bit patterns.
            if rounded.to_bits() != weight.to_bits() && !(rounded.is_nan() && weight.is_nan()) {
                return Ok(Some(Difference { element: begin + at, value, weight }));
            }
        }
        begin += count;
    }
    Ok(None)
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
