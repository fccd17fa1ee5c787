//! The calculator of memory: all bytes of a rank that trains a GPT, by the planner's formulas.
//!
//! The figure's script (`book/figures/memory.js`) has the same formulas, and book/browse.py
//! compares both.

use super::plans::cluster;
use crate::draw::Loads;
use anyhow::Result;
use itertools::iproduct;
use kit::show::bytes_decimal;
use planner::{Load, Program, Recompute, Stage, Strategy, TrainingJob};
use serde_json::{Value, json};
use shardlab::plan::{BytesEach, ModelShape};

/// GPT-2's tokens.
const VOCABULARY: usize = 50_257;

/// What a reader can choose.
#[derive(Clone, Copy)]
struct Choice {
    layers: usize,
    width: usize,
    heads: usize,
    sequence: usize,
    micro_batch: usize,
    mixed: bool,
    flash: bool,
    recompute: bool,
    stage: usize,
    ranks: usize,
}

/// The first picture: GPT-3's model of 6.7 billion parameters.
const FIRST: Choice = Choice {
    layers: 32,
    width: 4096,
    heads: 32,
    sequence: 2048,
    micro_batch: 1,
    mixed: true,
    flash: false,
    recompute: false,
    stage: 0,
    ranks: 8,
};

/// The model's parameters, and a rank's bytes.
fn load(choice: &Choice) -> Result<(u64, Load)> {
    let Choice { layers, width, heads, sequence, .. } = *choice;
    let cluster = cluster("h100-80g", "dgx-h100")?;
    let model = ModelShape::gpt2(layers, width, heads, VOCABULARY, sequence);
    let job = TrainingJob {
        bytes: if choice.mixed { BytesEach::MIXED } else { BytesEach::F32 },
        flash: choice.flash,
        program: Program::Pytorch,
        batch: choice.ranks * choice.micro_batch,
        ..TrainingJob::new(model, cluster, choice.ranks)
    };
    let strategy = Strategy {
        data: choice.ranks,
        micro_batch: Some(choice.micro_batch),
        zero: Stage::ALL[choice.stage],
        recompute: if choice.recompute {
            Recompute::Full
        } else {
            Recompute::None
        },
        ..Strategy::SINGLE
    };
    Ok((model.parameters(), job.load(&strategy)))
}

fn json(choice: &Choice) -> Result<Value> {
    let (parameters, load) = load(choice)?;
    Ok(json!({
        "layers": choice.layers, "width": choice.width, "heads": choice.heads, "sequence": choice.sequence,
        "micro": choice.micro_batch, "precision": if choice.mixed { "mixed" } else { "f32" }, "flash": choice.flash,
        "recompute": choice.recompute, "stage": choice.stage, "ranks": choice.ranks, "parameters": parameters,
        "held": [load.weights, load.gradients, load.optimizer, load.activations, load.working],
        "words": bytes_decimal(load.total()),
    }))
}

/// The library's figures for some of the trainings that a reader can choose.
pub(super) fn numbers() -> Result<Vec<Value>> {
    let models = [(4, 128, 4), (32, 4096, 32), (96, 12_288, 96)];
    let batches = [(256, 64), (2048, 1), (131_072, 2)];
    let shards = [(0, 8), (1, 1), (1, 64), (2, 3), (3, 1), (3, 1024)];
    let of = |((layers, width, heads), (sequence, micro_batch), (stage, ranks), bits)| {
        json(&Choice {
            layers,
            width,
            heads,
            sequence,
            micro_batch,
            mixed: bits & 1 > 0,
            flash: bits & 2 > 0,
            recompute: bits & 4 > 0,
            stage,
            ranks,
        })
    };
    iproduct!(models, batches, shards, 0..8).map(of).collect()
}

/// The first picture, which stays where scripts do not run, with three ways to make it fit.
pub(super) fn picture() -> Result<Loads<'static>> {
    let flash = Choice { flash: true, ..FIRST };
    let choices = [
        ("nothing shared", FIRST),
        ("nothing shared, FlashAttention", flash),
        (
            "8 ranks share the optimizer state, FlashAttention",
            Choice { stage: 1, ..flash },
        ),
        ("the same, blocks recomputed", Choice { stage: 1, recompute: true, ..flash }),
    ];
    let rows = choices.into_iter().map(|(name, choice)| {
        let (_, load) = load(&choice)?;
        Ok((name, [load.state(), load.activations, load.working]))
    });
    Ok(Loads {
        kinds: ["state", "activations", "while it computes"],
        rows: rows.collect::<Result<_>>()?,
        device: 80e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's numbers: 16 bytes for each parameter, and in a block sbh (34 + 5as/h), or 2sbh if
    /// it is computed again.
    #[test]
    fn a_rank_holds_what_the_page_counts() {
        let (parameters, held) = load(&FIRST).unwrap();
        assert_eq!(parameters, 6_658_404_352);
        assert_eq!(held.state(), 16.0 * parameters as f64);
        let tokens = 2048.0;
        let h = 4096.0;
        let of_blocks = |choice: &Choice| {
            let one_more = Choice { layers: choice.layers + 1, ..*choice };
            let [more, less] =
                [one_more, *choice].map(|choice| load(&choice).unwrap().1.activations);
            (more - less) / (tokens * h)
        };
        assert_eq!(of_blocks(&FIRST), 34.0 + 5.0 * 32.0 * tokens / h);
        let again = Choice { recompute: true, ..FIRST };
        assert_eq!(of_blocks(&again), 2.0);
    }
}
