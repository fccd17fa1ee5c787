//! A whole conversion. Memory is bounded by the number of workers times the largest parameter, twice if parts of tensor
//! parallelism are joined.

use super::common;
use super::merge::{Part, join};
use super::model::Model;
use super::names::{self, Rank};
use super::output::{Format, Output};
use super::parameters::{Parameter, Source};
use super::rules::Rules;
use super::shard::Shard;
use super::{INCOMPLETE, STATES, broken};
use crate::checkpoint::torch::{Dtype, TorchFile, save_tensor};
use crate::checkpoint::universal;
use crate::error::BadInput;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Clone, Debug)]
pub struct Options {
    pub input: PathBuf,
    pub output: PathBuf,
    pub extract_workers: usize,
    pub merge_workers: usize,
    pub keep_temp: bool,
    /// Whether a doubtful result is an error.
    pub strict: bool,
    /// Whether missing rules of tensor parallelism are taken to be none.
    pub inject: bool,
    pub dry_run: bool,
    pub verify: bool,
    pub format: Format,
}

/// Is told how far a conversion is.
pub trait Watch: Sync {
    fn begin(&self, phase: &str, tasks: usize);
    fn advance(&self);
    fn end(&self);
}

/// The result of a conversion.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub stage: usize,
    /// Ranks of data, tensor and pipeline parallelism.
    pub ranks: (usize, usize, usize),
    pub step: Option<f64>,
    /// Names and shapes, in the model's order.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// Fragments that were put together.
    pub fragments: usize,
    /// Slices whose values were compared with the model's own weights, of how many.
    pub compared: (usize, usize),
    /// Files that were read back, if that was asked for.
    pub verified: Option<usize>,
    /// Mistakes of the checkpoint, and how they were put right.
    pub notes: Vec<String>,
    /// Bytes of the result.
    pub bytes: u64,
}

pub fn convert(options: &Options, watch: &dyn Watch) -> Result<Report, BadInput> {
    let source = read(options, watch)?;
    let mut notes = Vec::new();
    let parameters = source.parameters(&mut notes)?;
    let none = Rules::default();
    let rules = rules(options, &source, &none)?;
    let output = match options.dry_run {
        true => None,
        false => Some(Output::begin(&options.output, &options.input, options.format)?),
    };
    let written = write(options, &source, &parameters, rules, output.as_ref(), notes, watch);
    match (written, output) {
        (Ok(report), None) => Ok(report),
        (Ok(report), Some(output)) => Ok(Report { bytes: output.publish()?, ..report }),
        (Err(error), output) => {
            if let Some(output) = output {
                output.discard();
            }
            Err(error)
        }
    }
}

/// Reads all files, except for the numbers of their tensors.
fn read(options: &Options, watch: &dyn Watch) -> Result<Source, BadInput> {
    let files = names::list(&options.input)?;
    let firsts: Vec<&PathBuf> = (0..files.mp).filter_map(|mp| files.models.get(&Rank { mp, dp: 0 })).collect();
    watch.begin("1. Extracting ZeRO fragments", files.shards.len());
    let models = parallel(options.extract_workers, &firsts, |path| Model::read(path))?;
    let tasks: Vec<(&Rank, &PathBuf)> = files.shards.iter().collect();
    let shards = parallel(options.extract_workers, &tasks, |(rank, path)| {
        let shard = Shard::read(path, **rank, files.dp, &models[rank.mp].groups);
        watch.advance();
        shard
    })?;
    watch.end();
    let (stage, first) = (shards[0].stage, shards[0].path.clone());
    if let Some(other) = shards.iter().find(|shard| shard.stage != stage) {
        let how = format!("it is of stage {}, and {} of stage {stage}", other.stage, first.display());
        return Err(broken(&other.path, how));
    }
    for model in &models {
        if model.steps != models[0].steps {
            let steps = |model: &Model| model.steps.unwrap_or(-1);
            let how =
                format!("it is of step {}, and {} of {}", steps(model), models[0].path.display(), steps(&models[0]));
            return Err(broken(&model.path, how));
        }
    }
    let mut by_mp: Vec<Vec<Shard>> = (0..files.mp).map(|_| Vec::new()).collect();
    shards.into_iter().for_each(|shard| by_mp[shard.rank.mp].push(shard));
    let degrees = models[0].degrees.filter(|_| stage < 3);
    let (pp, tp) = match (degrees, files.layer_ranks) {
        (Some(degrees), _) => degrees,
        (None, Some(tp)) if tp > 0 && files.mp % tp == 0 => (files.mp / tp, tp),
        _ => (1, files.mp),
    };
    if pp.checked_mul(tp) != Some(files.mp) {
        let how = format!("it has {} files of model states, and records {pp} x {tp} ranks", files.mp);
        return Err(broken(&files.folder, how));
    }
    Ok(Source { files, stage, tp, pp, models, shards: by_mp })
}

