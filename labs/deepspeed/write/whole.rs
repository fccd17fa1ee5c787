//! One parameter, from its slices to its files.

use super::output::Output;
use crate::know::{Part, Rules, join, resolve};
use crate::options::Format;
use crate::read::{Parameter, Slice, Source};
use crate::report::{NotFinite, Results, lock};
use crate::torch::{Dtype, save_tensor};
use crate::{STATES, broken};
use shardlab::checkpoint::{cause, universal};
use shardlab::error::BadInput;
use std::sync::atomic::Ordering::Relaxed;

const PATTERNS: &str =
    "save again with patterns in universal_checkpoint_info that say how this parameter is divided";

/// One parameter, state by state.
pub(crate) fn merge(
    source: &Source,
    parameter: &Parameter,
    rules: &Rules,
    output: Option<&Output>,
    results: &Results,
) -> Result<(), BadInput> {
    let Parameter { name, slices } = parameter;
    let path = &source.models[slices[0].mp].path;
    let rule = rules
        .rule(name)
        .and_then(|rule| resolve(rule, slices.iter().map(|slice| &slice.shape[..])));
    let refused = |how| {
        BadInput::new(format!("{} cannot be converted: {name}: {how}", path.display()), PATTERNS)
    };
    let rule = rule.map_err(refused)?;
    let words = rules.rows_of_vocabulary(name).map_err(refused)?;
    // DeepSpeed's own files of stage 3 are flat.
    let bare = source.stage == 3 && source.tp == 1;
    if let Some(output) = output {
        output.parameter(name)?;
    }
    let mut hashes = [const { String::new() }; 3];
    let of = |slice: &Slice| &source.shards[slice.mp][0].groups[slice.group].states;
    let states = of(&slices[0]).len();
    if let Some(slice) = slices.iter().find(|slice| of(slice).len() != states) {
        let shard = &source.shards[slice.mp][0].path;
        return Err(broken(
            shard,
            format!("it has {} states of {name}, and tp rank 0 has {states}", of(slice).len()),
        ));
    }
    for state in 0..states {
        let mut parts = Vec::new();
        let mut dtype = Dtype::F32;
        for (tp, slice) in slices.iter().enumerate() {
            let bytes = slice.read(source, state, 0..slice.numel())?;
            dtype = of(slice)[state].dtype;
            count(source, name, slice, state, dtype, &bytes, results);
            if state == 0 {
                results.fragments.fetch_add(slice.pieces.len(), Relaxed);
                check(source, parameter, tp, &bytes, results)?;
            }
            if let Some(output) = output.filter(|_| source.options.keep_temp) {
                keep(output, name, tp, state, dtype, slice, &bytes)?;
            }
            parts.push(Part { shape: slice.shape.clone(), bytes });
        }
        let state_name = STATES[state];
        let mut whole = join(&rule, dtype, parts)
            .map_err(|how| broken(path, format!("{state_name} of {name}: {how}")))?;
        if let Some(rows) = words {
            trim(&mut whole, rows);
        }
        if bare && source.options.format == Format::Torch {
            whole.shape = vec![whole.shape.iter().product()];
        }
        if state == 0 {
            let shape = if bare {
                slices[0].shape.clone()
            } else {
                whole.shape.clone()
            };
            lock(&results.shapes).insert(name.clone(), shape);
        }
        if let Some(output) = output {
            hashes[state] = output.state(
                name,
                state,
                dtype,
                &whole,
                (!bare).then_some((&rule, words.is_some())),
            )?;
        }
    }
    if states < STATES.len()
        && let (Some(output), Format::Safetensors) = (output, source.options.format)
    {
        // Before the first step of Adam its moments are zero.
        let shape = lock(&results.shapes).get(name).cloned().unwrap_or_default();
        let zeros = Part {
            bytes: vec![0; shape.iter().product::<usize>() * Dtype::F32.size()],
            shape,
        };
        for (state, hash) in hashes.iter_mut().enumerate().skip(states) {
            *hash = output.state(name, state, Dtype::F32, &zeros, None)?;
        }
    }
    if let Some(output) = output {
        let step = source.shards[slices[0].mp][0].groups[slices[0].group].step.as_ref();
        if let (Some(step), Format::Torch, true) = (step, source.options.format, source.stage < 3) {
            output.step(name, step)?;
        }
        let shape = lock(&results.shapes).get(name).cloned().unwrap_or_default();
        lock(&results.hashes).insert(name.clone(), universal::Parameter { shape, sha256: hashes });
    }
    Ok(())
}

/// The rows of the vocabulary, without those that pad it.
fn trim(part: &mut Part, rows: usize) {
    if let Some(first) = part.shape.first_mut().filter(|first| **first > rows) {
        part.bytes.truncate(part.bytes.len() / *first * rows);
        *first = rows;
    }
}

