//! A whole conversion. Memory is bounded by the number of workers times the largest parameter,
//! twice if parts of tensor parallelism are joined.

use super::know::Rules;
use super::options::{Options, Watch};
use super::read::{Parameter, Rest, Slice, Source};
use super::report::Report;
use super::workers::parallel;
use super::write::{self, Output};
use kit::machine::memory_limit_in_words;
use kit::show::bytes_decimal;
use shardlab::error::BadInput;
use shardlab::launch;
use std::sync::Mutex;

/// Converts a checkpoint of DeepSpeed's. The result's folder appears when it is complete, or not at
/// all.
///
/// # Errors
/// If a file is missing, damaged or of a form that is not known; if files contradict each other, or
/// are not those of their ranks; if the result does not fit in memory or on the disk, or its folder
/// exists.
pub fn convert(options: &Options, watch: &dyn Watch) -> Result<Report, BadInput> {
    let mut source = Source::read(options, watch)?;
    let mut notes = Vec::new();
    source.ensure_own(&mut notes)?;
    source.ensure_alike()?;
    source.ensure_known(&mut notes)?;
    source.repair(&mut notes)?;
    let parameters = source.parameters(&mut notes)?;
    let rest = source.rest()?;
    let rules = source.rules()?;
    ensure_memory(&source, &parameters, launch::free_memory(0).unwrap_or(u64::MAX))?;
    let output = match options.dry_run {
        true => None,
        false => Some(Output::begin(&options.output)?),
    };
    let mut report = finish(&source, &parameters, &rest, rules, output.as_ref(), notes, watch)?;
    if let Some(output) = output {
        report.bytes = output.publish()?;
    }
    Ok(report)
}

/// Refuses parameters that do not fit in memory. A file can have a size that no disk has, and no
/// bytes.
fn ensure_memory(source: &Source, parameters: &[Parameter], free: u64) -> Result<(), BadInput> {
    let bytes = |Parameter { slices, .. }: &Parameter| -> u64 {
        let Slice { mp, group, .. } = slices[0];
        let element = source.shards[mp][0].groups[group].states[0].dtype.size() as u64;
        let elements = slices.iter().map(|slice| slice.numel() as u64).sum::<u64>();
        // Parts of tensor parallelism are there twice while they are joined.
        elements * element * slices.len().min(2) as u64
    };
    let mut sizes: Vec<(u64, &Parameter)> =
        parameters.iter().map(|parameter| (bytes(parameter), parameter)).collect();
    sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    sizes.truncate(source.options.merge_workers);
    let needed: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    let Some((largest, Parameter { name, slices })) = sizes.first().filter(|_| needed > free)
    else {
        return Ok(());
    };
    let what = format!(
        "{} workers need {} of memory, and {} are free{}: the largest parameter in {}, {name}, takes {}",
        sizes.len(),
        bytes_decimal(needed as f64),
        bytes_decimal(free as f64),
        memory_limit_in_words(),
        source.models[slices[0].mp].path.display(),
        bytes_decimal(*largest as f64),
    );
    let help = "give a smaller --num_merge_workers, or a machine with more memory";
    Err(BadInput::new(what, help))
}

/// Puts all parameters together, and writes them.
fn finish(
    source: &Source,
    parameters: &[Parameter],
    rest: &Rest,
    rules: &Rules,
    output: Option<&Output>,
    mut notes: Vec<String>,
    watch: &dyn Watch,
) -> Result<Report, BadInput> {
    let report = Mutex::new(Report::default());
    watch.begin("2. Merging slices", parameters.len() + rest.weights.len());
    parallel(source.options.merge_workers, parameters, |parameter| {
        write::merge(source, parameter, rules, output, &report)?;
        watch.advance();
        Ok(())
    })?;
    let frozen = parallel(source.options.merge_workers, &rest.weights, |weight| {
        let numbers = write::merge_frozen(source, weight, rules, output, &report)?;
        watch.advance();
        Ok(numbers)
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
    let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
    let groups = &source.shards[0][0].groups;
    let step = groups.iter().find_map(|group| Some(group.step.as_ref()?.value));
    let mut verified = None;
    if let Some(output) = output {
        write::save(source, rest, output)?;
        if source.options.verify {
            verified = Some(output.verify()?);
        }
    }
    watch.advance();
    watch.end();
    let mut report = report.into_inner().unwrap_or_default();
    notes.append(&mut report.notes);
    let lacks = write::lacks(source, rest, frozen.iter().sum(), &mut notes);
    report.compared.1 = parameters.iter().map(|parameter| parameter.slices.len()).sum();
    Ok(Report {
        stage: source.stage,
        ranks: (source.files.dp, source.tp, source.pp),
        step,
        parameters: names,
        verified,
        notes,
        lacks,
        ..report
    })
}
