//! Schedules of a pipeline.

use anyhow::Result;
use kit::show::{Chart, percent};
use labs::lab06::Predicted;
use shardlab::parallel::pipeline::{Pipeline, Schedule};

/// One step of 4 ranks and 8 micro-batches. Time counts forward passes of a rank, and the peak
/// micro-batches.
pub(super) fn chart(schedule: Schedule, chunks: usize) -> Result<Chart> {
    let step = Predicted::paced(schedule, Pipeline { ranks: 4, chunks, micro_batches: 8 }, 1.0)?;
    let simulated = &step.simulated;
    let peak = simulated.peaks.iter().max().copied().unwrap_or(0) as f64 / chunks as f64;
    let chunks = if chunks > 1 {
        format!(", {chunks} chunks per rank")
    } else {
        String::new()
    };
    let name = schedule.name();
    let bubble = percent(simulated.bubble());
    let title = format!(
        "{name}{chunks}: takes {} forward passes, bubble {bubble}, keeps {peak} micro-batches",
        simulated.makespan
    );
    Ok(Chart { title, ranks: step.bars })
}
