//! Which values of a pickle are tensors: calls of torch's own rebuilding functions, with a
//! reference to a storage.

use super::node::Node;
use super::value::Value;
use half::{bf16, f16};
use shardlab::checkpoint::numel;
use std::borrow::Cow;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
}

/// Each type, with its storage class, its name in torch, and the bytes of an element. In the order
/// of [`Dtype`].
const DTYPES: [(Dtype, &str, &str, usize); 10] = [
    (Dtype::F64, "DoubleStorage", "float64", 8),
    (Dtype::F32, "FloatStorage", "float32", 4),
    (Dtype::F16, "HalfStorage", "float16", 2),
    (Dtype::BF16, "BFloat16Storage", "bfloat16", 2),
    (Dtype::I64, "LongStorage", "int64", 8),
    (Dtype::I32, "IntStorage", "int32", 4),
    (Dtype::I16, "ShortStorage", "int16", 2),
    (Dtype::I8, "CharStorage", "int8", 1),
    (Dtype::U8, "ByteStorage", "uint8", 1),
    (Dtype::Bool, "BoolStorage", "bool", 1),
];

impl Dtype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        DTYPES[self as usize].3
    }

    /// Its name in torch.
    pub fn name(self) -> &'static str {
        DTYPES[self as usize].2
    }

    pub(super) fn storage(self) -> &'static str {
        DTYPES[self as usize].1
    }

    /// Elements of this type as f32.
    pub fn to_f32(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        fn each<const N: usize>(bytes: &[u8], to: impl Fn([u8; N]) -> f32) -> Cow<'static, [u8]> {
            let numbers = bytes.as_chunks::<N>().0.iter();
            numbers.flat_map(|bytes| to(*bytes).to_le_bytes()).collect()
        }
        match self {
            Dtype::F32 => Cow::Borrowed(bytes),
            Dtype::F64 => each(bytes, |bytes| f64::from_le_bytes(bytes) as f32),
            Dtype::BF16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            Dtype::F16 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Dtype::I64 => each(bytes, |bytes| i64::from_le_bytes(bytes) as f32),
            Dtype::I32 => each(bytes, |bytes| i32::from_le_bytes(bytes) as f32),
            Dtype::I16 => each(bytes, |bytes| i16::from_le_bytes(bytes).into()),
            Dtype::I8 => each(bytes, |bytes| i8::from_le_bytes(bytes).into()),
            Dtype::U8 | Dtype::Bool => each(bytes, |[byte]: [u8; 1]| byte.into()),
        }
    }

    /// One element of this type as f64, or 0 if `bytes` are not an element.
    pub fn to_f64(self, bytes: &[u8]) -> f64 {
        match self {
            Dtype::F64 => bytes.try_into().map_or(0.0, f64::from_le_bytes),
            Dtype::I64 => bytes.try_into().map_or(0.0, |bytes| i64::from_le_bytes(bytes) as f64),
            Dtype::I32 => bytes.try_into().map_or(0.0, |bytes| i32::from_le_bytes(bytes).into()),
            _ => self
                .to_f32(bytes)
                .first_chunk()
                .map_or(0.0, |one| f32::from_le_bytes(*one).into()),
        }
    }

    /// The type with this name in torch, or of this storage.
    pub fn find(name: &str) -> Option<Dtype> {
        let found = DTYPES.iter().find(|(_, storage, dtype, _)| [*storage, *dtype].contains(&name));
        found.map(|(dtype, ..)| *dtype)
    }
}

/// A tensor, as a pickle describes it: elements of a storage.
pub(super) struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub stride: Vec<usize>,
    /// Whether the elements follow each other in the storage, in the shape's order.
    pub contiguous: bool,
    /// The name of the storage.
    pub key: String,
    /// The first element's offset in the storage, and one past the last's.
    pub elements: (usize, usize),
}

/// The tensor that a value is, or `None` if it is none.
pub(super) fn find(node: Node) -> Result<Option<Tensor>, String> {
    match node.call() {
        Some((function, args)) => made(function, args),
        None => Ok(None),
    }
}

