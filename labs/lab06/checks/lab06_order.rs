//! The check of lab06-order: the passes of each rank, then all ranks together in the simulator:
//! deadlock, memory, time.

use exercise::{Times, order};
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::parallel::pipeline::{self, Op, Pipeline, Schedule, Simulated, Work, simulate};
use std::process::ExitCode;

/// The times of the exercise's table, in milliseconds.
const TABLE: Times = Times { forward: 2, backward: 4, message: 3 };

/// Other times: messages that take none, slow messages, and passes that are equally long.
const OTHERS: [Times; 3] = [
    Times { message: 0, ..TABLE },
    Times { message: 9, ..TABLE },
    Times { forward: 3, backward: 3, message: 1 },
];

/// The same for the simulator.
fn simulated_times(times: Times) -> pipeline::Times {
    pipeline::Times {
        forward: times.forward as f64,
        backward: times.backward as f64,
        weights: 0.0,
        message: times.message as f64,
    }
}

/// A step: its ranks, its micro-batches, and its times.
#[derive(Clone, Copy)]
struct Step {
    ranks: usize,
    micro_batches: usize,
    times: Times,
}

/// The step of the exercise's table.
const FOUR: Step = Step { ranks: 4, micro_batches: 8, times: TABLE };

fn main() -> ExitCode {
    run(&[
        ("1 rank, 3 micro-batches: each pass runs once", |evidence| {
            let one = Step { ranks: 1, micro_batches: 3, ..FOUR };
            passes(evidence, one)
        }),
        ("4 ranks, 8 micro-batches: each pass runs once", |evidence| {
            passes(evidence, FOUR)
        }),
        ("backward passes have the order of forward passes", |evidence| {
            turns(evidence, FOUR)
        }),
        ("no pass waits forever", |evidence| ends(evidence, FOUR)),
        ("each rank keeps as few activations as it can", |evidence| {
            memory(evidence, FOUR)
        }),
        ("the step takes no longer than GPipe's", |evidence| time(evidence, FOUR)),
        ("1 to 5 ranks, 1 to 7 micro-batches", all),
        ("other times of passes and messages", others),
    ])
}

fn orders(evidence: &Evidence, step: Step) -> (Pipeline, Vec<Vec<Op>>) {
    let Step { ranks, micro_batches, times } = step;
    let of_rank = |rank| {
        evidence
            .given(format!("rank {rank} of {ranks}, {}, and {times:?}", counted(micro_batches)));
        order(rank, ranks, micro_batches, times)
    };
    (Pipeline { ranks, chunks: 1, micro_batches }, (0..ranks).map(of_rank).collect())
}

/// `1 micro-batch`, `2 micro-batches`.
fn counted(micro_batches: usize) -> String {
    let plural = if micro_batches == 1 { "" } else { "es" };
    format!("{micro_batches} micro-batch{plural}")
}

/// The forward passes before the first backward pass.
fn leading(order: &[Op]) -> usize {
    order.iter().take_while(|op| op.work == Work::Forward).count()
}

fn listed(ops: &[Op]) -> String {
    const MOST: usize = 4;
    let shown: Vec<String> = ops.iter().take(MOST).map(Op::to_string).collect();
    let dots = if ops.len() > MOST { " .." } else { "" };
    if ops.is_empty() {
        "nothing".into()
    } else {
        shown.join(" ") + dots
    }
}

