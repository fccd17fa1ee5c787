//! One parameter, from its slices to its files.

use super::output::Output;
use crate::know::{Part, Rule, Rules, join, resolve};
use crate::read::{Parameter, Pieces, Slice, Source, Whole};
use crate::report::{Report, lock};
use crate::torch::Dtype;
use crate::{STATES, broken};
use shardlab::error::BadInput;
use std::path::Path;
use std::sync::Mutex;

const PATTERNS: &str =
    "save again with patterns in universal_checkpoint_info that say how this parameter is divided";

/// One parameter, state by state.
pub(crate) fn merge(
    source: &Source,
    parameter: &Parameter,
    rules: &Rules,
    output: Option<&Output>,
    report: &Mutex<Report>,
) -> Result<(), BadInput> {
    let Parameter { name, slices } = parameter;
    let path = &source.models[slices[0].mp].path;
    let (rule, words) = rule(path, rules, name, slices.iter().map(|slice| &slice.shape[..]))?;
    // DeepSpeed's own files of stage 3 are flat.
    let bare = source.stage == 3 && source.tp == 1;
    if let Some(output) = output {
        output.parameter(name)?;
    }
    let of = |slice: &Slice| &source.shards[slice.mp][0].groups[slice.group].states;
    let states = of(&slices[0]).len();
    if let Some(slice) = slices.iter().find(|slice| of(slice).len() != states) {
        let shard = &source.shards[slice.mp][0].path;
        return Err(broken(
            shard,
            format!("it has {} states of {name}, and tp rank 0 has {states}", of(slice).len()),
        ));
    }
    for (state, state_name) in STATES.into_iter().enumerate().take(states) {
        let mut parts = Vec::new();
        let mut dtype = Dtype::F32;
        for (tp, slice) in slices.iter().enumerate() {
            let bytes = slice.read(source, state, 0..slice.numel())?;
            dtype = of(slice)[state].dtype;
            if state == 0 {
                lock(report).fragments += slice.pieces.len();
                check(source, parameter, tp, &bytes, report)?;
            }
            parts.push(Part { shape: slice.shape.clone(), bytes });
        }
        let what = format!("{state_name} of {name}");
        let mut whole = joined(path, &what, dtype, (&rule, words), parts, report)?;
        if state == 0 {
            lock(report).elements += whole.shape.iter().product::<usize>();
        }
        if bare {
            whole.shape = vec![whole.shape.iter().product()];
        }
        if let Some(output) = output {
            let rule = (!bare).then_some((&rule, words.is_some()));
            output.state(name, state, dtype, &whole, rule)?;
        }
    }
    let step = source.shards[slices[0].mp][0].groups[slices[0].group].step.as_ref();
    match (output, step) {
        (Some(output), Some(step)) if source.stage < 3 => output.step(name, step),
        _ => Ok(()),
    }
}

/// How the parts of a parameter are joined, and the rows of its vocabulary, if it has one.
fn rule<'a>(
    path: &Path,
    rules: &Rules,
    name: &str,
    parts: impl Iterator<Item = &'a [usize]>,
) -> Result<(Rule, Option<usize>), BadInput> {
    let refused = |how| {
        BadInput::new(format!("{} cannot be converted: {name}: {how}", path.display()), PATTERNS)
    };
    let rule = rules.rule(name).and_then(|rule| resolve(rule, parts)).map_err(refused)?;
    Ok((rule, rules.rows_of_vocabulary(name).map_err(refused)?))
}

/// One weight that the optimizer does not have. It has a value, and no moments. Returns how many
/// numbers it has.
pub(crate) fn merge_frozen(
    source: &Source,
    weight: &Whole,
    rules: &Rules,
    output: Option<&Output>,
    report: &Mutex<Report>,
) -> Result<usize, BadInput> {
    let Whole { name, parts } = weight;
    let path = &source.models[0].path;
    let (rule, words) = rule(path, rules, name, parts.iter().map(|part| &part.shape[..]))?;
    let parts = parts.iter().map(Pieces::read).collect::<Result<Vec<_>, _>>()?;
    let whole = joined(path, name, Dtype::F32, (&rule, words), parts, report)?;
    if let Some(output) = output {
        output.other(name, Dtype::F32, &whole)?;
    }
    Ok(whole.shape.iter().product())
}

/// Joins the parts of one tensor, without the rows that pad a vocabulary. Counts numbers that are
/// not finite.
fn joined(
    path: &Path,
    what: &str,
    dtype: Dtype,
    (rule, words): (&Rule, Option<usize>),
    parts: Vec<Part>,
    report: &Mutex<Report>,
) -> Result<Part, BadInput> {
    let mut whole =
        join(rule, dtype, parts).map_err(|how| broken(path, format!("{what}: {how}")))?;
    if let Some(rows) = words {
        trim(&mut whole, rows);
    }
    let not_finite = not_finite(dtype, &whole.bytes);
    if not_finite > 0 {
        lock(report).not_finite.insert(what.to_string(), not_finite);
    }
    Ok(whole)
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
    report: &Mutex<Report>,
) -> Result<(), BadInput> {
    let name = &parameter.name;
    let slice = &parameter.slices[tp];
    let Some(difference) = slice.differs(source, name, 0, values)? else {
        return Ok(());
    };
    let Some(difference) = difference else {
        lock(report).compared.0 += 1;
        return Ok(());
    };
    let model = &source.models[slice.mp].path;
    let owner = slice.owner(difference.element);
    let what = format!(
        "{} has {} as element {} of {name} (dp rank {owner}, tp rank {tp}), and the model's weight in {} is {}",
        source.shards[slice.mp][owner].path.display(),
        difference.value,
        difference.element,
        model.file_name().unwrap_or_default().display(),
        difference.weight,
    );
    if source.options.strict {
        let help = "the files are not from the same save, or their elements are in an order that is not known";
        return Err(BadInput::new(what, help));
    }
    lock(report).differ += 1;
    lock(report).notes.push(what);
    Ok(())
}

/// How many numbers are infinite or NaN.
fn not_finite(dtype: Dtype, bytes: &[u8]) -> usize {
    let numbers = dtype.to_f32(bytes);
    let numbers = numbers.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    numbers.filter(|number| !number.is_finite()).count()
}
