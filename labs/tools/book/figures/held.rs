//! Who holds what, in f32.

use super::{BABY, BATCH, DATA};
use crate::draw::Loads;
use kit::show::{Fill, Holding, Holdings};
use shardlab::error::BadInput;
use shardlab::plan::{BytesEach, DropoutMasks, zero_memory};

/// The paper's example: 7.5 billion parameters on 64 ranks, with devices of 80 GB.
pub(super) fn stages() -> Loads<'static> {
    let rows = [
        "stage 0 shards nothing",
        "stage 1 shards optimizer",
        "stage 2 shards optimizer, gradients",
        "stage 3 shards everything",
    ];
    let bytes =
        |stage| zero_memory(stage, 7_500_000_000, 64, BytesEach::MIXED).map(|bytes| bytes as f64);
    let rows = rows.into_iter().enumerate().map(|(stage, name)| (name, bytes(stage))).collect();
    Loads {
        kinds: ["parameters", "gradients", "optimizer"],
        rows,
        device: 80e9,
    }
}

/// A drawing of who holds what, in f32, and its title.
pub(super) fn holdings(name: &str) -> Result<(Holdings<'static>, &'static str), BadInput> {
    // Ranks, stage, and whether each rank has its own gradients.
    let ((ranks, stage, own), title, note) = match name {
        "one-device" => (
            (1, 0, false),
            "One device holds everything: state and activations",
            "One device: nothing is sharded.",
        ),
        "ddp-before" => (
            (3, 0, true),
            "Data parallelism, after the backward pass: every rank has its own gradients",
            "Before averaging: different data, so different gradients.",
        ),
        "ddp-after" => (
            (3, 0, false),
            "Data parallelism, after averaging: only the data differ",
            "After averaging: the same on every rank, except for the data.",
        ),
        "zero-1" => (
            (3, 1, false),
            "ZeRO, stage 1: the optimizer state is sharded; activations are not drawn",
            "Stage 1: the optimizer state is sharded. Activations, which ZeRO leaves whole, are not drawn.",
        ),
        "zero-3" => (
            (3, 3, false),
            "ZeRO, stage 3: the whole state is sharded; activations are not drawn",
            "Stage 3: the whole state is sharded. Activations, which ZeRO leaves whole, are not drawn.",
        ),
        _ => {
            let what = format!("there is no figure {name:?}");
            return Err(BadInput::new(what, "book/outputs.toml names all figures"));
        }
    };
    let [parameters, gradients, optimizer] =
        zero_memory(stage, BABY.parameters(), ranks as u64, BytesEach::F32);
    let row = |name, own, sharded_from, bytes: u64| {
        let alike = if own { Fill::Own } else { Fill::Same };
        let held = |index| {
            if stage >= sharded_from {
                Fill::Slice { index, of: ranks }
            } else {
                alike
            }
        };
        Holding {
            name,
            ranks: (0..ranks).map(held).collect(),
            bytes: bytes as f64,
        }
    };
    let mut rows = vec![
        row("data", ranks > 1, 4, DATA),
        row("parameters", false, 3, parameters),
        row("gradients", own, 2, gradients),
        row("optimizer", false, 1, optimizer),
    ];
    // The other figures are about who shares the state. Data parallelism's show the moment after
    // the backward pass, when no activations are left.
    if name == "one-device" {
        rows.push(row("activations", false, 4, BABY.memory(BATCH, DropoutMasks::None).activations));
    }
    Ok((Holdings { rows, note: note.into() }, title))
}
