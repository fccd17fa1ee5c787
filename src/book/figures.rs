//! Pictures for pages: who holds what, drawn from the arithmetic of `plan`, and the curves of a run's metrics.

use crate::error::BadInput;
use crate::plan::{BytesEach, GptShape, Keep, zero_memory};
use crate::show::{Fill, Holding, Holdings, Nodes, Plot, Screen, Series, bytes_decimal};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// The names of all figures.
pub const FIGURES: [&str; 8] =
    ["activations", "nodes", "one-device", "ddp-before", "ddp-after", "zero-1", "zero-2", "zero-3"];

/// lab03's baby model, on the play that comes with the workbook.
const BABY: GptShape = GptShape { vocabulary: 65, block: 64, layers: 4, heads: 4, embd: 128 };

/// Sequences in its batch.
const BATCH: usize = 12;

/// Bytes of a batch. A token is one 4-byte number, and each has the one that follows it as its target.
const DATA: u64 = (2 * 4 * BATCH * BABY.block) as u64;

/// A figure by its name, as text for a screen or, without one, as SVG.
pub fn figure(name: &str, screen: Option<&Screen>) -> Result<String, BadInput> {
    if name == "nodes" {
        let nodes = Nodes(vec![("node1".into(), 4), ("node2".into(), 4)]);
        return Ok(screen.map_or_else(|| nodes.svg("Eight ranks on two nodes"), |screen| nodes.render(screen)));
    }
    if name == "activations" {
        let plot = activations(&BABY, BATCH, false);
        return screen.map_or_else(|| curves(&plot), |screen| Ok(plot.render(screen)));
    }
    let (holdings, title) = match name.strip_prefix("zero-").and_then(|stage| stage.parse().ok()) {
        Some(stage @ 1..=3) => zero(stage),
        _ => holdings(name)?,
    };
    Ok(screen.map_or_else(|| holdings.svg(title), |screen| holdings.render(screen)))
}

/// A drawing of who holds what, and its title.
fn holdings(name: &str) -> Result<(Holdings<'static>, &'static str), BadInput> {
    let (ranks, gradients, title, note) = match name {
        "one-device" => (1, Fill::Same, "One device holds everything", "One device: nothing is divided."),
        "ddp-before" => (
            3,
            Fill::Own,
            "Data parallelism, after the backward pass: every rank has gradients of its own",
            "Before averaging: other data, so other gradients.",
        ),
        "ddp-after" => (
            3,
            Fill::Same,
            "Data parallelism, after averaging: only the data differ",
            "After averaging: all alike but for the data.",
        ),
        _ => {
            let what = format!("there is no figure {name:?}");
            return Err(BadInput::new(what, format!("give one of these: {}", FIGURES.join(", "))));
        }
    };
    let memory = BABY.memory(BATCH, false);
    let row = |name, held, bytes: u64| Holding { name, ranks: vec![held; ranks], bytes: bytes_decimal(bytes as f64) };
    let own = if ranks == 1 { Fill::Same } else { Fill::Own };
    let rows = vec![
        row("data", own, DATA),
        row("parameters", Fill::Same, memory.parameters),
        row("gradients", gradients, memory.gradients),
        row("optimizer", Fill::Same, memory.optimizer),
    ];
    Ok((Holdings { rows, note: note.into() }, title))
}

/// A drawing of who holds what under a stage of ZeRO, on three ranks, in f32.
fn zero(stage: usize) -> (Holdings<'static>, &'static str) {
    const RANKS: usize = 3;
    let bytes = zero_memory(stage, BABY.parameters(), RANKS as u64, BytesEach::F32);
    let row = |name, bytes: u64, divided_from| {
        let held = |index| if stage >= divided_from { Fill::Slice { index, of: RANKS } } else { Fill::Same };
        Holding { name, ranks: (0..RANKS).map(held).collect(), bytes: bytes_decimal(bytes as f64) }
    };
    let data = Holding { name: "data", ranks: vec![Fill::Own; RANKS], bytes: bytes_decimal(DATA as f64) };
    let [parameters, gradients, optimizer] = bytes;
    let rows =
        vec![data, row("parameters", parameters, 3), row("gradients", gradients, 2), row("optimizer", optimizer, 1)];
    let (title, note) = [
        ("ZeRO, stage 1: the optimizer's state is divided", "Stage 1: the optimizer's state is divided."),
        ("ZeRO, stage 2: gradients are divided, too", "Stage 2: gradients are divided, too."),
        ("ZeRO, stage 3: everything is divided", "Stage 3: everything is divided."),
    ][stage - 1];
    (Holdings { rows, note: note.into() }, title)
}