/// Compares one rank's values with the weights that the model computed with.
fn check(
    source: &Source,
    parameter: &Parameter,
    tp: usize,
    values: &[u8],
    results: &Results,
) -> Result<(), BadInput> {
    let name = &parameter.name;
    let slice = &parameter.slices[tp];
    match slice.differs(source, name, 0, values)? {
        None => {}
        Some(None) => {
            results.compared.fetch_add(1, Relaxed);
            let mut rest = values;
            for (dp, piece) in &slice.pieces {
                let (own, after) =
                    rest.split_at(piece.len() * (values.len() / slice.numel().max(1)));
                rest = after;
                // Equal numbers, such as a new layer norm's, would fit any rank.
                if own.chunks(4).any(|value| value != &own[..4]) {
                    lock(&results.seen).insert((slice.mp, *dp));
                }
            }
        }
        Some(Some(difference)) => {
            let model = &source.models[slice.mp].path;
            let owner = slice.owner(difference.element);
            let shard = source.shards[slice.mp][owner].path.display();
            let what = format!(
                "{shard} has {} as element {} of {name} (dp rank {owner}, tp rank {tp}), and the model's weight in {} is {}",
                difference.value,
                difference.element,
                model.file_name().unwrap_or_default().display(),
                difference.weight,
            );
            if source.options.strict {
                let help = "the files are not from the same save, or their elements are in an order that is not known";
                return Err(BadInput::new(what, help));
            }
            results.differ.fetch_add(1, Relaxed);
            lock(&results.notes).push(what);
        }
    }
    Ok(())
}

/// Counts the values of a slice that are not finite, and finds their files. Padding is not in a
/// slice: DeepSpeed leaves in it what was in memory.
fn count(
    source: &Source,
    name: &str,
    slice: &Slice,
    state: usize,
    dtype: Dtype,
    bytes: &[u8],
    results: &Results,
) {
    if not_finite(dtype, bytes) == 0 {
        return;
    }
    let mut rest = bytes;
    for (dp, piece) in &slice.pieces {
        let (own, after) = rest.split_at(piece.len() * dtype.size());
        rest = after;
        let values = not_finite(dtype, own);
        if values > 0 {
            let file = source.shards[slice.mp][*dp].path.clone();
            let found = NotFinite {
                file,
                parameter: name.to_string(),
                state: STATES[state],
                values,
            };
            lock(&results.not_finite).push(found);
        }
    }
}

/// How many numbers are infinite or NaN: all bits of their exponent are set.
fn not_finite(dtype: Dtype, bytes: &[u8]) -> usize {
    let short = |exponent: u16| {
        let values = bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        values.filter(|value| value & exponent == exponent).count()
    };
    match dtype {
        Dtype::F32 => {
            let values = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
            values.filter(|value| value & 0x7f80_0000 == 0x7f80_0000).count()
        }
        Dtype::F64 => bytes
            .as_chunks()
            .0
            .iter()
            .filter(|bytes| !f64::from_le_bytes(**bytes).is_finite())
            .count(),
        Dtype::BF16 => short(0x7f80),
        Dtype::F16 => short(0x7c00),
        _ => 0,
    }
}

/// Writes the fragments of one slice, each as its own file.
fn keep(
    output: &Output,
    name: &str,
    tp: usize,
    state: usize,
    dtype: Dtype,
    slice: &Slice,
    bytes: &[u8],
) -> Result<(), BadInput> {
    let folder = output.folder().join("tmp").join(name).join(tp.to_string());
    std::fs::create_dir_all(&folder).map_err(|error| cause::unwritten(&folder, &error, ""))?;
    let mut rest = bytes;
    let size = dtype.size();
    for (dp, piece) in &slice.pieces {
        let (fragment, after) = rest.split_at(piece.len() * size);
        rest = after;
        let path = folder.join(format!("{}.{dp:02}", STATES[state]));
        save_tensor(&path, dtype, &[piece.len()], fragment, None)
            .map_err(|error| cause::unwritten(&path, &error, ""))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn infinite_values_and_nan_are_counted_in_every_type() {
        let odd = [
            1.0,
            f32::NAN,
            -f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            3e4,
            -1e-5,
        ];
        let bytes = |of: &dyn Fn(f32) -> Vec<u8>| {
            odd.iter().flat_map(|value| of(*value)).collect::<Vec<u8>>()
        };
        for (dtype, bytes) in [
            (Dtype::F32, bytes(&|value| value.to_le_bytes().to_vec())),
            (Dtype::F64, bytes(&|value| f64::from(value).to_le_bytes().to_vec())),
            (Dtype::BF16, bytes(&|value| bf16::from_f32(value).to_le_bytes().to_vec())),
            (Dtype::F16, bytes(&|value| f16::from_f32(value).to_le_bytes().to_vec())),
        ] {
            assert_eq!(not_finite(dtype, &bytes), 4, "{}", dtype.name());
        }
        assert_eq!(not_finite(Dtype::I64, &[0xff; 8]), 0);
    }
}