fn passes(evidence: &mut Evidence, step: Step) -> Result<()> {
    let (_, orders) = orders(evidence, step);
    let micro_batches = step.micro_batches;
    let asked = |work| (0..micro_batches).map(move |micro| Op { work, chunk: 0, micro });
    let asked: Vec<Op> = asked(Work::Forward).chain(asked(Work::Backward)).collect();
    let mut missing = Vec::new();
    let mut extra = Vec::new();
    for (rank, order) in orders.iter().enumerate() {
        let times = |op: &Op| order.iter().filter(|other| *other == op).count();
        let lacks: Vec<Op> = asked.iter().copied().filter(|op| times(op) == 0).collect();
        let more: Vec<Op> = order
            .iter()
            .copied()
            .filter(|op| !asked.contains(op) || times(op) > 1)
            .collect();
        evidence.row(
            lacks.is_empty(),
            format!("rank {rank} leaves out"),
            "nothing",
            listed(&lacks),
        );
        evidence.row(
            more.is_empty(),
            format!("rank {rank} has too often"),
            "nothing",
            listed(&more),
        );
        missing.extend(lacks);
        extra.extend(more);
    }
    if evidence.agrees() {
        return Ok(());
    }
    let only_backward =
        |ops: &[Op]| !ops.is_empty() && ops.iter().all(|op| op.work == Work::Backward);
    evidence.means_if(
        extra.iter().any(|op| op.work == Work::Weights),
        "1F1B does not divide the backward pass: `Op::weights` belongs to zero-bubble schedules.",
    );
    evidence.means_if(
        extra.iter().any(|op| op.chunk > 0),
        "Each rank has one chunk here, so the first number of every pass is 0. The second number is the micro-batch.",
    );
    evidence.means_if(
        missing.is_empty() && orders.iter().any(|order| leading(order) > micro_batches),
        format!(
            "A step has only {} here, and your warm-up goes on: it runs passes of micro-batches that nobody has drawn.",
            counted(micro_batches)
        ),
    );
    evidence.means_if(
        extra.iter().any(|op| op.micro >= micro_batches),
        format!("Micro-batches count from 0, so the last one is {}.", micro_batches - 1),
    );
    evidence.means_if(
        only_backward(&missing) && extra.is_empty(),
        "Backward passes are missing. When the forward passes have ended, some micro-batches are still in flight: as many as \
         ran ahead at the beginning. They come back one after the other.",
    );
    evidence.means_if(
        !missing.is_empty() && extra.is_empty(),
        "Passes are missing, so gradients are incomplete.",
    );
    evidence.means(
        "A pass that runs twice adds its gradients twice. Each rank runs 2 passes per micro-batch.",
    );
    Ok(())
}

/// Runs the orders. A deadlock becomes evidence.
fn simulated(
    evidence: &mut Evidence,
    pipeline: &Pipeline,
    orders: &[Vec<Op>],
    times: Times,
) -> Option<Simulated> {
    let deadlock = match simulate(pipeline, orders, &simulated_times(times)) {
        Ok(simulated) => return Some(simulated),
        Err(deadlock) => deadlock,
    };
    for (rank, op, (other, needed)) in &deadlock.stuck {
        evidence.row(
            false,
            format!("rank {rank}"),
            "ends",
            format!("{op} waits for {needed} of rank {other}"),
        );
    }
    let own = deadlock.stuck.iter().find(|(rank, _, (other, _))| rank == other);
    if let Some((rank, op, (_, needed))) = own {
        evidence.means(format!(
            "Rank {rank} runs {op} before its own {needed}. A backward pass needs the activations of the forward pass."
        ));
    }
    let ahead = |rank: usize| leading(&orders[rank]);
    evidence.means_if(
        (1..pipeline.ranks).all(|rank| ahead(rank) >= ahead(rank - 1)) && ahead(pipeline.ranks - 1) > ahead(0),
        "Later ranks run more forward passes ahead than earlier ranks. They wait for activations that the earlier ranks \
         do not send before they get gradients. A gradient comes from the last rank, so count the ranks after this one.",
    );
    evidence.means(
        "These ranks wait for each other. A forward pass waits for the rank before, a backward pass for the rank after. Which of the two does each rank run first, and when does its neighbour run the one it needs?",
    );
    None
}

fn ends(evidence: &mut Evidence, step: Step) -> Result<()> {
    let (pipeline, orders) = orders(evidence, step);
    let ended = simulated(evidence, &pipeline, &orders, step.times).is_some();
    evidence.same("all ranks end", true, ended);
    Ok(())
}

/// How many forward passes a rank runs ahead if it is never to wait in the middle of a step.
fn ahead(rank: usize, step: Step) -> usize {
    let Step { ranks, times, .. } = step;
    let pair = times.forward + times.backward;
    let away = (ranks - 1 - rank) * (pair + 2 * times.message);
    away.div_ceil(pair)
}

