//! Curves: of a run's metrics, of times, and of activations.

use crate::over_a_step::{Keep, activations_over_a_step};
use anyhow::{Context, Result};
use kit::show::{Plot, Series, bytes_binary, bytes_decimal, seconds};
use labs::lab01::{benchmark, predict};
use serde_json::Value;
use shardlab::comm::algorithms::Collective;
use shardlab::plan::{DropoutMasks, ModelShape, Network};
use std::path::Path;

/// lab01's prediction for four ranks on Ethernet, as `--json` writes it.
pub(super) fn cost() -> Result<Value> {
    let [.., ethernet] = Network::presets();
    let timings =
        predict::predict(Collective::AllReduce, 4, &benchmark::sizes(4, 1 << 30), &ethernet)?;
    Ok(benchmark::json(&timings, &[], ethernet.name))
}

/// Activations over one step of a model, as the plot of a page or a screen.
pub fn activations(shape: &ModelShape, batch: usize, dropout: DropoutMasks) -> Plot<'static> {
    let series = |name, keep| {
        let bytes = activations_over_a_step(shape, batch, dropout, keep);
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

/// The curves of a lab's file, as an SVG: losses from `--metrics`, or lab01's times from `--json`.
///
/// # Errors
///
/// Where the file cannot be read, or a line of it is no JSON.
pub fn plot(file: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    if let Ok(times) = serde_json::from_str::<Value>(&text)
        && times["ways"].is_array()
    {
        return Ok(times_of(&times).svg());
    }
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

/// lab01's times against the bytes of the array, a curve for each algorithm.
pub(super) fn times_of(times: &Value) -> Plot<'_> {
    let series = times["ways"].as_array().into_iter().flatten().map(|way| {
        let points = way["points"].as_array().map_or(&[][..], Vec::as_slice);
        let points = points
            .iter()
            .filter_map(|point| Some((point["bytes"].as_f64()?, point["seconds"].as_f64()?)));
        Series::line(way["algorithm"].as_str().unwrap_or("?"), points)
    });
    let title = if times["network"] == "threads" {
        "time of one call, measured"
    } else {
        "time of one call, predicted"
    };
    series.fold(
        Plot::new(title, "bytes")
            .log_x()
            .log_y()
            .labels(bytes_binary, seconds)
            .height(12),
        Plot::series,
    )
}
