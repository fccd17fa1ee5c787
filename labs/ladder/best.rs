//! The best that is possible for a rung's way of dividing the work: three bounds, each by a
//! formula. No one program reaches all three, and to come near one of them may cost another.

use crate::clock::SPEED;
use crate::model::{LAYERS, WIDTH, numel, outputs};
use crate::text::{ROWS, Text};
use crate::{Returns, Rung, Score};
use anyhow::Result;

/// A number, and Adam's two, are four bytes each.
const BYTES: f64 = 4.0;

/// What no program of a rung is below.
///
/// # Errors
/// If the text that comes with the library cannot be read.
pub fn best(rung: &Rung) -> Result<Score> {
    let vocabulary = Text::new()?.vocabulary();
    let ranks = rung.job.ranks as f64;
    let tensor = rung.job.tensor as f64;
    let layer = |layer: usize| numel(layer, vocabulary) as f64;
    let model: f64 = (0..LAYERS).map(layer).sum();
    // The rank with the last layers has most parameters.
    let each = LAYERS / rung.job.ranks;
    let stage: f64 = (LAYERS - each..LAYERS).map(layer).sum();
    let last = layer(LAYERS - 1);
    let shards_adam = rung.name == "ladder-zero";

    // What a rank keeps: weights, and Adam's state.
    let (weights, adam) = match rung.returns {
        Returns::Whole if shards_adam => (model, 2.0 * model / ranks),
        Returns::Whole => (model, 2.0 * model),
        Returns::Slices => (model / ranks, 2.0 * model / ranks),
        Returns::Layers => (stage, 2.0 * stage),
        Returns::Units => (model / tensor, 2.0 * model / tensor),
    };
    // What the last layer's backward pass takes and returns besides: all other activations can be
    // computed again.
    let rows = (ROWS / rung.job.parts) as f64;
    let rows_of_layer = rows * (2 * WIDTH + outputs(LAYERS - 1, vocabulary)) as f64;
    let backward = rows_of_layer
        + match rung.returns {
            // The layer itself is whole for it.
            Returns::Slices => 2.0 * last,
            Returns::Units => last / tensor,
            Returns::Whole | Returns::Layers => last,
        };

    let nodes = ranks / tensor;
    let share = (nodes - 1.0) / nodes;
    let sent = match rung.returns {
        // An all-reduce of the gradients, or a reduce-scatter and an all-gather: the same bytes.
        Returns::Whole => 2.0 * share * model,
        // Each layer is gathered forward and backward, but for the last, which can stay, and its
        // gradients are scattered.
        Returns::Slices => share * (3.0 * model - last),
        // A rank in the middle passes on every part's activations, and their gradients back.
        Returns::Layers => 2.0 * ROWS as f64 * WIDTH as f64,
        // A rank averages the gradients of its units with the ranks that have them, too.
        Returns::Units => 2.0 * share * model / tensor,
    };

    // Only computing: everything travels meanwhile. Forward two operations per weight and row,
    // backward four; twenty per weight in the update.
    let (passes, updated) = match rung.returns {
        Returns::Whole if !shards_adam => (model / ranks, model),
        Returns::Whole | Returns::Slices => (model / ranks, model / ranks),
        Returns::Layers => (stage, stage),
        Returns::Units => (model / ranks, model / tensor),
    };
    let operations = 6.0 * ROWS as f64 * passes + 20.0 * updated;
    Ok(Score {
        peak: (BYTES * (weights + adam + backward)) as u64,
        sent: (BYTES * sent) as u64,
        seconds: operations / SPEED,
    })
}
