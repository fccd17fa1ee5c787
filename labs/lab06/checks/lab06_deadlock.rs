//! The check of lab06-deadlock: all ranks end, with the gradients of one rank; then memory, and what a rank does before it waits.

use exercise::{Stage, step};
use kit::check::{Evidence, is_near, number, run};
use shardlab::comm::Comm;
use shardlab::{Result, launch};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

fn main() -> ExitCode {
    run(&[
        ("1 rank trains", |evidence| trains(evidence, 1, 4)),
        ("2 ranks, 4 micro-batches: the step ends", |evidence| {
            ends(evidence, 2, 4)
        }),
        ("2 ranks: the gradients of one rank", |evidence| {
            trains(evidence, 2, 4)
        }),
        ("4 ranks, 8 micro-batches: the step ends", |evidence| {
            ends(evidence, 4, 8)
        }),
        ("4 ranks: the gradients of one rank", |evidence| {
            trains(evidence, 4, 8)
        }),
        ("4 ranks: rank r keeps 4 - r micro-batches", |evidence| {
            memory(evidence, 4, 8)
        }),
        ("a rank waits only if it has nothing to do", |evidence| {
            sends_before_it_waits(evidence, 3, 6)
        }),
        ("4 ranks, 2 micro-batches", |evidence| {
            trains(evidence, 4, 2)
        }),
    ])
}

const WIDTH: usize = 3;

/// A stage with one weight per number: y = tanh(w x). The last stage's loss is the sum of the squares of y, halved.
#[derive(Default)]
struct Toy {
    rank: usize,
    last: bool,
    /// The activations of micro-batches in flight: x and y.
    kept: HashMap<usize, [Vec<f64>; 2]>,
    /// The sums of the weights' gradients over micro-batches.
    gradient: [f64; WIDTH],
    most_kept: usize,
    /// Micro-batches, in the order of the passes.
    forward: Vec<usize>,
    /// The same, and the gradient with which each pass began.
    backward: Vec<(usize, Vec<f64>)>,
}

impl Toy {
    fn new(rank: usize, ranks: usize) -> Toy {
        Toy {
            rank,
            last: rank + 1 == ranks,
            ..Toy::default()
        }
    }

    fn weight(&self, i: usize) -> f64 {
        1.0 + 0.3 * ((3 * self.rank + i) as f64).sin()
    }
}

impl Stage for Toy {
    fn width(&self) -> usize {
        WIDTH
    }

    fn forward(&mut self, micro: usize, x: &[f64]) -> Vec<f64> {
        let batch = || {
            (0..WIDTH)
                .map(|i| (1.0 + (7 * micro + i) as f64).sin())
                .collect()
        };
        let x = if self.rank == 0 { batch() } else { x.to_vec() };
        let y: Vec<f64> = x
            .iter()
            .enumerate()
            .map(|(i, x)| (self.weight(i) * x).tanh())
            .collect();
        self.forward.push(micro);
        self.kept.insert(micro, [x, y.clone()]);
        self.most_kept = self.most_kept.max(self.kept.len());
        y
    }

    fn backward(&mut self, micro: usize, dy: &[f64]) -> Vec<f64> {
        self.backward.push((micro, dy.to_vec()));
        let [x, y] = self.kept.remove(&micro).unwrap_or_default();
        let dy = if self.last { &y } else { dy };
        // A gradient or activations that are missing count as 0: the check shows which.
        let at = |of: &[f64], i: usize| of.get(i).copied().unwrap_or(0.0);
        let dz = (0..WIDTH)
            .map(|i| at(dy, i) * (1.0 - at(&y, i) * at(&y, i)))
            .enumerate();
        dz.map(|(i, dz)| {
            self.gradient[i] += dz * at(&x, i);
            dz * self.weight(i)
        })
        .collect()
    }
}

/// The stages of all ranks after a step, and why it failed if it did.
struct Outcome {
    stages: Vec<Toy>,
    /// Activations that each rank has sent. The first rank sends nothing else.
    sent: Vec<usize>,
    error: Option<String>,
}

