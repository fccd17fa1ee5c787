//! Curves: of a run's metrics, of times, and of activations.

use super::{BABY, BATCH};
use crate::over_a_step::{Keep, activations_over_a_step};
use anyhow::{Context, Result};
use kit::show::{Plot, Series, bytes_decimal};
use labs::lab01::{benchmark, predict};
use serde_json::Value;
use shardlab::comm::algorithms::Collective;
use shardlab::plan::{DropoutMasks, Network};
use std::path::Path;

/// lab01's prediction for four ranks on Ethernet.
pub(super) fn cost() -> Result<String> {
    let [.., ethernet] = Network::presets();
    let sizes = benchmark::sizes(4, 1 << 30);
    let timings = predict::predict(Collective::AllReduce, 4, &sizes, &ethernet)?;
    Ok(benchmark::plot("time of one call, predicted", &timings).svg())
}

/// Activations over one step of lab03's model.
pub(super) fn activations() -> Plot<'static> {
    let series = |name, keep| {
        let bytes = activations_over_a_step(&BABY, BATCH, DropoutMasks::None, keep);
        Series::line(
            name,
            bytes.into_iter().enumerate().map(|(part, bytes)| (part as f64, bytes as f64)),
        )
    };
    Plot::new("activations", "part of the step")
        .series(series("freed when used", Keep::UntilUsed))
        .series(series("recomputed", Keep::BlockInputs))
        .labels(|part| format!("{part}"), bytes_decimal)
}

/// The losses in a lab's file of `--metrics`, as an SVG.
///
/// # Errors
///
/// Where the file cannot be read, or a line of it is no JSON.
pub fn plot(file: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let records: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let points = |field: &'static str| {
        records
            .iter()
            .filter_map(move |record| Some((record["step"].as_f64()?, record[field].as_f64()?)))
    };
    let plot = Plot::new("loss, nats per token", "step").height(10);
    let plot = plot
        .series(Series::line("train", points("loss")))
        .series(Series::dots("val", points("val_loss")));
    Ok(plot.svg())
}
