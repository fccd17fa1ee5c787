//! Mistakes in a pipeline. Some never end, one trains on and looks plausible.

use shardlab::parallel::pipeline::{Instruction, Work};

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// One rank lacks one receive
    SkipRecv,
    /// The last rank receives all its inputs before its first pass
    EarlyRecv,
    /// The schedule interleaves groups of fewer micro-batches than ranks
    SmallGroup,
    /// The first and the last stage do not add up their gradients of the token table
    Untied,
}

impl Break {
    /// Makes the mistake in `rank`'s program. [`Break::SmallGroup`] and [`Break::Untied`] are not
    /// made here.
    pub fn spoil(self, program: &mut Vec<Instruction>, rank: usize, ranks: usize) {
        match self {
            Break::SkipRecv if rank + 1 == ranks => {
                let last = program.iter().rposition(is_input);
                last.map(|at| program.remove(at));
            }
            // A stable sort: receives of inputs first, all else in its order.
            Break::EarlyRecv if rank + 1 == ranks => program.sort_by_key(|one| !is_input(one)),
            _ => {}
        }
    }
}

/// Whether the instruction receives the input of a forward pass.
fn is_input(instruction: &Instruction) -> bool {
    matches!(instruction, Instruction::Recv { op, .. } if op.work == Work::Forward)
}