/// Runs a step on `ranks` ranks: the reader's code on those that `reads` selects, and `neighbour` on the rest.
fn outcome(
    evidence: &Evidence,
    ranks: usize,
    micro_batches: usize,
    reads: impl Fn(usize) -> bool + Sync,
    neighbour: impl Fn(&Comm) -> Result<()> + Sync,
) -> Outcome {
    let ended: Vec<Mutex<(Toy, usize)>> = (0..ranks)
        .map(|rank| Mutex::new((Toy::new(rank, ranks), 0)))
        .collect();
    let result = launch::run(ranks, |comm| {
        let rank = comm.rank();
        if !reads(rank) {
            return neighbour(&comm);
        }
        evidence.given(format!(
            "rank {rank} of {ranks}, and {micro_batches} micro-batches"
        ));
        let mut stage = Toy::new(rank, ranks);
        let result = step(&comm, &mut stage, micro_batches);
        let sent = comm.traffic().messages as usize;
        *ended[rank].lock().unwrap_or_else(PoisonError::into_inner) = (stage, sent);
        result
    });
    let error = result.err().map(|error| format!("{error:#}"));
    let ended = ended
        .into_iter()
        .map(|rank| rank.into_inner().unwrap_or_else(PoisonError::into_inner));
    let (stages, sent) = ended.unzip();
    Outcome {
        stages,
        sent,
        error,
    }
}

/// One rank with all stages: micro-batch after micro-batch.
fn serial(ranks: usize, micro_batches: usize) -> Vec<Toy> {
    let mut stages: Vec<Toy> = (0..ranks).map(|rank| Toy::new(rank, ranks)).collect();
    for micro in 0..micro_batches {
        let mut numbers = Vec::new();
        for stage in &mut stages {
            numbers = stage.forward(micro, &numbers);
        }
        numbers = Vec::new();
        for stage in stages.iter_mut().rev() {
            numbers = stage.backward(micro, &numbers);
        }
    }
    stages
}

/// A rank's wait in the library's message: `recv "gradient" from rank 1`.
fn wait(error: &str, rank: usize) -> Option<String> {
    let line = error
        .lines()
        .find_map(|line| line.strip_prefix(&format!("  rank {rank}  waits in ")))?;
    let (call, from) = line.split_once(" (from ")?;
    Some(format!("{call} from rank {}", from.split(',').next()?))
}

/// Notes which rank waits for what, and prints the library's message.
fn waits(evidence: &mut Evidence, outcome: &Outcome, error: &str) {
    println!("{error}");
    for rank in 0..outcome.stages.len() {
        let got = wait(error, rank);
        evidence.row(
            got.is_none(),
            format!("rank {rank}"),
            "ends its step",
            got.unwrap_or_default(),
        );
    }
}

fn ends(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    let outcome = outcome(evidence, ranks, micro_batches, |_| true, |_| Ok(()));
    let Some(error) = &outcome.error else {
        evidence.same("all ranks end their step", true, true);
        return Ok(());
    };
    waits(evidence, &outcome, error);
    let first_line = error.lines().next().unwrap_or_default();
    evidence.row(
        false,
        "the step",
        "ends on all ranks",
        first_line.split(',').next().unwrap_or_default(),
    );
    evidence.means_if(
        error.contains("were not received"),
        "The ranks end, but they do not receive all messages. The rank behind sends a gradient for each micro-batch: the receive \
         belongs into every turn that runs a backward pass.",
    );
    evidence.means_if(
        error.contains("does not fit"),
        "A receive gets a message of the wrong kind. Activations come from the rank before, gradients from the rank behind.",
    );
    let unsent = (0..ranks - 1).find(|&rank| {
        let stage = &outcome.stages[rank];
        let gradients = if rank > 0 { stage.backward.len() } else { 0 };
        stage.forward.len() + gradients > outcome.sent[rank]
    });
    if let Some(rank) = unsent {
        evidence.means(format!(
            "Rank {rank} has computed something that it has not sent, and already waits. A rank in front of it or behind it \
             needs just this. Send first, then receive."
        ));
    }
    let stuck = |rank: &usize| wait(error, *rank).is_some_and(|call| call.contains("gradient"));
    if let Some(rank) = (0..ranks - 1).find(stuck) {
        let stage = &outcome.stages[rank];
        let behind = ranks - 1 - rank;
        evidence.means(format!(
            "Rank {rank} waits for the gradient of micro-batch {}, and has run {} forward passes. Before the ranks behind it \
             have a gradient, they run {behind} forward passes, and wait for {} micro-batches of rank {rank}. So no rank can \
             go on.",
            stage.backward.len(),
            stage.forward.len(),
            behind,
        ));
    }
    evidence
        .means("The ranks wait for each other. For each rank: which message does it wait for, and who has to send it?");
    Ok(())
}