/// The tensor that a function makes of its arguments.
fn made(function: (&str, &str), args: Node) -> Result<Option<Tensor>, String> {
    let arg = |at: usize| args.items().nth(at);
    match function {
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3") => {
            let (Some(storage), Some(offset), Some(shape), Some(stride)) =
                (arg(0), arg(1), arg(2), arg(3))
            else {
                return Err("a tensor of its pickle has too few arguments".to_string());
            };
            // The third version names the type itself, because its storage has none.
            let dtype = arg(6).filter(|_| function.1.ends_with("_v3"));
            rebuild(storage, offset, shape, stride, dtype).map(Some)
        }
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
            arg(0).map_or(Ok(None), find)
        }
        // A function, a class and the function's arguments.
        ("torch._tensor", "_rebuild_from_type_v2") => {
            match (arg(0).and_then(Node::class), arg(2)) {
                (Some(function), Some(args)) => made(function, args),
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

fn rebuild(
    storage: Node,
    offset: Node,
    shape: Node,
    stride: Node,
    dtype: Option<Node>,
) -> Result<Tensor, String> {
    let broken = |what: &str| format!("a tensor of its pickle has {what}");
    let Value::Persistent(reference) = storage.value() else {
        return Err(broken("no storage"));
    };
    let reference: Vec<Node> = storage.graph.node(*reference).items().collect();
    let [kind, class, key, _device, _numel, ..] = &reference[..] else {
        return Err(broken("a broken storage"));
    };
    let (Some("storage"), Some(key)) = (kind.text(), key.text()) else {
        return Err(broken("a broken storage"));
    };
    let name = dtype.unwrap_or(*class).class().map_or("?", |(_, name)| name);
    let dtype = Dtype::find(name)
        .ok_or_else(|| broken(&format!("elements of type {name}, which is not supported")))?;
    let (Some(shape), Some(stride)) = (shape.sizes(), stride.sizes()) else {
        return Err(broken("a broken shape"));
    };
    let offset = offset.count().ok_or_else(|| broken("a broken offset"))?;
    if shape.len() != stride.len() {
        return Err(broken(&format!("shape {shape:?} and strides {stride:?}")));
    }
    let numel = numel(&shape).ok_or_else(|| broken(&format!("the absurd shape {shape:?}")))?;
    let last = if numel == 0 { Some(0) } else { last(&shape, &stride) };
    let end = last
        .and_then(|last| last.checked_add(offset))
        .and_then(|end| end.checked_add(usize::from(numel > 0)));
    let end = end.ok_or_else(|| broken(&format!("the absurd strides {stride:?}")))?;
    let mut step = 1;
    let contiguous = shape.iter().zip(&stride).rev().all(|(size, stride)| {
        let expected = step;
        step *= (*size).max(1);
        *size <= 1 || *stride == expected
    });
    Ok(Tensor {
        dtype,
        shape,
        stride,
        contiguous,
        key: key.to_string(),
        elements: (offset, end),
    })
}

/// The last element's offset from the first.
pub(crate) fn last(shape: &[usize], stride: &[usize]) -> Option<usize> {
    shape.iter().zip(stride).try_fold(0usize, |last, (size, stride)| {
        last.checked_add((size - 1).checked_mul(*stride)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_row() {
        for (at, (dtype, storage, name, _)) in DTYPES.into_iter().enumerate() {
            assert_eq!(dtype as usize, at);
            assert_eq!([storage, name].map(Dtype::find), [Some(dtype); 2]);
        }
    }

    #[test]
    fn every_type_becomes_f32() {
        let same = |dtype: Dtype, bytes: &[u8], number: f32| {
            assert_eq!(dtype.to_f32(bytes)[..], number.to_le_bytes())
        };
        same(Dtype::F64, &(-2.5f64).to_le_bytes(), -2.5);
        same(Dtype::F32, &(-2.5f32).to_le_bytes(), -2.5);
        same(Dtype::F16, &f16::from_f32(-2.5).to_le_bytes(), -2.5);
        same(Dtype::BF16, &bf16::from_f32(-2.5).to_le_bytes(), -2.5);
        same(Dtype::I64, &(-300i64).to_le_bytes(), -300.0);
        same(Dtype::I32, &(-300i32).to_le_bytes(), -300.0);
        same(Dtype::I16, &(-300i16).to_le_bytes(), -300.0);
        same(Dtype::I8, &(-3i8).to_le_bytes(), -3.0);
        same(Dtype::U8, &[253], 253.0);
        same(Dtype::Bool, &[1], 1.0);
    }
}