/// Activations over one step of a model, as the plot of a page or a screen.
pub fn activations(shape: &GptShape, batch: usize, dropout: bool) -> Plot<'static> {
    let series = |name, keep| {
        let bytes = shape.activations_over_a_step(batch, dropout, keep);
        Series::line(name, bytes.into_iter().enumerate().map(|(part, bytes)| (part as f64, bytes as f64)))
    };
    Plot::new("activations", "part of the step")
        .series(series("kept to the end", Keep::ToTheEnd))
        .series(series("freed when used", Keep::UntilUsed))
        .series(series("recomputed", Keep::BlockInputs))
        .labels(|part| format!("{part}"), bytes_decimal)
}

/// The losses in the file that a lab's `--metrics` wrote, as an SVG: of every step, and on the validation split. Needs a
/// build that draws [`curves`].
pub fn losses(metrics: &Path) -> Result<String> {
    let text = std::fs::read_to_string(metrics).with_context(|| format!("cannot read {}", metrics.display()))?;
    let records: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let points = |field: &'static str| {
        records.iter().filter_map(move |record| Some((record["step"].as_f64()?, record[field].as_f64()?)))
    };
    let plot = Plot::new("loss, nats a token", "step").height(10);
    let plot = plot.series(Series::line("train", points("loss"))).series(Series::dots("val", points("val_loss")));
    Ok(curves(&plot)?)
}

/// A plot as SVG, for a page. [`BadInput`] in a build that draws none.
#[cfg(feature = "figures")]
pub fn curves(plot: &Plot) -> Result<String, BadInput> {
    Ok(plot.svg())
}

/// A plot as SVG, for a page. [`BadInput`] in a build that draws none.
#[cfg(not(feature = "figures"))]
pub fn curves(_: &Plot) -> Result<String, BadInput> {
    let help = "build it with the feature that does:  cargo run --features figures --bin …";
    Err(BadInput::new("this build draws no curves for pages", help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_drawn_in_both_ways() {
        assert!(figure("activations", Some(&Screen::plain())).unwrap().contains("recomputed"));
        assert_eq!(figure("activations", None).is_ok(), cfg!(feature = "figures"));
        for name in FIGURES.into_iter().filter(|&name| name != "activations") {
            let (text, svg) = (figure(name, Some(&Screen::plain())).unwrap(), figure(name, None).unwrap());
            assert!(text.contains("rank 0") && svg.contains(">rank 0<"), "{text}\n{svg}");
            if name.starts_with("zero") {
                assert!(text.contains("2.14 MB") && svg.contains(">2.14 MB<"), "{text}\n{svg}");
            } else if name != "nodes" {
                assert!(text.contains("3.22 MB") && svg.contains(">6.43 MB<"), "{text}\n{svg}");
            }
        }
        assert!(figure("nothing", None).is_err());
    }

    #[test]
    fn losses_are_drawn_or_it_is_said_what_draws_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"step\":1,\"loss\":4.2}\n{\"step\":2,\"loss\":4.1,\"val_loss\":4.0}\n").unwrap();
        let drawn = losses(file.path());
        if cfg!(feature = "figures") {
            assert!(drawn.unwrap().contains("\nval\n"));
        } else {
            let error = drawn.unwrap_err();
            assert!(error.is::<BadInput>() && error.to_string().contains("--features figures"), "{error}");
        }
    }
}