fn memory(evidence: &mut Evidence, step: Step) -> Result<()> {
    let (pipeline, orders) = orders(evidence, step);
    let Some(yours) = simulated(evidence, &pipeline, &orders, step.times) else {
        return Ok(());
    };
    let Step { ranks, micro_batches, .. } = step;
    let asked: Vec<usize> =
        (0..ranks).map(|rank| (ahead(rank, step) + 1).min(micro_batches)).collect();
    for (rank, (most, got)) in asked.iter().zip(&yours.peaks).enumerate() {
        // The number that is asked for is what the reader is to find.
        let few = got <= most;
        evidence.row(
            few,
            format!("rank {rank}: micro-batches kept"),
            "as few as it needs",
            format!("{got}{}", if few { "" } else { ": too many" }),
        );
    }
    if evidence.agrees() {
        return Ok(());
    }
    let by = |extra: usize| asked.iter().zip(&yours.peaks).all(|(most, got)| most + extra == *got);
    evidence.means_if(
        yours.peaks.iter().all(|&peak| peak == micro_batches),
        "This is GPipe: every rank keeps the activations of all micro-batches, and more micro-batches need more memory. Run \
         the backward pass of micro-batch 0 as soon as its gradient arrives.",
    );
    evidence.means_if(
        by(1),
        "Every rank runs one forward pass too many before its first backward pass. The pair of a forward and a backward pass \
         brings one forward pass, too: it needs no place in the warm-up.",
    );
    evidence.means_if(
        ranks > 1 && yours.peaks.windows(2).all(|two| two[0] == two[1]),
        "All ranks run equally many forward passes ahead. On rank 0 a micro-batch is away for the longest time. The last rank \
         can run a micro-batch's backward pass right after its forward pass.",
    );
    let excess: Vec<usize> = asked
        .iter()
        .zip(&yours.peaks)
        .map(|(most, got)| got.saturating_sub(*most))
        .collect();
    evidence.means_if(
        ranks > 1 && excess[0] > 0 && excess.windows(2).all(|two| two[0] < two[1]),
        format!(
            "Every rank keeps more than it needs, and the later in the pipeline the more: the last rank, with nobody after it, keeps {}. \
             Count what delays a gradient on its way to this rank, and not what lies before it.",
            yours.peaks[ranks - 1]
        ),
    );
    evidence.means_if(
        ranks > 1 && excess[ranks - 1] == 0 && excess[ranks - 2] > 0,
        "The last rank keeps no more than it must, and the ranks before it do. You know how long a gradient takes to come back. \
         What does a rank run in that time for each micro-batch of its warm-up: one pass, or two?",
    );
    evidence.means(
        "Between a micro-batch's forward and backward pass, its activations stay in memory. A rank needs as many micro-batches \
         ahead as keep it busy until its gradient is back, and no more.",
    );
    Ok(())
}

fn time(evidence: &mut Evidence, step: Step) -> Result<()> {
    let (pipeline, orders) = orders(evidence, step);
    let Some(yours) = simulated(evidence, &pipeline, &orders, step.times) else {
        return Ok(());
    };
    let Step { ranks, micro_batches, times } = step;
    let orders_of_gpipe = Schedule::GPipe.orders(&pipeline)?;
    let gpipe = simulate(&pipeline, &orders_of_gpipe, &simulated_times(times))?;
    evidence.row(
        yours.makespan <= gpipe.makespan,
        "the step, in ms",
        format!("at most {}", gpipe.makespan),
        yours.makespan,
    );
    if evidence.agrees() {
        return Ok(());
    }
    let one_micro_batch =
        ranks * (times.forward + times.backward) + 2 * (ranks - 1) * times.message;
    evidence.means_if(
        yours.makespan == (micro_batches * one_micro_batch) as f64,
        "Only one rank computes at any time: rank 0 waits until a micro-batch has come back before it sends the next one. So \
         four ranks take as long as one, and the messages besides.",
    );
    // What a division without `div_ceil` gives.
    let rounded_down = |rank: usize| {
        let pair = times.forward + times.backward;
        (ranks - 1 - rank) * (pair + 2 * times.message) / pair
    };
    let is_rounded_down =
        |rank: usize| yours.peaks[rank] == (rounded_down(rank) + 1).min(micro_batches);
    evidence.means_if(
        times.message > 0
            && (0..ranks).all(is_rounded_down)
            && (0..ranks).any(|rank| rounded_down(rank) < ahead(rank, step)),
        "The round trip is no whole number of pairs here, and your division drops the rest. A rank that has work for a part of the round \
         trip waits for the other part: round up.",
    );
    let plain = Schedule::OneForwardOneBackward.orders(&pipeline)?;
    evidence.means_if(
        orders == plain,
        format!(
            "This is 1F1B for messages that take no time: one forward pass ahead for each later rank. Here messages take {} ms, \
             so a gradient is back later than that. Until then the rank has nothing to run, once in each round.",
            times.message
        ),
    );
    let fewer =
        (0..ranks).find(|&rank| yours.peaks[rank] < (ahead(rank, step) + 1).min(micro_batches));
    if let Some(rank) = fewer {
        let later = ranks - 1 - rank;
        evidence.means(format!(
            "The order is possible, but ranks wait. Rank {rank} runs too few forward passes before its first backward pass: with \
             {later} rank{} after it, its work ends before its first gradient is back. Follow one micro-batch on its way there and \
             back.",
            if later == 1 { "" } else { "s" }
        ));
    }
    evidence.means("The order is possible, and keeps few activations, but ranks wait in the middle of the step.");
    Ok(())
}

