//! A dynamic order: a rank runs the first pass of its schedule whose input is there, instead of
//! waiting for the next one.
//!
//! Forward passes keep their order, and a rank never keeps more activations than under its
//! schedule. Backward passes may only come earlier. So a dynamic order takes no more memory than
//! its schedule. It also ends if the schedule does: take the pass that the schedule has first, of
//! all passes that have not run. Its input is there, and there is memory for it.
//!
//! The ranks of a tensor group run each pass together, but their messages come from different
//! ranks. If each of them chooses alone, one finds an input that is still in flight for the other,
//! and the two enter different passes. The all-reduces of the two passes have the same length. So
//! only their labels show that something is wrong. With [`Choice::Agreed`] one rank chooses for its
//! tensor group.

use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::parallel::pipeline::{Instruction, Op, Stages, StepRecord, Work, peak};
use shardlab::train::Training;
use std::collections::VecDeque;
use std::time::Duration;

/// The rule for the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The schedule's next pass, whatever has arrived.
    Schedule,
    /// The first pass that can run. Each rank looks at its own messages.
    Alone,
    /// The first pass that can run on the first rank of the tensor group.
    Agreed,
}

/// A rank's passes that have not run, in the order of its schedule.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub passes: Vec<Op>,
    /// How many of them the rank looks at when it chooses.
    looks_at: usize,
    /// Micro-batches whose activations the rank keeps, and the most that its schedule keeps.
    kept: usize,
    most: usize,
}

impl Waiting {
    pub fn new(order: &[Op], choice: Choice) -> Waiting {
        let looks_at = if choice == Choice::Schedule { 1 } else { order.len() };
        Waiting { passes: order.to_vec(), looks_at, kept: 0, most: peak(order) }
    }

    /// The number of the first pass that can run. `arrived`: whether the message that a pass needs
    /// is there.
    ///
    /// # Errors
    /// Those of `arrived`.
    pub fn first_ready<E>(
        &self,
        mut arrived: impl FnMut(Op) -> Result<bool, E>,
    ) -> Result<Option<usize>, E> {
        let mut may_go_forward = self.kept < self.most;
        for (i, &op) in self.passes.iter().enumerate().take(self.looks_at) {
            let may_run = match op.work {
                // Forward passes keep their order.
                Work::Forward => std::mem::take(&mut may_go_forward),
                _ => !self.passes[..i].contains(&Op::forward(op.chunk, op.micro)),
            };
            if may_run && arrived(op)? {
                return Ok(Some(i));
            }
        }
        Ok(None)
    }

    /// Takes pass number `i` out.
    pub fn take(&mut self, i: usize) -> Op {
        let op = self.passes.remove(i);
        self.kept = if op.work == Work::Forward {
            self.kept + 1
        } else {
            self.kept - 1
        };
        op
    }
}

/// Runs a step in a dynamic order. Returns its passes, and its loss and gradient norm. Only for one
/// replica: data ranks would average buckets in different orders.
///
/// # Errors
/// As [`Training::step`]; besides, if ranks that must choose together cannot communicate.
pub fn step_dynamic(
    training: &mut Training,
    text: &[u32],
    step: usize,
    choice: Choice,
) -> Result<(StepRecord, [f64; 2])> {
    let micro_batches = training.draw(text, step, &mut ())?;
    training.zero.begin()?;
    let Training { stages, program, tensor, zero, .. } = &*training;
    let pass = |one: &Instruction| match one {
        Instruction::Compute(op) => Some(*op),
        _ => None,
    };
    let order: Vec<Op> = program.iter().filter_map(pass).collect();
    let mut waiting = Waiting::new(&order, choice);
    let mut chosen = VecDeque::new();
    let mut program = std::iter::from_fn(|| {
        if chosen.is_empty() && !waiting.passes.is_empty() {
            match choose(stages, &waiting, choice, tensor.group()) {
                Ok(i) => {
                    let op = waiting.take(i);
                    chosen.extend(stages.pipeline.with_messages(stages.group().rank(), &[op]));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        chosen.pop_front().map(Ok)
    });
    let activations = training.activations(&micro_batches);
    let ran = stages.run(&mut program, false, &micro_batches, activations, zero)?;
    training.average()?;
    let grad_norm = training.update(step)?;
    let loss = training.loss(&ran)?;
    Ok((ran, [loss, grad_norm]))
}

/// The number of the pass that runs next. Waits for a message if no pass can run.
fn choose(stages: &Stages, waiting: &Waiting, choice: Choice, tensor: &Comm) -> Result<usize> {
    let mut chosen = [0u64];
    if choice != Choice::Agreed || tensor.rank() == 0 {
        let ready = || waiting.first_ready(|op| stages.has_arrived(op));
        chosen[0] = loop {
            match ready()? {
                Some(i) => break i as u64,
                None => std::thread::sleep(Duration::from_micros(20)),
            }
        };
    }
    if choice == Choice::Agreed {
        tensor.labelled("choice of the next pass").broadcast(&mut chosen, 0)?;
    }
    Ok(chosen[0] as usize)
}
