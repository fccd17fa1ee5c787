//! Schedules: the order in which each rank of a pipeline runs its forward and backward passes.
//!
//! The orders of `1f1b` and `interleaved` are Megatron-LM's
//! (megatron/core/pipeline_parallel/schedules.py, version 0.16.1). `zero-bubble` is ZB-H1 of Qi and
//! others, *Zero Bubble Pipeline Parallelism* (2023), arXiv:2401.10241.

use crate::error::BadInput;
use crate::named::named;
use std::fmt;

/// The shape of a pipeline.
///
/// With more than one chunk per rank, rank r's chunk c is stage `c * ranks + r` of the model: a
/// micro-batch visits all ranks once per chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    pub ranks: usize,
    /// Stages per rank; more than 1 only when interleaved.
    pub chunks: usize,
    /// Micro-batches per step.
    pub micro_batches: usize,
}

/// A pass of one micro-batch through one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    pub work: Work,
    pub chunk: usize,
    pub micro: usize,
}

named! {
    /// The kinds of passes.
    #[derive(Hash)]
    pub enum Work {
        Forward = "forward",
        /// The gradients of the chunk's input and, unless the schedule has [`Work::Weights`], of
        /// its weights.
        Backward = "backward",
        /// Only the gradients of the chunk's weights, from what the backward pass has kept.
        Weights = "weights",
    }
}

impl Op {
    pub const fn forward(chunk: usize, micro: usize) -> Op {
        Op { work: Work::Forward, chunk, micro }
    }

    pub const fn backward(chunk: usize, micro: usize) -> Op {
        Op { work: Work::Backward, chunk, micro }
    }

    pub const fn weights(chunk: usize, micro: usize) -> Op {
        Op { work: Work::Weights, chunk, micro }
    }
}

/// `F0.3`: the forward pass of micro-batch 3 through chunk 0.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let letter = match self.work {
            Work::Forward => 'F',
            Work::Backward => 'B',
            Work::Weights => 'W',
        };
        write!(f, "{letter}{}.{}", self.chunk, self.micro)
    }
}

/// One entry of a rank's program: a pass, or one end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Compute(Op),
    /// Sends the result of the rank's own `op` to rank `to`: activations after a forward pass, else
    /// their gradient.
    Send {
        op: Op,
        to: usize,
    },
    /// Receives from rank `from` the result of its pass `op`.
    Recv {
        op: Op,
        from: usize,
    },
}

/// A rule for the order of passes.
///
/// ```
/// use shapes::strategy::{Pipeline, Schedule};
///
/// let pipeline = Pipeline { ranks: 4, chunks: 1, micro_batches: 8 };
/// let orders = Schedule::OneForwardOneBackward.orders(&pipeline)?;
/// // Passes of chunk 0 on the last rank, by micro-batch: one forward, one backward.
/// let first: Vec<String> = orders[3].iter().take(4).map(|op| op.to_string()).collect();
/// assert_eq!(first, ["F0.0", "B0.0", "F0.1", "B0.1"]);
/// # Ok::<(), shapes::error::BadInput>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    GPipe,
    /// One forward, one backward: a backward pass runs as soon as there is one, so few activations
    /// are kept.
    OneForwardOneBackward,
    /// 1F1B over several chunks per rank. Micro-batches go through the chunks in groups of `group`:
    /// with as many as there are ranks, a micro-batch goes deep before the next group starts; with
    /// all of them, each chunk sees all micro-batches first.
    Interleaved { group: usize },
    /// 1F1B whose weight gradients wait, and fill what would be a bubble.
    ZeroBubble,
}

impl Schedule {
    /// Interleaved in groups as small as they can be: as many micro-batches as there are ranks
    /// (Megatron's default).
    pub fn depth_first(pipeline: &Pipeline) -> Schedule {
        Schedule::Interleaved { group: pipeline.ranks }
    }

