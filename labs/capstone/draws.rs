//! What must be true of the part `batches`, whatever random numbers it takes.
//!
//! Any draw that holds this is right. So the library's run beside the reader's takes the same
//! draws, and both train on the same data.

use crate::compare::Difference;
use crate::parts::batches::{Batches, Draw};
use crate::plan::{Plan, STREAMS};
use std::collections::HashMap;
use std::panic::catch_unwind;

/// The first step at which the draws of a run are wrong.
pub fn wrong(plan: &Plan, tokens: usize, batches: Batches) -> Option<Difference> {
    let draw = Draw {
        seed: plan.seed,
        ranks: STREAMS,
        batch: plan.batch,
        block: plan.shape.block,
        tokens,
    };
    // Small texts have few offsets, and two right draws may be equal.
    let distinct = tokens.saturating_sub(plan.shape.block) > 10_000 && plan.batch > 1;
    let mut seen: HashMap<Vec<usize>, (usize, usize)> = HashMap::new();
    let last = tokens - plan.shape.block - 1;
    // The last tenth of the text must be drawn from, too.
    let late = last - last / 10;
    let mut drawn_late = 0;
    for step in 1..=plan.steps {
        let at = |what| {
            Some(Difference {
                life: if step <= plan.killed_after { 1 } else { 2 },
                step,
                what,
            })
        };
        for micro in (step - 1) * plan.accumulation..step * plan.accumulation {
            for stream in 0..STREAMS {
                let Ok(drawn) = catch_unwind(|| batches(&draw, stream, micro)) else {
                    return at(format!("it panicked for rank {stream}, micro-batch {micro}"));
                };
                if drawn.len() != plan.batch {
                    return at(format!("{} sequences, not {}", drawn.len(), plan.batch));
                }
                drawn_late += drawn.iter().filter(|start| **start > late).count();
                if let Some(start) = drawn.iter().find(|&&start| start > last) {
                    return at(format!(
                        "a sequence starts at token {start}, and {last} is the last that fits"
                    ));
                }
                if catch_unwind(|| batches(&draw, stream, micro)).ok().as_ref() != Some(&drawn) {
                    return at("drawn again, a micro-batch is different".to_string());
                }
                if let Some((rank, before)) =
                    seen.insert(drawn, (stream, micro)).filter(|_| distinct)
                {
                    return at(format!(
                        "rank {stream} draws in micro-batch {micro} what rank {rank} drew in {before}"
                    ));
                }
            }
        }
    }
    // Of so many draws, one at least is there in all cases but one of 30,000.
    let draws = plan.steps * STREAMS * plan.accumulation * plan.batch;
    (distinct && draws >= 100 && drawn_late == 0).then(|| Difference {
        life: 2,
        step: plan.steps,
        what: format!(
            "of {draws} sequences none starts after token {late} of {last}: that text is never learned"
        ),
    })
}
