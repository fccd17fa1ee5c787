//! Labs 00 to 02: ranks, collectives, one step.

use super::Question;
use anyhow::Result;
use kit::place::seats;
use kit::show::{bytes_decimal, significant};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::plan::{Network, simulate};

pub fn local_rank() -> Result<Question> {
    let on_each = [3, 4, 4];
    let gpus = 4;
    let asked = 8;
    let host = |(node, &ranks): (usize, &usize)| vec![format!("node {node}"); ranks];
    let hosts: Vec<String> = on_each.iter().enumerate().flat_map(host).collect();
    let seat = seats(&hosts)[asked];
    Ok(Question::amount(
        ["lab00", "The idea"],
        format!(
            "Ranks 0 to 2 run on one node, ranks 3 to 6 on the next, ranks 7 to 10 on the last. Each node has {gpus} GPUs, \
             numbered from 0, and a rank takes the one with its local rank. Which GPU does rank {asked} take?"
        ),
        |gpu| format!("GPU {gpu}"),
        seat.local_rank as f64,
        &[
            (
                (asked % gpus) as f64,
                "That is the remainder of the rank by the GPUs of a node. It holds only where every node before is full, and the \
                 first one has a rank less.",
            ),
            (seat.node as f64, "That is the number of the rank's node."),
            (asked as f64, "That is its rank in the whole job, and no node has so many GPUs."),
        ],
        "The local rank is the number of ranks before it on the same node.",
    ))
}

/// Bytes that the busiest rank sends.
fn sent(collective: Collective, algorithm: Algorithm, ranks: usize, bytes: usize) -> Result<f64> {
    let whole = bytes / size_of::<f32>();
    let len = match collective {
        Collective::AllReduce => whole,
        _ => whole / ranks,
    };
    let task = Task::new(collective, algorithm, ranks, len, size_of::<f32>(), 0)?;
    let by_rank = (0..ranks).map(|rank| {
        let sends = task.rounds(rank).filter_map(|round| round.send);
        sends.map(|send| send.range.len()).sum::<usize>()
    });
    Ok((by_rank.max().unwrap_or(0) * size_of::<f32>()) as f64)
}

pub fn bytes_of_a_ring() -> Result<Question> {
    let ranks = 8;
    let bytes = 1_000_000_000;
    let of = |collective, algorithm| sent(collective, algorithm, ranks, bytes);
    Ok(Question::amount(
        ["lab01", "The idea"],
        format!(
            "{ranks} ranks all-reduce {} of gradients in a ring. How much does each rank send?",
            bytes_decimal(bytes as f64)
        ),
        bytes_decimal,
        of(Collective::AllReduce, Algorithm::Ring)?,
        &[
            (
                of(Collective::ReduceScatter, Algorithm::Ring)?,
                "That is one half of the ring. After it each rank has one complete chunk, and the chunks must still go around.",
            ),
            (
                bytes as f64,
                "That would be every number once. A ring adds up first, and then hands the sums around.",
            ),
            (
                of(Collective::AllReduce, Algorithm::Naive)?,
                "That is what rank 0 sends if all ranks send to it, and it sends the sums back to each.",
            ),
        ],
        "Each half of the ring moves n-1 of n chunks: 2(n-1)/n of the bytes, almost the same for any number of ranks.",
    ))
}