fn trains(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    let outcome = outcome(evidence, ranks, micro_batches, |_| true, |_| Ok(()));
    if let Some(error) = &outcome.error {
        waits(evidence, &outcome, error);
        evidence.row(false, "the step", "ends on all ranks", "it does not");
        evidence
            .means("With more ranks or micro-batches the step ended. Your code needs a case for few micro-batches.");
        return Ok(());
    }
    let expected = serial(ranks, micro_batches);
    for (rank, (expected, got)) in expected.iter().zip(&outcome.stages).enumerate() {
        let wrong = (0..WIDTH).find(|&i| !is_near(expected.gradient[i], got.gradient[i]));
        let i = wrong.unwrap_or(0);
        let at = format!("rank {rank}: gradient of weight {i}");
        evidence.near(at, expected.gradient[i], got.gradient[i]);
        let passes = got.backward.len();
        evidence.row(
            passes == micro_batches,
            format!("rank {rank}: backward passes"),
            micro_batches,
            passes,
        );
    }
    if evidence.agrees() {
        return Ok(());
    }
    // The last rank's gradients come from its loss. So the first rank to look at is the one before it.
    for rank in (0..ranks.saturating_sub(1)).rev() {
        let right: HashMap<usize, &Vec<f64>> = expected[rank]
            .backward
            .iter()
            .map(|(micro, dy)| (*micro, dy))
            .collect();
        let same = |a: &[f64], b: &[f64]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(*a, *b))
        };
        for (micro, dy) in &outcome.stages[rank].backward {
            if right.get(micro).is_some_and(|right| same(right, dy)) {
                continue;
            }
            let who = format!("Rank {rank} runs the backward pass of micro-batch {micro}");
            evidence.means_if(
                dy.iter().all(|dy| *dy == 0.0),
                format!(
                    "{who} without a gradient, or with zeros: receive the gradient before the pass."
                ),
            );
            if let Some((other, _)) = right.iter().find(|(_, right)| same(right, dy)) {
                evidence.means(format!(
                    "{who} with the gradient of micro-batch {other}. Messages arrive in the order in which they were sent, so \
                     the first gradient belongs to the first backward pass."
                ));
            }
            let first = number(dy.first().copied().unwrap_or(f64::NAN));
            evidence.means(format!(
                "{who} with a gradient that no micro-batch has: it begins with {first}."
            ));
        }
    }
    evidence.means("Some rank adds up gradients of the wrong passes. Each micro-batch goes through each stage once.");
    Ok(())
}

fn memory(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    let outcome = outcome(evidence, ranks, micro_batches, |_| true, |_| Ok(()));
    for (rank, stage) in outcome.stages.iter().enumerate() {
        let most = ranks - rank;
        let got = stage.most_kept;
        evidence.row(
            got <= most,
            format!("rank {rank}: micro-batches kept"),
            format!("at most {most}"),
            got,
        );
    }
    evidence.means(
        "All ranks end, and the gradients are right, but ranks keep more activations than before: they run forward passes ahead \
         of 1F1B. With all of them first, this is GPipe. The order of the passes was right; only one line has to move.",
    );
    Ok(())
}

/// A rank between neighbours that send no gradient before they have got all that 1F1B sends before.
fn sends_before_it_waits(
    evidence: &mut Evidence,
    ranks: usize,
    micro_batches: usize,
) -> Result<()> {
    for tested in 0..ranks - 1 {
        let ahead = ranks - tested;
        let neighbour = |comm: &Comm| -> Result<()> {
            let activations = comm.labelled("activations");
            let gradients = comm.labelled("gradient");
            let mut numbers = [0.5; WIDTH];
            if comm.rank() + 1 == tested {
                for _ in 0..micro_batches {
                    activations.send(&numbers, tested)?;
                }
                for _ in 0..micro_batches {
                    gradients.recv(&mut numbers, tested)?;
                }
            } else if comm.rank() == tested + 1 {
                for _ in 0..ahead {
                    activations.recv(&mut numbers, tested)?;
                }
                for micro in 0..micro_batches {
                    gradients.send(&[0.5; WIDTH], tested)?;
                    if ahead + micro < micro_batches {
                        activations.recv(&mut numbers, tested)?;
                    }
                }
            }
            Ok(())
        };
        let outcome = outcome(
            evidence,
            ranks,
            micro_batches,
            |rank| rank == tested,
            neighbour,
        );
        let at = format!("rank {tested}: activations sent before it waits for a gradient");
        let sent = if outcome.error.is_some() {
            outcome.sent[tested]
        } else {
            ahead
        };
        evidence.row(outcome.error.is_none(), at, ahead, sent);
    }
    evidence.means(
        "Every rank ends its step, and the result is right. But a rank waits for a gradient while it has a forward pass to run, \
         or activations to send. The ranks behind it then run out of work, and the step takes longer.",
    );
    Ok(())
}