    pub fn name(self) -> &'static str {
        match self {
            Schedule::GPipe => "gpipe",
            Schedule::OneForwardOneBackward => "1f1b",
            Schedule::Interleaved { .. } => "interleaved",
            Schedule::ZeroBubble => "zero-bubble",
        }
    }

    /// Refuses a pipeline that this schedule cannot run, as Megatron does where it has the
    /// schedule.
    ///
    /// # Errors
    /// If the schedule cannot run on these ranks, chunks and micro-batches. The text says which
    /// number to change.
    pub fn check(self, pipeline: &Pipeline) -> Result<(), BadInput> {
        let Pipeline { ranks, chunks, micro_batches } = *pipeline;
        if ranks == 0 || chunks == 0 || micro_batches == 0 {
            let what = format!(
                "a pipeline of {ranks} ranks, {chunks} chunks and {micro_batches} micro-batches has nothing to do"
            );
            return Err(BadInput::new(what, "give at least 1 of each"));
        }
        let Schedule::Interleaved { group } = self else {
            return if chunks == 1 {
                Ok(())
            } else {
                let what = format!("{} runs 1 chunk per rank, not {chunks}", self.name());
                Err(BadInput::new(what, "give `schedule` interleaved, or `chunks` 1"))
            };
        };
        if group < ranks || group > micro_batches {
            let what = format!(
                "groups of {group} micro-batches, with {ranks} ranks and {micro_batches} micro-batches"
            );
            let help = if micro_batches < ranks {
                format!(
                    "interleaving needs at least as many micro-batches as ranks: `micro_batches` {ranks}"
                )
            } else {
                format!(
                    "a group has at least one micro-batch per rank, and at most all: {ranks} to {micro_batches}"
                )
            };
            return Err(BadInput::new(what, help));
        }
        let rest = micro_batches % group;
        if rest > 0 && rest < ranks {
            let what = format!(
                "{micro_batches} micro-batches in groups of {group} leave a group of {rest}, for {ranks} ranks"
            );
            let help = format!(
                "the last group needs a micro-batch per rank, or ranks wait for each other: \
                 `micro_batches` {}, or {}",
                micro_batches - rest,
                micro_batches - rest + ranks
            );
            return Err(BadInput::new(what, help));
        }
        Ok(())
    }

    /// Each rank's passes, in order.
    ///
    /// # Errors
    /// As [`Schedule::check`].
    pub fn orders(self, pipeline: &Pipeline) -> Result<Vec<Vec<Op>>, BadInput> {
        self.check(pipeline)?;
        Ok((0..pipeline.ranks).map(|rank| self.order(pipeline, rank)).collect())
    }

    /// One rank's passes, of a pipeline that may be one that [`Schedule::check`] refuses.
    pub fn order(self, pipeline: &Pipeline, rank: usize) -> Vec<Op> {
        let m = pipeline.micro_batches;
        match self {
            Schedule::GPipe => (0..m)
                .map(|i| Op::forward(0, i))
                .chain((0..m).map(|i| Op::backward(0, i)))
                .collect(),
            Schedule::OneForwardOneBackward => one_f_one_b(pipeline, rank, m),
            Schedule::Interleaved { group } => one_f_one_b(pipeline, rank, group),
            Schedule::ZeroBubble => zero_bubble(pipeline, rank),
        }
    }

    /// Number of warm-up forward passes of `rank` (Megatron's `num_warmup_microbatches`).
    pub fn warm_up(self, pipeline: &Pipeline, rank: usize) -> usize {
        let Pipeline { ranks, chunks, micro_batches } = *pipeline;
        let after = ranks - 1 - rank;
        let warm_up = match self {
            Schedule::GPipe => micro_batches,
            Schedule::Interleaved { group } if chunks > 1 => 2 * after + (chunks - 1) * group,
            _ => after,
        };
        warm_up.min(micro_batches * chunks)
    }
}

// ANCHOR: one_f_one_b
/// First only forward passes, until the first micro-batch comes back; then a forward and a backward
/// pass in turn; then the backward passes that are left.
fn one_f_one_b(pipeline: &Pipeline, rank: usize, group: usize) -> Vec<Op> {
    let visits = visits(pipeline, group);
    let warm_up = Schedule::Interleaved { group }.warm_up(pipeline, rank);
    let forward = |&(chunk, micro): &(usize, usize)| Op::forward(chunk, micro);
    // A micro-batch comes back through the chunks in the opposite order.
    let backward =
        |&(chunk, micro): &(usize, usize)| Op::backward(pipeline.chunks - 1 - chunk, micro);
    let (alone, rest) = visits.split_at(warm_up);
    let pairs = rest
        .iter()
        .zip(&visits)
        .flat_map(|(next, back)| [forward(next), backward(back)]);
    let left = &visits[rest.len()..];
    alone
        .iter()
        .map(forward)
        .chain(pairs)
        .chain(left.iter().map(backward))
        .collect()
}
// ANCHOR_END: one_f_one_b

