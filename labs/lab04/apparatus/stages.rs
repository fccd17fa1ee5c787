//! The stages in words, and as the columns of a table.

use kit::show::{Screen, rows_of, table};
use shardlab::parallel::zero::Stage;

/// A stage's number, and its name in other programs.
pub fn title(stage: Stage) -> &'static str {
    ["stage 0\nDDP", "stage 1\nZeRO-1", "stage 2\nZeRO-2", "stage 3\nZeRO-3, FSDP"][stage.number()]
}

/// The state that a stage shards among the ranks.
pub fn sharded(stage: Stage) -> &'static str {
    [
        "nothing (stage 0, DDP)",
        "the optimizer state (stage 1)",
        "the optimizer state and gradients (stage 2)",
        "the optimizer state, gradients and parameters (stage 3, FSDP)",
    ][stage.number()]
}

/// Rows of cells under a head with the stages' names; `columns` has each stage's cells.
pub fn by_stage(
    screen: &Screen,
    names: &[&str],
    stages: &[Stage],
    columns: &[Vec<String>],
) -> String {
    let heads: Vec<&str> = std::iter::once("one rank")
        .chain(stages.iter().map(|&stage| title(stage)))
        .collect();
    table(screen, &heads, rows_of(names, columns))
}
