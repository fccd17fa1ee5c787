//! How long a schedule takes, from the times of its passes: what starts when, what waits for what,
//! and what is kept.

use super::schedule::{Op, Pipeline, Work};

/// Seconds of each pass through one chunk, and of a message between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub forward: f64,
    pub backward: f64,
    /// Only of schedules that divide the backward pass.
    pub weights: f64,
    pub message: f64,
}

impl Times {
    pub fn of(&self, work: Work) -> f64 {
        match work {
            Work::Forward => self.forward,
            Work::Backward => self.backward,
            Work::Weights => self.weights,
        }
    }
}

/// A schedule with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// When each pass of each rank starts, in the order's order: seconds.
    pub starts: Vec<Vec<f64>>,
    /// When the last pass ends.
    pub makespan: f64,
    /// Seconds that a rank computes, the busiest one's.
    pub busy: f64,
    /// The most chunks' activations that each rank holds at once: those of forward passes whose
    /// last backward pass is not over.
    pub peaks: Vec<usize>,
}

impl Simulated {
    /// Idle time as a share of the whole step: 0.27 for 1F1B with 4 ranks and 8 micro-batches.
    pub fn bubble(&self) -> f64 {
        (self.makespan - self.busy) / self.makespan
    }

    /// Idle time in proportion to the work: (p-1)/(m v) for GPipe, 1F1B and interleaved 1F1B.
    pub fn bubble_to_work(&self) -> f64 {
        (self.makespan - self.busy) / self.busy
    }
}

/// Passes that wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "deadlock: {} ranks wait for passes that never run{}\n\
     help: change the order of the passes, so that every pass comes after what it needs",
    .stuck.len(),
    .stuck.iter().map(line).collect::<String>()
)]
pub struct Deadlock {
    /// Each rank that is stuck: its pass, and the rank and pass it waits for.
    pub stuck: Vec<(usize, Op, (usize, Op))>,
}

fn line((rank, op, (other, needed)): &(usize, Op, (usize, Op))) -> String {
    format!("\nrank {rank}: {op} waits for {needed} of rank {other}")
}

/// [`simulate_with`] the same times on all ranks.
///
/// # Errors
/// [`Deadlock`], if ranks wait for each other and none can go on.
pub fn simulate(
    pipeline: &Pipeline,
    orders: &[Vec<Op>],
    times: &Times,
) -> Result<Simulated, Deadlock> {
    simulate_with(pipeline, orders, |_, op| times.of(op.work), times.message)
}

/// Runs `orders`: a pass starts when its rank's previous pass is over and what it needs has
/// arrived. `took` gives the seconds of a rank's pass, `message` those of a message between two
/// ranks.
///
/// Takes time in proportion to the number of passes. Messages do not keep a rank from computing.
///
/// # Errors
/// [`Deadlock`], if ranks wait for each other and none can go on.
pub fn simulate_with(
    pipeline: &Pipeline,
    orders: &[Vec<Op>],
    took: impl Fn(usize, Op) -> f64,
    message: f64,
) -> Result<Simulated, Deadlock> {
    let place = |rank: usize, op: Op| {
        (op.work as usize * pipeline.stages() + pipeline.stage(rank, op.chunk))
            * pipeline.micro_batches
            + op.micro
    };
    let mut ends = vec![f64::NAN; Work::ALL.len() * pipeline.stages() * pipeline.micro_batches];
    let mut starts: Vec<Vec<f64>> =
        orders.iter().map(|order| Vec::with_capacity(order.len())).collect();
    let mut free = vec![0.0; orders.len()];
    // The first thing that a pass waits for, if it cannot run yet.
    let missing = |rank: usize, op: Op, ends: &[f64]| {
        pipeline
            .needs(rank, op)
            .find(|&(other, needed)| ends[place(other, needed)].is_nan())
    };
    let mut moved = true;
    while moved {
        moved = false;
        for (rank, order) in orders.iter().enumerate() {
            while let Some(&op) = order.get(starts[rank].len()) {
                if missing(rank, op, &ends).is_some() {
                    break;
                }
                let arrives = |(other, needed)| {
                    ends[place(other, needed)] + if other == rank { 0.0 } else { message }
                };
                let start = pipeline.needs(rank, op).map(arrives).fold(free[rank], f64::max);
                free[rank] = start + took(rank, op);
                ends[place(rank, op)] = free[rank];
                starts[rank].push(start);
                moved = true;
            }
        }
    }
    let waits = |(rank, order): (usize, &Vec<Op>)| {
        let op = *order.get(starts[rank].len())?;
        Some((rank, op, missing(rank, op, &ends)?))
    };
    let stuck: Vec<_> = orders.iter().enumerate().filter_map(waits).collect();
    if !stuck.is_empty() {
        return Err(Deadlock { stuck });
    }
    let seconds =
        |(rank, order): (usize, &Vec<Op>)| order.iter().map(|&op| took(rank, op)).sum::<f64>();
    Ok(Simulated {
        makespan: free.into_iter().fold(0.0, f64::max),
        busy: orders.iter().enumerate().map(seconds).fold(0.0, f64::max),
        peaks: orders.iter().map(|order| peak(order)).collect(),
        starts,
    })
}

/// The most forward passes in an order whose activations are still needed.
pub fn peak(order: &[Op]) -> usize {
    let last = if order.iter().any(|op| op.work == Work::Weights) {
        Work::Weights
    } else {
        Work::Backward
    };
    let mut live = 0usize;
    let mut peak = 0;
    for op in order {
        if op.work == Work::Forward {
            live += 1;
            peak = peak.max(live);
        } else if op.work == last {
            live = live.saturating_sub(1);
        }
    }
    peak
}
