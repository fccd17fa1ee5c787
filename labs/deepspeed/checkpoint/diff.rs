//! Two checkpoints, tensor by tensor, whatever their formats.

use crate::dcp;
use crate::tensors::{Checkpoint, Tensor};
use crate::workers::parallel;
use shardlab::error::BadInput;
use std::collections::BTreeMap;

/// How a name differs in two checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// One does not have it: 0 the first, 1 the second.
    Missing(usize),
    /// They have another type, shape or value: what each has.
    Other(String, String),
    /// Both have an object of Python, which is not compared.
    Object,
    /// Elements that have other bits, and the largest difference.
    Elements(usize, f64),
}

/// What differs, by name, in the names' order, and what was not compared.
///
/// # Errors
/// If a file cannot be read or is damaged.
pub fn diff(
    one: &Checkpoint,
    other: &Checkpoint,
    workers: usize,
) -> Result<Vec<(String, Difference)>, BadInput> {
    let mut all = Vec::new();
    let (here, there) = (tensors(one), tensors(other));
    let mut both = Vec::new();
    for (name, tensor) in &here {
        match there.get(name) {
            Some(twin) => both.push((*name, *tensor, *twin)),
            None => all.push((name.to_string(), Difference::Missing(1))),
        }
    }
    let alone = there.keys().filter(|name| !here.contains_key(*name));
    all.extend(alone.map(|name| (name.to_string(), Difference::Missing(0))));
    let compared = parallel(workers, &both, |(name, one, other)| {
        Ok(compare(one, other)?.map(|how| (name.to_string(), how)))
    })?;
    all.extend(compared.into_iter().flatten());
    let (here, there) = (values(one)?, values(other)?);
    for name in here.keys().chain(there.keys().filter(|name| !here.contains_key(*name))) {
        match (here.get(name), there.get(name)) {
            (Some(None), Some(_)) | (Some(_), Some(None)) => {
                all.push((name.to_string(), Difference::Object));
            }
            (Some(Some(one)), Some(Some(other))) if one != other => {
                all.push((name.to_string(), Difference::Other(one.clone(), other.clone())));
            }
            (None, _) => all.push((name.to_string(), Difference::Missing(0))),
            (_, None) => all.push((name.to_string(), Difference::Missing(1))),
            _ => {}
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}

fn tensors(checkpoint: &Checkpoint) -> BTreeMap<&str, &Tensor> {
    checkpoint.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect()
}

/// The settings' values, as text. An object of Python has none.
fn values(checkpoint: &Checkpoint) -> Result<BTreeMap<&str, Option<String>>, BadInput> {
    let value = |setting| Ok(dcp::plain(setting)?.map(|value| value.to_string()));
    let settings = checkpoint.values.iter();
    settings.map(|setting| Ok((setting.name.as_str(), value(setting)?))).collect()
}

fn compare(one: &Tensor, other: &Tensor) -> Result<Option<Difference>, BadInput> {
    if (one.dtype, &one.shape) != (other.dtype, &other.shape) {
        let about = |tensor: &Tensor| format!("{} {:?}", tensor.dtype.name(), tensor.shape);
        return Ok(Some(Difference::Other(about(one), about(other))));
    }
    let (here, there) = (one.read()?, other.read()?);
    let size = one.dtype.size();
    let (mut differ, mut largest) = (0, 0.0f64);
    for (a, b) in here.chunks_exact(size).zip(there.chunks_exact(size)) {
        if a != b {
            differ += 1;
            let distance = (one.dtype.to_f64(a) - one.dtype.to_f64(b)).abs();
            // NaN is the largest of all.
            largest = if largest.is_nan() || distance <= largest {
                largest
            } else {
                distance
            };
        }
    }
    Ok((differ > 0).then_some(Difference::Elements(differ, largest)))
}