fn turns(evidence: &mut Evidence, step: Step) -> Result<()> {
    let (_, orders) = orders(evidence, step);
    let micro_batches = step.micro_batches;
    for (rank, order) in orders.iter().enumerate() {
        for (work, name) in [(Work::Forward, "forward"), (Work::Backward, "backward")] {
            let micros: Vec<usize> =
                order.iter().filter(|op| op.work == work).map(|op| op.micro).collect();
            let wrong = (0..micro_batches).find(|&i| micros[i] != i);
            let i = wrong.unwrap_or(0);
            evidence.row(
                wrong.is_none(),
                format!("rank {rank}: {name} pass number {i}"),
                i,
                micros[i],
            );
        }
    }
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means(
        "Micro-batches come back in a different order from the one in which they went. Micro-batch 0 has kept its activations \
         for the longest time, and the last rank's backward pass sends its gradient first. In this order all ranks also add \
         up gradients as a rank without a pipeline does, with the same rounding.",
    );
    Ok(())
}

fn all(evidence: &mut Evidence) -> Result<()> {
    all_with(evidence, TABLE)
}

/// All steps with these times, up to the first that is wrong.
fn all_with(evidence: &mut Evidence, times: Times) -> Result<()> {
    for (ranks, micro_batches) in (1..=5).flat_map(|ranks| (1..=7).map(move |m| (ranks, m))) {
        let step = Step { ranks, micro_batches, times };
        for part in [passes, turns, ends, memory, time] {
            part(evidence, step)?;
            if !evidence.agrees() {
                let plural = if ranks == 1 { "" } else { "s" };
                let shape = format!("{ranks} rank{plural}, {}", counted(micro_batches));
                evidence.row(false, "wrong first with", "none", shape);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// An order that is right with the table's times may have only their quotient in it.
fn others(evidence: &mut Evidence) -> Result<()> {
    for times in OTHERS {
        let mut differs = false;
        for rank in 0..FOUR.ranks {
            evidence.given(format!("rank {rank} of 4, 8 micro-batches, and {times:?}"));
            let of = |times| order(rank, FOUR.ranks, FOUR.micro_batches, times);
            differs |= of(times) != of(TABLE);
        }
        evidence.row(
            differs,
            format!("{times:?}"),
            "another order",
            if differs { "another order" } else { "the same order" },
        );
        evidence.means_if(
            !differs,
            "The order does not depend on the times. Two forward passes ahead for each later rank are right as long as a round trip is \
             twice as long as a pair of passes, and that is so in the table only. Compute how far a rank runs ahead from `times`.",
        );
        if evidence.agrees() {
            all_with(evidence, times)?;
        }
        if !evidence.agrees() {
            evidence.row(false, "with the times", "right", format!("{times:?}"));
            return Ok(());
        }
    }
    Ok(())
}
