//! A rank's order as Megatron-LM's log has it.

use super::predicted::pipeline_of;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Op, Pipeline, Work};

/// Prints the order of every rank, or of one.
pub fn print_order(
    screen: &Screen,
    strategy: &Strategy,
    rank: Option<usize>,
) -> Result<(), BadInput> {
    let pipeline = &pipeline_of(strategy);
    let orders = strategy.schedule().orders(pipeline)?;
    if let Some(rank) = rank.filter(|&rank| rank >= pipeline.ranks) {
        let help = format!("ranks are 0 to {}", pipeline.ranks - 1);
        return Err(BadInput::new(format!("--print-order {rank}: there is no rank {rank}"), help));
    }
    if launch::is_first_process() {
        screen.say(explained(screen, pipeline));
        let asked = |one: usize| rank.is_none_or(|rank| rank == one);
        for (rank, order) in orders.iter().enumerate().filter(|(one, _)| asked(*one)) {
            screen.say(format!("\n{}", log(pipeline, rank, order).join("\n")));
        }
    }
    Ok(())
}

/// One line for the start and one for the end of each pass: `rank 7 forward start tensor 19`.
pub fn log(pipeline: &Pipeline, rank: usize, order: &[Op]) -> Vec<String> {
    let lines = |&op: &Op| {
        let word = op.work.name();
        let k = log_number(pipeline, op);
        ["start", "finished"].map(|moment| format!("rank {rank} {word} {moment} tensor {k}"))
    };
    order.iter().flat_map(lines).collect()
}

/// The number that Megatron's log gives to a pass of one rank (`tensor 19`): it counts visits in
/// groups of one micro-batch per rank, whatever the schedule's groups are, and counts a backward
/// pass like the forward pass it is the mirror of.
pub fn log_number(pipeline: &Pipeline, op: Op) -> usize {
    let Pipeline { ranks, chunks, .. } = *pipeline;
    let chunk = if op.work == Work::Forward {
        op.chunk
    } else {
        chunks - 1 - op.chunk
    };
    (op.micro / ranks * chunks + chunk) * ranks + op.micro % ranks
}

/// How the log numbers passes.
pub fn explained(screen: &Screen, pipeline: &Pipeline) -> String {
    let Pipeline { ranks, chunks, .. } = pipeline;
    let text = match chunks {
        1 => "tensor k is micro-batch k: each rank has one chunk.".to_string(),
        _ => format!(
            "tensor k counts visits to this rank's {chunks} chunks, {ranks} micro-batches at a time. Forward, it is \
             micro-batch {ranks}*(k div {all}) + k mod {ranks} in chunk (k mod {all}) div {ranks}. Backward, the chunks \
             count from the last one.",
            all = ranks * chunks
        ),
    };
    screen.wrap(&text, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::parallel::pipeline::Schedule;

    /// The last stage of the source's job. Its rank 7 is pipeline rank 3.
    #[test]
    fn the_log_of_the_sources_last_stage() {
        let pipeline = Pipeline { ranks: 4, chunks: 4, micro_batches: 8 };
        let order = Schedule::Interleaved { group: 8 }.order(&pipeline, 3);
        let log = log(&pipeline, 3, &order);
        assert_eq!(log.len(), 128);
        assert_eq!(
            log[8..10],
            ["rank 3 forward start tensor 16", "rank 3 forward finished tensor 16"]
        );
        assert_eq!(
            log[50..53],
            [
                "rank 3 backward start tensor 0",
                "rank 3 backward finished tensor 0",
                "rank 3 forward start tensor 13"
            ]
        );
        assert!(explained(&Screen::plain(), &pipeline).contains("4*(k div 16) + k mod 4"));
    }
}
