//! The orders that ranks choose if passes and messages take uneven times.

use super::choice::{Choice, Waiting};
use shardlab::parallel::pipeline::{Op, Pipeline};
use std::collections::HashMap;
use std::fmt;

/// Uneven times, in seconds.
pub struct Uneven<'a> {
    /// The time of a pass on a pipeline rank. Its tensor ranks run it together.
    pub pass: &'a dyn Fn(usize, Op) -> f64,
    /// The time of the message with the result of a pass, by the tensor rank and the pipeline rank
    /// that send it.
    pub message: &'a dyn Fn(usize, usize, Op) -> f64,
}

/// The passes that each pipeline rank has chosen, in this order, and when the last one ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub orders: Vec<Vec<Op>>,
    pub makespan: f64,
}

/// Tensor ranks that have chosen different passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// Their rank in the pipeline.
    pub rank: usize,
    /// The choice of each tensor rank.
    pub choices: Vec<Op>,
    /// All passes that ran before.
    pub before: Chosen,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "the tensor ranks of pipeline rank {} run different passes", self.rank)?;
        for (tensor, op) in self.choices.iter().enumerate() {
            write!(f, "\ntensor rank {tensor}: {op}")?;
        }
        write!(f, "\nhelp: let one rank of a tensor group choose for all of them")
    }
}

impl std::error::Error for Disagreement {}

/// Runs the passes of `orders` as each rank chooses them, with so many tensor ranks per pipeline
/// rank.
///
/// # Errors
/// [`Disagreement`], if tensor ranks of one pipeline rank choose different passes.
pub fn simulate_uneven(
    pipeline: &Pipeline,
    orders: &[Vec<Op>],
    tensor_ranks: usize,
    choice: Choice,
    times: &Uneven,
) -> Result<Chosen, Disagreement> {
    let mut waiting: Vec<Waiting> =
        orders.iter().map(|order| Waiting::new(order, choice)).collect();
    let mut run = Chosen { orders: vec![Vec::new(); orders.len()], makespan: 0.0 };
    let mut free = vec![0f64; orders.len()];
    // When a message arrives, by the tensor rank and the pipeline rank that sent it.
    let mut arrivals: HashMap<(usize, usize, Op), f64> = HashMap::new();
    // The choices of each pipeline rank's tensor ranks, or of the one that chooses.
    let mut choices =
        vec![vec![None; if choice == Choice::Agreed { 1 } else { tensor_ranks }]; orders.len()];
    loop {
        // When a pass could start, as far as messages have been sent.
        let start = |rank: usize, tensor: usize, op: Op| {
            let message =
                |(from, op)| arrivals.get(&(tensor, from, op)).copied().unwrap_or(f64::INFINITY);
            let needs = pipeline.needs(rank, op).filter(|(other, _)| *other != rank);
            needs.map(message).fold(free[rank], f64::max)
        };
        // The next rank that can choose. Whatever is sent from now on arrives later.
        let mut next = (f64::INFINITY, 0, 0);
        for (rank, choices) in choices.iter().enumerate() {
            for tensor in (0..choices.len()).filter(|&tensor| choices[tensor].is_none()) {
                let look = |op| {
                    let at = start(rank, tensor, op);
                    next = if at < next.0 { (at, rank, tensor) } else { next };
                    Ok::<_, ()>(false)
                };
                waiting[rank].first_ready(look).ok();
            }
        }
        let (now, rank, tensor) = next;
        if now.is_infinite() {
            return Ok(run);
        }
        choices[rank][tensor] = waiting[rank]
            .first_ready(|op| Ok::<_, ()>(start(rank, tensor, op) <= now))
            .unwrap_or(None);
        let Some(chosen) = choices[rank].iter().copied().collect::<Option<Vec<usize>>>() else {
            continue;
        };
        if chosen.iter().any(|&i| i != chosen[0]) {
            let choices = chosen.iter().map(|&i| waiting[rank].passes[i]).collect();
            return Err(Disagreement { rank, choices, before: run });
        }
        // All tensor ranks start together, when the last one is there and has its message.
        let op = waiting[rank].passes[chosen[0]];
        let end = (0..tensor_ranks).map(|tensor| start(rank, tensor, op)).fold(now, f64::max)
            + (times.pass)(rank, op);
        free[rank] = end;
        for tensor in 0..tensor_ranks {
            arrivals.insert((tensor, rank, op), end + (times.message)(tensor, rank, op));
        }
        choices[rank].fill(None);
        run.orders[rank].push(waiting[rank].take(chosen[0]));
        run.makespan = run.makespan.max(end);
    }
}