fn rules<'a>(options: &Options, source: &'a Source, none: &'a Rules) -> Result<&'a Rules, BadInput> {
    let path = &source.models[0].path;
    // Only the first file's rules count; they are the same in all.
    let rules = match &source.models[0].rules {
        Some(rules) => rules,
        None if options.inject || source.stage == 3 && source.tp == 1 => none,
        None => {
            let what = format!("{} has no universal_checkpoint_info, which says how parts are joined", path.display());
            let help = "if the model has no tensor parallelism, add --inject_missing_state";
            return Err(BadInput::new(what, help));
        }
    };
    if !rules.unsupported.is_empty() && source.tp > 1 {
        return Err(broken(path, format!("DeepSpeed cannot say how it divided {}", rules.unsupported.join(", "))));
    }
    Ok(rules)
}

/// Results of the workers.
#[derive(Default)]
struct Results {
    fragments: AtomicUsize,
    compared: AtomicUsize,
    notes: Mutex<Vec<String>>,
    hashes: Mutex<BTreeMap<String, universal::Parameter>>,
    shapes: Mutex<BTreeMap<String, Vec<usize>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write(
    options: &Options,
    source: &Source,
    parameters: &[Parameter],
    rules: &Rules,
    output: Option<&Output>,
    mut notes: Vec<String>,
    watch: &dyn Watch,
) -> Result<Report, BadInput> {
    let results = Results::default();
    watch.begin("2. Merging slices", parameters.len());
    parallel(options.merge_workers, parameters, |parameter| {
        merge(options, source, parameter, rules, output, &results)?;
        watch.advance();
        Ok(())
    })?;
    watch.end();
    let unused = rules.unused();
    if !unused.is_empty() {
        let what = format!("no parameter matches the recorded patterns {}", unused.join(", "));
        if options.strict {
            let help = "a misspelt pattern joins parameters wrongly; if you know that it does not, add --no_strict";
            return Err(BadInput::new(what, help));
        }
        notes.push(what);
    }
    watch.begin("3. Saving common optimizer states", 1);
    let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
    let step = source.shards[0][0].groups.iter().find_map(|group| group.step.as_ref()).map(|step| step.value);
    let mut verified = None;
    if let Some(output) = output {
        save_common(options, source, output, step, &results, &mut notes)?;
        if options.verify {
            verified = Some(output.verify(&names)?);
        }
    }
    watch.advance();
    watch.end();
    notes.extend(results.notes.into_inner().unwrap_or_default());
    let shapes = lock(&results.shapes);
    let shape = |name: String| (name.clone(), shapes.get(&name).cloned().unwrap_or_default());
    let slices = parameters.iter().map(|parameter| parameter.slices.len()).sum();
    Ok(Report {
        stage: source.stage,
        ranks: (source.files.dp, source.tp, source.pp),
        step,
        parameters: names.into_iter().map(shape).collect(),
        fragments: results.fragments.into_inner(),
        compared: (results.compared.into_inner(), slices),
        verified,
        notes,
        bytes: 0,
    })
}

/// One parameter, state by state.
fn merge(
    options: &Options,
    source: &Source,
    parameter: &Parameter,
    rules: &Rules,
    output: Option<&Output>,
    results: &Results,
) -> Result<(), BadInput> {
    let Parameter { name, slices } = parameter;
    let path = &source.models[slices[0].mp].path;
    let rule = rules.rule(name).map_err(|how| broken(path, how))?;
    let words = rules.rows_of_vocabulary(name).map_err(|how| broken(path, how))?;
    // DeepSpeed's own files of stage 3 are flat.
    let bare = source.stage == 3 && source.tp == 1;
    if let Some(output) = output {
        output.parameter(name)?;
    }
    let mut hashes = [const { String::new() }; 3];
    for state in 0..STATES.len() {
        let mut parts = Vec::new();
        let mut dtype = Dtype::F32;
        for (tp, slice) in slices.iter().enumerate() {
            let bytes = slice.read(source, state, 0..slice.numel())?;
            dtype = source.shards[slice.mp][0].groups[slice.group].states[state].dtype;
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
    slice: &super::parameters::Slice,
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

/// Writes what does not belong to one parameter.
fn save_common(
    options: &Options,
    source: &Source,
    output: &Output,
    step: Option<f64>,
    results: &Results,
    notes: &mut Vec<String>,
) -> Result<(), BadInput> {
    let shard = &source.shards[0][0].path;
    if options.format == Format::Safetensors {
        let file = TorchFile::open(shard)?;
        let state = file.graph.root().get("optimizer_state_dict");
        let key = if source.stage == 3 { "optimizer_state_dict" } else { "base_optimizer_state" };
        let groups = state.and_then(|state| state.get(key)).and_then(|base| base.get("param_groups"));
        let record = serde_json::json!({
            "source": "DeepSpeed",
            "zero_stage": source.stage,
            "param_groups": groups.map(|groups| common::json(groups, 4)),
        });
        let steps = (step.unwrap_or(0.0) as u64, source.models[0].steps.unwrap_or(0).max(0) as usize);
        return output.index(std::mem::take(&mut lock(&results.hashes)), steps, record);
    }
    let refused = common::write(output, shard, source.stage, source.files.dp)?;
    if !refused.is_empty() {
        notes.push(format!("optimizer_state.pt has None for objects of {}: they could run code", refused.join(", ")));
    }
    for path in source.files.models.values() {
        let to = output.folder().join(path.file_name().unwrap_or_default());
        std::fs::copy(path, &to).map_err(|error| {
            BadInput::new(format!("cannot copy {} to {}: {error}", path.display(), to.display()), INCOMPLETE)
        })?;
    }
    // DeepSpeed keeps buffers of stages 1 and 2 with the parameters.
    for model in source.models.iter().filter(|_| source.stage < 3) {
        for name in &model.buffers {
            let Some(weight) = model.weights.get(name).filter(|_| !lock(&results.shapes).contains_key(name)) else {
                continue;
            };
            super::model::ensure_name(&model.path, name)?;
            let mut part = Part { shape: weight.shape.clone(), bytes: vec![0; weight.numel() * weight.dtype.size()] };
            weight.read(0..weight.numel(), &mut part.bytes)?;
            output.buffer(name, weight.dtype, &part)?;
        }
    }
    Ok(())
}

/// Calls `work` with every task, on some threads. Ends with the first error.
fn parallel<T: Sync, R: Send>(
    workers: usize,
    tasks: &[T],
    work: impl Fn(&T) -> Result<R, BadInput> + Sync,
) -> Result<Vec<R>, BadInput> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(task) = tasks.get(at) else { return done };
            let result = work(task);
            if result.is_err() {
                next.store(tasks.len(), Relaxed);
            }
            done.push((at, result));
        }
    };
    let mut all: Vec<(usize, Result<R, BadInput>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..workers.clamp(1, tasks.len().max(1))).map(|_| scope.spawn(run)).collect();
        let mut all = run();
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}
