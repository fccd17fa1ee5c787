//! A whole conversion. Memory is bounded by the number of workers times the largest parameter,
//! twice if parts of tensor parallelism are joined.

use super::know::Rules;
use super::options::{Options, Watch};
use super::read::{Parameter, Rank, Slice, Source};
use super::report::{Refusal, Report, Results, lock};
use super::workers::parallel;
use super::write::{self, Output};
use kit::show::bytes_decimal;
use shardlab::error::BadInput;
use shardlab::launch;

/// Converts a checkpoint of DeepSpeed's. The result's folder appears when it is complete, or not at
/// all.
///
/// # Errors
/// If a file is missing, damaged, hostile or of a form that is not known; if files contradict each
/// other, or are not those of their ranks; if the result does not fit in memory or on the disk, or
/// would replace what no conversion wrote.
pub fn convert(options: &Options, watch: &dyn Watch) -> Result<Report, Refusal> {
    let mut source = Source::read(options, watch)?;
    let mut notes = Vec::new();
    source.ensure_own(&mut notes)?;
    source.ensure_alike()?;
    source.repair(&mut notes)?;
    let parameters = source.parameters(&mut notes)?;
    let rules = source.rules()?;
    ensure_memory(&source, &parameters, launch::free_memory(0).unwrap_or(u64::MAX))?;
    let output = if options.dry_run {
        None
    } else {
        Some(Output::begin(&options.output, &options.input, options.format)?)
    };
    let written = finish(&source, &parameters, rules, output.as_ref(), notes, watch);
    match (written, output) {
        (written, None) => Ok(written?),
        (Ok(mut report), Some(output)) => {
            report.bytes = output.publish(&mut report.notes)?;
            Ok(report)
        }
        (Err(error), Some(output)) => Err(output.discard(error).into()),
    }
}

/// Refuses parameters that do not fit in memory. A file can have a size that no disk has, and no
/// bytes.
fn ensure_memory(source: &Source, parameters: &[Parameter], free: u64) -> Result<(), BadInput> {
    let bytes = |parameter: &Parameter| -> u64 {
        let of = |slice: &Slice| {
            source.shards[slice.mp][0].groups[slice.group]
                .states
                .iter()
                .map(|state| state.dtype.size())
                .max()
        };
        let parts = parameter
            .slices
            .iter()
            .map(|slice| slice.numel() as u64 * of(slice).unwrap_or(0) as u64)
            .sum::<u64>();
        if parameter.slices.len() > 1 { 2 * parts } else { parts }
    };
    let mut sizes: Vec<(u64, &Parameter)> =
        parameters.iter().map(|parameter| (bytes(parameter), parameter)).collect();
    sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let needed = sizes
        .iter()
        .take(source.options.merge_workers)
        .fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let Some((largest, Parameter { name, slices })) = sizes.first().filter(|_| needed > free)
    else {
        return Ok(());
    };
    let path = source.models[slices[0].mp].path.display();
    let needed = bytes_decimal(needed as f64);
    let free = bytes_decimal(free as f64);
    let what = format!(
        "{} workers need {needed} of memory, and {free} are free{}: the largest parameter in {path}, {name}, takes {}",
        source.options.merge_workers.min(sizes.len()),
        launch::memory_limit_in_words(),
        bytes_decimal(*largest as f64),
    );
    Err(BadInput::new(
        what,
        "give a smaller --num_merge_workers, or a machine with more memory",
    ))
}

/// Puts all parameters together, and writes them.
fn finish(
    source: &Source,
    parameters: &[Parameter],
    rules: &Rules,
    output: Option<&Output>,
    mut notes: Vec<String>,
    watch: &dyn Watch,
) -> Result<Report, BadInput> {
    let results = Results::default();
    watch.begin("2. Merging slices", parameters.len());
    parallel(source.options.merge_workers, parameters, |parameter| {
        write::merge(source, parameter, rules, output, &results)?;
        watch.advance();
        Ok(())
    })?;
    watch.end();
    let unused = rules.unused();
    if !unused.is_empty() {
        let path = source.models[0].path.display();
        let what =
            format!("{path}: no parameter matches the recorded patterns {}", unused.join(", "));
        if source.options.strict {
            let help = "a misspelt pattern joins parameters wrongly; if you know that it does not, add --no_strict";
            return Err(BadInput::new(what, help));
        }
        notes.push(what);
    }
    watch.begin("3. Saving common optimizer states", 1);
    let names = parameters.iter().map(|parameter| parameter.name.clone());
    let step = source.shards[0][0]
        .groups
        .iter()
        .find_map(|group| group.step.as_ref())
        .map(|step| step.value);
    let mut verified = None;
    if let Some(output) = output {
        write::save(source, output, step, &results, &mut notes)?;
        if source.options.verify {
            verified = Some(output.verify()?);
        }
    }
    watch.advance();
    watch.end();
    notes.extend(results.notes.into_inner().unwrap_or_default());
    let shapes = lock(&results.shapes);
    let shape = |name: String| (name.clone(), shapes.get(&name).cloned().unwrap_or_default());
    let slices = parameters.iter().map(|parameter| parameter.slices.len()).sum();
    let compared = results.compared.into_inner();
    let seen = lock(&results.seen);
    let unverifiable =
        source.unverifiable(compared, slices, |Rank { mp, dp }| seen.contains(&(mp, dp)));
    let mut not_finite = std::mem::take(&mut *lock(&results.not_finite));
    not_finite.sort();
    Ok(Report {
        stage: source.stage,
        ranks: (source.files.dp, source.tp, source.pp),
        step,
        parameters: names.map(shape).collect(),
        fragments: results.fragments.into_inner(),
        compared: (compared, slices),
        differ: results.differ.into_inner(),
        unverifiable,
        not_finite,
        verified,
        notes,
        bytes: 0,
    })
}