pub fn few_bytes() -> Result<Question> {
    let ranks = 64;
    let numbers = 64;
    let network = Network::named("ethernet").expect("a preset of lab01");
    let algorithms = Collective::AllReduce.algorithms();
    let mut by_time = Vec::new();
    for &algorithm in algorithms {
        let task =
            Task::new(Collective::AllReduce, algorithm, ranks, numbers, size_of::<f32>(), 0)?;
        let rounds = (0..ranks).map(|rank| task.rounds(rank).count()).max();
        by_time.push((simulate(&task, size_of::<f32>(), &network), algorithm, rounds.unwrap_or(0)));
    }
    by_time.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mistake = |algorithm| match algorithm {
        Algorithm::Ring => {
            "A ring sends the fewest bytes, in the most rounds. So few bytes cost nothing, and each round costs a latency."
        }
        Algorithm::Naive => {
            "All ranks share the link of rank 0, which receives and sends one message after the other."
        }
        Algorithm::Rabenseifner => {
            "It sends fewer bytes than the fastest one, in twice as many rounds. Here only rounds count."
        }
        _ => {
            "It sends all numbers in every round, which costs more here than the rounds that it saves."
        }
    };
    let wrong: Vec<(String, &str)> = by_time[1..]
        .iter()
        .map(|&(_, algorithm, _)| (algorithm.name().into(), mistake(algorithm)))
        .collect();
    let (best, algorithm, rounds) = by_time[0];
    let ms = |seconds: f64| format!("{} ms", significant(1e3 * seconds, 2));
    let ring = by_time.iter().find(|(_, of, _)| *of == Algorithm::Ring);
    let (ring_seconds, _, ring_rounds) = *ring.expect("all-reduce has a ring");
    Ok(Question::words(
        ["lab01", "The idea"],
        format!(
            "{ranks} ranks on as many nodes all-reduce {numbers} numbers over Ethernet, {} for a message however short. Which \
             algorithm is fastest?",
            ms(network.between.latency)
        ),
        algorithm.name(),
        &wrong,
        format!(
            "For few bytes the fewest rounds win: {rounds} take {} here, and the {ring_rounds} of the ring {}.",
            ms(best),
            ms(ring_seconds)
        ),
    ))
}

pub fn three_weights() -> Result<Question> {
    let weight = 10.0;
    let lr = 0.1;
    let gradients = [2.0, 1.0, 6.0];
    // Each rank's weight after a step, if this is what the ranks do with their gradients.
    let after = |change: fn(&Comm, &mut [f32]) -> shardlab::comm::Result<()>| -> Result<String> {
        let weights = launch::run(gradients.len(), |comm| {
            let mut gradient = [gradients[comm.rank()]];
            change(&comm, &mut gradient)?;
            Ok(weight - lr * gradient[0])
        })?;
        let shown: Vec<String> =
            weights.iter().map(|weight| significant(f64::from(*weight), 2)).collect();
        Ok(shown.join(", "))
    };
    let seen = after(|_, _| Ok(()))?;
    let mean = after(|comm, gradient| comm.all_reduce(gradient, Reduce::Mean))?;
    let sum = after(|comm, gradient| comm.all_reduce(gradient, Reduce::Sum))?;
    let twice = after(|comm, gradient| {
        comm.all_reduce(gradient, Reduce::Mean)?;
        gradient[0] /= comm.size() as f32;
        Ok(())
    })?;
    Ok(Question::words(
        ["lab02", "Three lines"],
        format!(
            "A weight is {weight} on three ranks, and they train with data parallelism. After one step of SGD with a learning rate of {lr} \
             it is {seen}. The loss falls on every rank, and no rank reports an error. What has happened?"
        ),
        "nobody has averaged the gradients",
        &[
            (
                "the gradients were added up, and not averaged".into(),
                &format!(
                    "Then all ranks would have taken the same step, three times too long: {sum}."
                ),
            ),
            (
                "the mean was divided by the number of ranks once more".into(),
                &format!(
                    "Then all ranks would have taken the same step, a third as long: {twice}."
                ),
            ),
            (
                "nothing: each rank has its own part of the data".into(),
                &format!(
                    "The data differ, and the step must not: after the average all ranks would have {mean}."
                ),
            ),
        ],
        format!(
            "Each rank has taken a step by its own gradient, and trains a model of its own. With the average all three would have {mean}. \
             Only a comparison of the ranks' weights shows it."
        ),
    ))
}