/// The order in which micro-batches visit a rank's chunks: (chunk, micro-batch), a group of
/// micro-batches at a time.
fn visits(pipeline: &Pipeline, group: usize) -> Vec<(usize, usize)> {
    let m = pipeline.micro_batches;
    let of_group = |first: usize| {
        let micro_batches = first..m.min(first + group);
        (0..pipeline.chunks)
            .flat_map(move |chunk| micro_batches.clone().map(move |micro| (chunk, micro)))
    };
    (0..m).step_by(group.max(1)).flat_map(of_group).collect()
}

/// 1F1B, in which rank r holds back the weight gradients of r micro-batches. Then no rank keeps
/// more than rank 0 does under 1F1B, and what was held back fills the wait for the last gradients.
fn zero_bubble(pipeline: &Pipeline, rank: usize) -> Vec<Op> {
    let m = pipeline.micro_batches;
    let warm_up = Schedule::ZeroBubble.warm_up(pipeline, rank);
    let mut order: Vec<Op> = (0..warm_up).map(|i| Op::forward(0, i)).collect();
    for i in 0..m {
        if warm_up + i < m {
            order.push(Op::forward(0, warm_up + i));
        }
        order.push(Op::backward(0, i));
        order.extend(i.checked_sub(rank).map(|late| Op::weights(0, late)));
    }
    order.extend((m.saturating_sub(rank)..m).map(|i| Op::weights(0, i)));
    order
}

impl Pipeline {
    /// The stages of the model.
    pub fn stages(&self) -> usize {
        self.ranks * self.chunks
    }

    /// The stage that is `rank`'s chunk `chunk`.
    pub fn stage(&self, rank: usize, chunk: usize) -> usize {
        chunk * self.ranks + rank
    }

    /// The passes that must be over before `rank` can run `op`, with their ranks.
    pub fn needs(&self, rank: usize, op: Op) -> impl Iterator<Item = (usize, Op)> {
        let stage = self.stage(rank, op.chunk);
        let at = |stage: usize, work| {
            (stage % self.ranks, Op { work, chunk: stage / self.ranks, micro: op.micro })
        };
        let (own, other) = match op.work {
            Work::Forward => (None, stage.checked_sub(1).map(|before| at(before, Work::Forward))),
            Work::Backward => {
                let after = (stage + 1 < self.stages()).then(|| at(stage + 1, Work::Backward));
                (Some(at(stage, Work::Forward)), after)
            }
            Work::Weights => (Some(at(stage, Work::Backward)), None),
        };
        own.into_iter().chain(other)
    }

    /// The rank that waits for the result of `rank`'s `op`, and what it does with it.
    fn reader(&self, rank: usize, op: Op) -> Option<usize> {
        let stage = self.stage(rank, op.chunk);
        let reader = match op.work {
            Work::Forward => Some(stage + 1).filter(|&next| next < self.stages()),
            Work::Backward => stage.checked_sub(1),
            Work::Weights => None,
        };
        reader.map(|stage| stage % self.ranks).filter(|&reader| reader != rank)
    }

    /// `rank`'s `order` with its messages: each is received just before the pass that needs it, and
    /// sent right after the pass that made it.
    pub fn with_messages(&self, rank: usize, order: &[Op]) -> Vec<Instruction> {
        let mut all = Vec::with_capacity(3 * order.len());
        for &op in order {
            let others = self.needs(rank, op).filter(|&(other, _)| other != rank);
            all.extend(others.map(|(from, op)| Instruction::Recv { op, from }));
            all.push(Instruction::Compute(op));
            all.extend(self.reader(rank, op).map(|to| Instruction::Send { op, to }));
        }
        all
    }
}
