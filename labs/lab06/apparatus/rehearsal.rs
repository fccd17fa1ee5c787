//! A rehearsal: goes through all ranks' programs without computing, and finds what would never end.

use shardlab::parallel::pipeline::{Instruction, Op, Pipeline};
use std::collections::HashSet;
use std::fmt;

/// Why programs cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unplayable {
    /// A pass runs before its input is there: its rank, the pass, and the pass it needs with its
    /// rank.
    NoInput { rank: usize, op: Op, needed: (usize, Op) },
    /// All ranks that are left wait for messages: each rank, the pass whose result it waits for,
    /// and that pass's rank.
    Deadlock { waiting: Vec<(usize, Op, usize)> },
}

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Unplayable::NoInput { rank, op, needed: (other, needed) } => write!(
                f,
                "rank {rank} would run {op} without its input\n  \
                 rank {rank}  needs the result of {needed} from rank {other}, and never receives it\n\
                 help: give rank {rank} a receive of rank {other}'s {needed} before its own {op}"
            ),
            Unplayable::Deadlock { waiting } => {
                write!(f, "deadlock: {} ranks would wait for each other forever", waiting.len())?;
                for (rank, op, from) in waiting {
                    write!(f, "\n  rank {rank}  waits for the result of {op} from rank {from}")?;
                }
                write!(
                    f,
                    "\nhelp: receive a result just before the pass that needs it, and interleave at least as many \
                        micro-batches as there are ranks"
                )
            }
        }
    }
}

impl std::error::Error for Unplayable {}

/// Goes through the programs of all ranks, one instruction after the other. Sends do not wait.
pub fn rehearse(pipeline: &Pipeline, programs: &[Vec<Instruction>]) -> Result<(), Unplayable> {
    let mut at = vec![0; programs.len()];
    // (the rank that has the result, the rank that computed it, the pass)
    let mut here = HashSet::new();
    let mut sent = HashSet::new();
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (rank, program) in programs.iter().enumerate() {
            while let Some(&instruction) = program.get(at[rank]) {
                match instruction {
                    Instruction::Recv { op, from } if !sent.remove(&(from, rank, op)) => break,
                    Instruction::Recv { op, from } => drop(here.insert((rank, from, op))),
                    Instruction::Send { op, to } => drop(sent.insert((rank, to, op))),
                    Instruction::Compute(op) => {
                        if let Some(needed) = pipeline
                            .needs(rank, op)
                            .find(|&(other, op)| !here.contains(&(rank, other, op)))
                        {
                            return Err(Unplayable::NoInput { rank, op, needed });
                        }
                        here.insert((rank, rank, op));
                    }
                }
                at[rank] += 1;
                moved = true;
            }
        }
    }
    let waits = |(rank, program): (usize, &Vec<Instruction>)| match program.get(at[rank]) {
        Some(&Instruction::Recv { op, from }) => Some((rank, op, from)),
        _ => None,
    };
    let waiting: Vec<_> = programs.iter().enumerate().filter_map(waits).collect();
    if waiting.is_empty() {
        Ok(())
    } else {
        Err(Unplayable::Deadlock { waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::parallel::pipeline::Schedule;

    fn programs(pipeline: &Pipeline, schedule: Schedule) -> Vec<Vec<Instruction>> {
        let program = |rank| pipeline.with_messages(rank, &schedule.order(pipeline, rank));
        (0..pipeline.ranks).map(program).collect()
    }

    #[test]
    fn all_schedules_can_run_and_a_group_smaller_than_the_ranks_cannot() {
        for (chunks, schedule) in [
            (1, Schedule::GPipe),
            (1, Schedule::OneForwardOneBackward),
            (2, Schedule::Interleaved { group: 4 }),
            (2, Schedule::Interleaved { group: 8 }),
            (1, Schedule::ZeroBubble),
        ] {
            let pipeline = Pipeline { ranks: 4, chunks, micro_batches: 8 };
            assert_eq!(rehearse(&pipeline, &programs(&pipeline, schedule)), Ok(()), "{schedule:?}");
        }
        let pipeline = Pipeline { ranks: 4, chunks: 2, micro_batches: 6 };
        let error = rehearse(&pipeline, &programs(&pipeline, Schedule::Interleaved { group: 2 }))
            .unwrap_err();
        assert!(
            matches!(&error, Unplayable::Deadlock { waiting } if waiting.len() == 4),
            "{error}"
        );
    }

    #[test]
    fn a_receive_that_is_missing_is_named() {
        let pipeline = Pipeline { ranks: 3, chunks: 1, micro_batches: 4 };
        let mut programs = programs(&pipeline, Schedule::OneForwardOneBackward);
        let op = Op::forward(0, 2);
        programs[1].retain(|&one| one != Instruction::Recv { op, from: 0 });
        let error = rehearse(&pipeline, &programs).unwrap_err();
        assert_eq!(error, Unplayable::NoInput { rank: 1, op, needed: (0, op) });
        assert!(
            error
                .to_string()
                .starts_with("rank 1 would run F0.2 without its input\n  rank 1  needs"),
            "{error}"
        );
    }
}
