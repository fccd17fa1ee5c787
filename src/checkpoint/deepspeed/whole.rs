//! One parameter, from its slices to its files.

use super::convert::Options;
use super::merge::{Part, join, resolve};
use super::output::{Format, Output};
use super::parameters::{Parameter, Slice};
use super::rules::Rules;
use super::source::Source;
use super::{STATES, broken};
use crate::checkpoint::torch::{Dtype, save_tensor};
use crate::checkpoint::universal;
use crate::error::BadInput;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Results of the workers.
#[derive(Default)]
pub(super) struct Results {
    pub fragments: AtomicUsize,
    pub compared: AtomicUsize,
    pub notes: Mutex<Vec<String>>,
    pub hashes: Mutex<BTreeMap<String, universal::Parameter>>,
    pub shapes: Mutex<BTreeMap<String, Vec<usize>>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

const PATTERNS: &str = "save again with patterns in universal_checkpoint_info that say how this parameter is divided";

/// One parameter, state by state.
pub(super) fn merge(
    options: &Options,
    source: &Source,
    parameter: &Parameter,
    rules: &Rules,
    output: Option<&Output>,
    results: &Results,
) -> Result<(), BadInput> {
    let Parameter { name, slices } = parameter;
    let path = &source.models[slices[0].mp].path;
    let rule = rules.rule(name).and_then(|rule| resolve(rule, slices.iter().map(|slice| &slice.shape[..])));
    let refused = |how| BadInput::new(format!("{} cannot be converted: {name}: {how}", path.display()), PATTERNS);
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
        return Err(broken(shard, format!("it has {} states of {name}, and tp rank 0 has {states}", of(slice).len())));
    }
    for state in 0..states {
        let mut parts = Vec::new();
        let mut dtype = Dtype::F32;
        for (tp, slice) in slices.iter().enumerate() {
            let bytes = slice.read(source, state, 0..slice.numel())?;
            dtype = of(slice)[state].dtype;
            if state == 0 {
                results.fragments.fetch_add(slice.pieces.len(), Relaxed);
                check(options, source, parameter, tp, &bytes, results)?;
            }
            if let Some(output) = output.filter(|_| options.keep_temp) {
                keep(output, name, tp, state, dtype, slice, &bytes)?;
            }
            parts.push(Part { shape: slice.shape.clone(), bytes });
        }
        let state_name = STATES[state];
        let mut whole =
            join(&rule, dtype, parts).map_err(|how| broken(path, format!("{state_name} of {name}: {how}")))?;
        if let Some(rows) = words {
            trim(&mut whole, rows);
        }
        if bare && options.format == Format::Torch {
            whole.shape = vec![whole.shape.iter().product()];
        }
        if state == 0 {
            let shape = if bare { slices[0].shape.clone() } else { whole.shape.clone() };
            lock(&results.shapes).insert(name.clone(), shape);
        }
        if let Some(output) = output {
            hashes[state] = output.state(name, state, dtype, &whole, (!bare).then_some((&rule, words.is_some())))?;
        }
    }
    if states < STATES.len()
        && let (Some(output), Format::Safetensors) = (output, options.format)
    {
        // Before the first step of Adam its moments are zero.
        let shape = lock(&results.shapes).get(name).cloned().unwrap_or_default();
        let zeros = Part { bytes: vec![0; shape.iter().product::<usize>() * Dtype::F32.size()], shape };
        for (state, hash) in hashes.iter_mut().enumerate().skip(states) {
            *hash = output.state(name, state, Dtype::F32, &zeros, None)?;
        }
    }
    if let Some(output) = output {
        let step = source.shards[slices[0].mp][0].groups[slices[0].group].step.as_ref();
        if let (Some(step), Format::Torch, true) = (step, options.format, source.stage < 3) {
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
    options: &Options,
    source: &Source,
    parameter: &Parameter,
    tp: usize,
    values: &[u8],
    results: &Results,
) -> Result<(), BadInput> {
    let (name, slice) = (&parameter.name, &parameter.slices[tp]);
    match slice.differs(source, name, 0, values)? {
        None => {}
        Some(None) => {
            results.compared.fetch_add(1, Relaxed);
        }
        Some(Some(difference)) => {
            let (model, owner) = (&source.models[slice.mp].path, slice.owner(difference.element));
            let shard = source.shards[slice.mp][owner].path.display();
            let what = format!(
                "{shard} has {} as element {} of {name} (dp rank {owner}, tp rank {tp}), and the model's weight in {} is {}",
                difference.value,
                difference.element,
                model.file_name().unwrap_or_default().display(),
                difference.weight,
            );
            if options.strict {
                let help = "the files are not from the same save, or their elements are in an order that is not known";
                return Err(BadInput::new(what, help));
            }
            lock(&results.notes).push(what);
        }
    }
    Ok(())
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
    let failed =
        |error| BadInput::new(format!("cannot write to {}: {error}", folder.display()), "make room on the disk");
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let (mut rest, size) = (bytes, dtype.size());
    for (dp, piece) in &slice.pieces {
        let (fragment, after) = rest.split_at(piece.len() * size);
        rest = after;
        let path = folder.join(format!("{}.{dp:02}", STATES[state]));
        save_tensor(&path, dtype, &[piece.len()], fragment, None).map_err(failed)?;
    }
    Ok(())
}
