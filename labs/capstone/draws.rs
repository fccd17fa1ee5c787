//! What must be true of the part `batches`, whatever random numbers it takes.
//!
//! Any draw that holds this is right. So the library's run beside the reader's takes the same
//! draws, and both train on the same data.

use crate::compare::Difference;
use crate::parts::batches::Batches;
use crate::plan::{Plan, STREAMS};
use std::collections::HashMap;
use std::panic::catch_unwind;

/// The first step at which the draws of a run are wrong.
pub fn wrong(plan: &Plan, tokens: usize, batches: Batches) -> Option<Difference> {
    let draw = plan.draw(tokens);
    let accumulation = plan.config.grad_accum;
    // Small texts have few offsets, and two right draws may be equal.
    let distinct = tokens.saturating_sub(draw.block) > 10_000 && draw.batch > 1;
    let mut seen: HashMap<Vec<usize>, (usize, usize)> = HashMap::new();
    let last = tokens - draw.block - 1;
    // The last tenth of the text must be drawn from, too.
    let late = last - last / 10;
    let mut starts_late = 0;
    let micros = plan.config.steps * accumulation;
    for (micro, stream) in (0..micros).flat_map(|micro| (0..STREAMS).map(move |of| (micro, of))) {
        let step = micro / accumulation + 1;
        let life = if step <= plan.killed_after { 1 } else { 2 };
        let at = |what| Some(Difference { life, step, what });
        let Ok(drawn) = catch_unwind(|| batches(&draw, stream, micro)) else {
            return at(format!("it panicked for rank {stream}, micro-batch {micro}"));
        };
        if drawn.len() != draw.batch {
            return at(format!("{} sequences, not {}", drawn.len(), draw.batch));
        }
        if let Some(start) = drawn.iter().find(|&&start| start > last) {
            return at(format!(
                "a sequence starts at token {start}, and {last} is the last that fits"
            ));
        }
        starts_late += drawn.iter().filter(|start| **start > late).count();
        let before = seen.insert(drawn, (stream, micro));
        if let Some((rank, before)) = before.filter(|_| distinct) {
            return at(format!(
                "rank {stream} draws in micro-batch {micro} what rank {rank} drew in {before}"
            ));
        }
    }
    // Of so many draws, one at least is there in all cases but one of 30,000.
    let draws = micros * STREAMS * draw.batch;
    (distinct && draws >= 100 && starts_late == 0).then(|| Difference {
        life: 2,
        step: plan.config.steps,
        what: format!(
            "of {draws} sequences none starts after token {late} of {last}: that text is never learned"
        ),
    })
}
