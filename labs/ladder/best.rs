//! The best that is possible for a rung's way of dividing the work: three bounds, each by a formula
//! and with its reason. No one program reaches all three, and to come near one of them may cost
//! another.

use crate::clock::CLOCK;
use crate::model::{LAYERS, WIDTH, numel, outputs};
use crate::text::{ROWS, Text};
use crate::{Returns, Rung};
use anyhow::Result;

/// A value that no program is below, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub value: f64,
    /// One sentence.
    pub why: &'static str,
}

/// The bounds of the three scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Bytes that some rank must hold at some time.
    pub peak: Bound,
    /// Bytes that some rank must send in a step between nodes.
    pub sent: Bound,
    pub seconds: Bound,
}

/// A number, and Adam's two, are four bytes each.
const BYTES: f64 = 4.0;

/// The best that is possible for a rung.
///
/// # Errors
/// If the text that comes with the library cannot be read.
pub fn best(rung: &Rung) -> Result<Best> {
    let vocabulary = Text::new()?.vocabulary();
    let ranks = rung.job.ranks as f64;
    let tensor = rung.job.tensor as f64;
    let layer = |layer: usize| numel(layer, vocabulary) as f64;
    let model: f64 = (0..LAYERS).map(layer).sum();
    // The rank with the last layers has most parameters.
    let each = LAYERS / rung.job.ranks;
    let stage: f64 = (LAYERS - each..LAYERS).map(layer).sum();
    let last = layer(LAYERS - 1);
    let rows = (ROWS / rung.job.parts) as f64;

    // What a rank keeps: weights, and Adam's state. What the last layer's backward pass takes and
    // returns besides.
    let (weights, adam) = match rung.returns {
        Returns::Whole if rung.name == "ladder-zero" => (model, 2.0 * model / ranks),
        Returns::Whole => (model, 2.0 * model),
        Returns::Slices => (model / ranks, 2.0 * model / ranks),
        Returns::Layers | Returns::Rounds => (stage, 2.0 * stage),
        Returns::Units => (model / tensor, 2.0 * model / tensor),
    };
    let rows_of_layer = rows * (2 * WIDTH + outputs(LAYERS - 1, vocabulary)) as f64;
    let backward = rows_of_layer
        + match rung.returns {
            // The layer itself is whole for it.
            Returns::Slices => 2.0 * last,
            Returns::Units => last / tensor,
            _ => last,
        };
    let held_why = match rung.returns {
        Returns::Whole if rung.name == "ladder-zero" => {
            "The weights, a slice of Adam's state, and what the last layer's backward pass takes and returns: all other activations \
             can be computed again."
        }
        Returns::Slices => {
            "A slice of weights and Adam's state, the last layer whole, and what its backward pass takes and returns: all other \
             activations can be computed again."
        }
        Returns::Layers | Returns::Rounds => {
            "The last rank's weights and Adam's state, and what its last layer's backward pass takes and returns, for one part."
        }
        Returns::Units => {
            "Half of the units with Adam's state, and what the last layer's backward pass takes and returns: all other activations \
             can be computed again."
        }
        Returns::Whole => {
            "Weights, Adam's state, and what the last layer's backward pass takes and returns: all other activations can be computed \
             again."
        }
    };

    let nodes = ranks / tensor;
    let share = (nodes - 1.0) / nodes;
    let (sent, sent_why) = match rung.returns {
        Returns::Whole if rung.name == "ladder-zero" => (
            2.0 * share * model,
            "A reduce-scatter of the gradients and an all-gather of the parameters, (n-1)/n of the model each: together an all-reduce.",
        ),
        Returns::Whole => (
            2.0 * share * model,
            "An all-reduce of the gradients sends 2(n-1)/n of them from each rank, and none can send less from all.",
        ),
        Returns::Slices => (
            share * (3.0 * model - last),
            "Each layer is gathered forward and backward, but for the last, which can stay, and its gradients are scattered: \
             (n-1)/n each.",
        ),
        Returns::Layers | Returns::Rounds => (
            2.0 * ROWS as f64 * WIDTH as f64,
            "A rank in the middle passes on every part's activations, and their gradients back.",
        ),
        Returns::Units => (
            2.0 * share * model / tensor,
            "A rank averages the gradients of its units with the other node's rank that has them: 2(n-1)/n of these, with n = 2.",
        ),
    };

    // Forward two operations per weight and row, backward four; twenty per weight in the update.
    let (passes, updated) = match rung.returns {
        Returns::Whole if rung.name == "ladder-zero" => (model / ranks, model / ranks),
        Returns::Whole => (model / ranks, model),
        Returns::Slices => (model / ranks, model / ranks),
        Returns::Layers | Returns::Rounds => (stage, stage),
        Returns::Units => (model / ranks, model / tensor),
    };
    let operations = 6.0 * ROWS as f64 * passes + 20.0 * updated;
    let seconds_why = match rung.returns {
        Returns::Layers | Returns::Rounds => {
            "The last rank's layers for all parts: no bubble, and no waiting."
        }
        _ => "Only computing: everything travels meanwhile.",
    };

    Ok(Best {
        peak: Bound { value: BYTES * (weights + adam + backward), why: held_why },
        sent: Bound { value: BYTES * sent, why: sent_why },
        seconds: Bound { value: operations / CLOCK.speed, why: seconds_why },
    })
}
