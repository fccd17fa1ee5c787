//! The check of lab06-deadlock: all ranks end, with the gradients of one rank; then memory, and
//! what waits for what.

use exercise::{Link, Place, Stage, step};
use kit::check::{Evidence, is_near, number, run};
use shardlab::comm::Comm;
use shardlab::{Result, launch};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

fn main() -> ExitCode {
    run(&[
        ("1 rank trains", |evidence| trains(evidence, 1, 4)),
        ("2 ranks, 4 micro-batches: the step ends", |evidence| ends(evidence, 2, 4)),
        ("2 ranks: the gradients of one rank", |evidence| trains(evidence, 2, 4)),
        ("4 ranks, 8 micro-batches: the step ends", |evidence| ends(evidence, 4, 8)),
        ("4 ranks: the gradients of one rank", |evidence| trains(evidence, 4, 8)),
        ("4 ranks: rank r keeps 4 - r micro-batches", |evidence| memory(evidence, 4, 8)),
        ("a rank waits only if it has no pass to run", |evidence| {
            waits_late(evidence, 3, 6)
        }),
        ("a result is sent before the next pass", |evidence| sends_soon(evidence, 3, 6)),
        ("4 ranks, 2 micro-batches", |evidence| trains(evidence, 4, 2)),
    ])
}

const WIDTH: usize = 3;

/// A stage with one weight per number: y = tanh(w x). The last stage's loss is the sum of the
/// squares of y, halved.
#[derive(Default)]
struct Toy {
    rank: usize,
    last: bool,
    /// The activations of micro-batches in flight: x and y.
    kept: HashMap<usize, [Vec<f64>; 2]>,
    /// The sums of the weights' gradients over micro-batches.
    gradient: [f64; WIDTH],
    most_kept: usize,
    /// The first micro-batch whose backward pass ran before its forward pass.
    early: Option<usize>,
    /// Micro-batches, in the order of the passes.
    forward: Vec<usize>,
    /// The same, and the gradient with which each pass began.
    backward: Vec<(usize, Vec<f64>)>,
    /// What it tells its neighbours about its forward passes, and what they have told it.
    told: Option<Told>,
}

/// Word of forward passes, beside the reader's messages.
struct Told {
    link: Comm,
    /// The rank that hears of each forward pass of this one.
    to: Option<usize>,
    /// The rank whose forward passes this one hears of, and how many it waits for before its first
    /// backward pass.
    from: Option<(usize, usize)>,
    /// Forward passes that it has heard of.
    heard: usize,
    micro_batches: usize,
}

/// A link on which a send waits until the other rank has received: for its receipt.
struct Rendezvous {
    messages: Comm,
    receipts: Comm,
}

/// The tag of receipts.
const RECEIPT: u16 = 1;

/// How the name of a receipt begins, in the library's message of what a rank waits for.
const RECEIPT_OF: &str = "receipt of ";

impl Rendezvous {
    fn new(comm: &Comm, what: &'static str, receipt: &'static str) -> Rendezvous {
        Rendezvous {
            messages: comm.labelled(what),
            receipts: comm.tagged(RECEIPT).labelled(receipt),
        }
    }
}

impl Link for Rendezvous {
    fn send(&self, numbers: &[f64], to: usize) -> Result<()> {
        self.messages.send(numbers, to)?;
        Ok(self.receipts.recv(&mut [0u8], to)?)
    }

    fn recv(&self, numbers: &mut [f64], from: usize) -> Result<()> {
        self.messages.recv(numbers, from)?;
        Ok(self.receipts.send(&[0u8], from)?)
    }
}

/// The tag of word of forward passes.
const WORD: u16 = 9;

/// Who hears of whose forward passes, and runs no backward pass before.
#[derive(Clone, Copy, PartialEq)]
enum Word {
    None,
    /// The rank behind: its gradient does not come before the forward pass that the rank should run
    /// meanwhile.
    Behind,
    /// The rank in front: its backward pass does not run before its activations are used.
    InFront,
}

impl Toy {
    fn new(rank: usize, ranks: usize) -> Toy {
        Toy { rank, last: rank + 1 == ranks, ..Toy::default() }
    }

    fn telling(self, comm: &Comm, word: Word, micro_batches: usize) -> Toy {
        let in_front = self.rank.checked_sub(1);
        let behind = (!self.last).then_some(self.rank + 1);
        let ranks_behind = comm.size() - 1 - self.rank;
        let (to, from) = match word {
            Word::None => return self,
            Word::Behind => (behind, in_front.map(|rank| (rank, ranks_behind + 2))),
            Word::InFront => (in_front, behind.map(|rank| (rank, ranks_behind + 1))),
        };
        let told = Told {
            link: comm.tagged(WORD).labelled("word of a forward pass"),
            to,
            from,
            heard: 0,
            micro_batches,
        };
        Toy { told: Some(told), ..self }
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
        let batch = || (0..WIDTH).map(|i| (1.0 + (7 * micro + i) as f64).sin()).collect();
        let x = if self.rank == 0 { batch() } else { x.to_vec() };
        let y: Vec<f64> = x.iter().enumerate().map(|(i, x)| (self.weight(i) * x).tanh()).collect();
        self.forward.push(micro);
        if let Some(told) = &self.told
            && let Some(to) = told.to
        {
            // If this fails, the run has failed: the next call of the reader's code tells it.
            told.link.send(&[micro as u64], to).ok();
        }
        self.kept.insert(micro, [x, y.clone()]);
        self.most_kept = self.most_kept.max(self.kept.len());
        y
    }

    fn backward(&mut self, micro: usize, dy: &[f64]) -> Vec<f64> {
        if let Some(told) = &mut self.told
            && let Some((from, first)) = told.from
        {
            let wanted = (first + self.backward.len()).min(told.micro_batches);
            while told.heard < wanted && told.link.recv(&mut [0u64], from).is_ok() {
                told.heard += 1;
            }
        }
        self.backward.push((micro, dy.to_vec()));
        let kept = self.kept.remove(&micro);
        if kept.is_none() {
            self.early.get_or_insert(micro);
        }
        let [x, y] = kept.unwrap_or_default();
        let dy = if self.last { &y } else { dy };
        // A gradient or activations that are missing count as 0: the check shows which.
        let at = |of: &[f64], i: usize| of.get(i).copied().unwrap_or(0.0);
        let dz = (0..WIDTH).map(|i| at(dy, i) * (1.0 - at(&y, i) * at(&y, i))).enumerate();
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
    error: Option<String>,
}

/// Runs a step of the reader's code on `ranks` ranks.
fn outcome(evidence: &Evidence, ranks: usize, micro_batches: usize, word: Word) -> Outcome {
    let ended: Vec<Mutex<Toy>> = (0..ranks).map(|rank| Mutex::new(Toy::new(rank, ranks))).collect();
    let result = launch::run(ranks, |comm| {
        let rank = comm.rank();
        evidence.given(format!("rank {rank} of {ranks}, and {micro_batches} micro-batches"));
        let mut stage = Toy::new(rank, ranks).telling(&comm, word, micro_batches);
        let place = Place {
            rank,
            ranks,
            activations: &Rendezvous::new(&comm, "activations", "receipt of activations"),
            gradients: &Rendezvous::new(&comm, "gradient", "receipt of gradient"),
        };
        let result = step(&place, &mut stage, micro_batches);
        stage.told = None;
        *ended[rank].lock().unwrap_or_else(PoisonError::into_inner) = stage;
        result
    });
    let error = result.err().map(|error| format!("{error:#}"));
    let ended = ended
        .into_iter()
        .map(|rank| rank.into_inner().unwrap_or_else(PoisonError::into_inner));
    Outcome { stages: ended.collect(), error }
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

/// What a rank waits for, in the library's message.
#[derive(Clone, PartialEq)]
struct Wait {
    /// `activations`, `gradient`, or what the check itself sends.
    what: String,
    /// Whether it waits for the receipt: it has sent them.
    sends: bool,
    other: usize,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Wait { what, sends, other } = self;
        let verb = if *sends { "sends" } else { "receives" };
        let way = if *sends { "to" } else { "from" };
        write!(f, "{verb} {what} {way} rank {other}")
    }
}

fn wait(error: &str, rank: usize) -> Option<Wait> {
    let line = error
        .lines()
        .find_map(|line| line.strip_prefix(&format!("  rank {rank}  waits in recv ")))?;
    let (what, rest) = line.split_once(" (from ")?;
    let (other, _) = rest.split_once(", ")?;
    let what = what.trim_matches('"');
    let sent = what.strip_prefix(RECEIPT_OF);
    Some(Wait {
        what: sent.unwrap_or(what).into(),
        sends: sent.is_some(),
        other: other.parse().ok()?,
    })
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
            got.map_or("ends its step".into(), |wait| wait.to_string()),
        );
    }
}

fn ends(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    let outcome = outcome(evidence, ranks, micro_batches, Word::None);
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
        error.contains("does not fit"),
        "A receive gets a message of the wrong kind. Activations come from the rank before, gradients from the rank after.",
    );
    let waits: Vec<Option<Wait>> = (0..ranks).map(|rank| wait(error, rank)).collect();
    let is = |rank: usize, what: &str, sends: bool, other: usize| {
        let wait = Wait { what: what.into(), sends, other };
        waits[rank] == Some(wait)
    };
    let earlier = if ranks > 2 {
        " On 2 ranks the step ended: does the order of your calls depend on the rank's number?"
    } else {
        ""
    };
    for rank in 0..ranks - 1 {
        let behind = rank + 1;
        evidence.means_if(
            is(rank, "activations", true, behind) && is(behind, "gradient", true, rank),
            format!(
                "Rank {rank} waits in a send to rank {behind}, and rank {behind} in a send to rank {rank}. Between threads a send does \
                 not wait, so no test there has seen it. Write down both ranks' calls up to here, side by side.{earlier}"
            ),
        );
        evidence.means_if(
            is(rank, "gradient", false, behind) && is(behind, "activations", false, rank),
            format!(
                "Rank {rank} waits for a gradient from rank {behind}, which waits for activations from rank {rank}. Before it \
                 can wait for the gradient of a micro-batch, a rank must have sent the activations of this micro-batch, and of \
                 all that the rank after it runs before it comes back."
            ),
        );
    }
    ended(evidence, &waits);
    evidence
        .means("The ranks wait for each other. For each rank: what does it wait for, and who has to do the opposite?");
    Ok(())
}

/// Explains that a rank waits for one that has ended, if that is so. `waits`: of each rank.
fn ended(evidence: &mut Evidence, waits: &[Option<Wait>]) {
    for (rank, wait) in waits.iter().enumerate() {
        let Some(wait) = wait else { continue };
        let other = wait.other;
        if waits.get(other).is_some_and(Option::is_none) {
            evidence.means(format!(
                "Rank {rank} {wait}, which has ended its step. For each message one rank sends and another one receives. Is this one \
                 a micro-batch's, or is it sent in a turn that has no such pass?"
            ));
        }
    }
}

fn trains(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    let outcome = outcome(evidence, ranks, micro_batches, Word::None);
    if let Some(error) = &outcome.error {
        waits(evidence, &outcome, error);
        evidence.row(false, "the step", "ends on all ranks", "it does not");
        let waits: Vec<Option<Wait>> = (0..ranks).map(|rank| wait(error, rank)).collect();
        ended(evidence, &waits);
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
    for (rank, stage) in outcome.stages.iter().enumerate() {
        if let Some(micro) = stage.early {
            evidence.means(format!(
                "Rank {rank} runs the backward pass of micro-batch {micro} before its forward pass. There are no activations yet, so \
                 this micro-batch trains nothing."
            ));
        }
    }
    // The last rank's gradients come from its loss. So the first rank to look at is the one before
    // it.
    for rank in (0..ranks.saturating_sub(1)).rev() {
        let right: HashMap<usize, &Vec<f64>> =
            expected[rank].backward.iter().map(|(micro, dy)| (*micro, dy)).collect();
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
    let outcome = outcome(evidence, ranks, micro_batches, Word::None);
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
         of 1F1B. With all of them first, this is GPipe. The order of the passes was right; only messages have to move.",
    );
    Ok(())
}

/// Runs a step in which ranks hear of their neighbours' forward passes, and notes whether it ends.
fn hears(evidence: &mut Evidence, ranks: usize, micro_batches: usize, word: Word) {
    let outcome = outcome(evidence, ranks, micro_batches, word);
    for rank in 0..ranks {
        let got = outcome.error.as_deref().and_then(|error| wait(error, rank));
        let waits = got.filter(|wait| !wait.what.starts_with("word"));
        evidence.row(
            outcome.error.is_none() || waits.is_none(),
            format!("rank {rank}"),
            "goes on",
            waits.map_or("goes on".into(), |wait| wait.to_string()),
        );
    }
    if let Some(error) = &outcome.error {
        evidence.row(false, "the step", "ends", error.lines().next().unwrap_or_default());
    }
}

/// No gradient comes before its rank has run the forward passes that it can run without it.
fn waits_late(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    hears(evidence, ranks, micro_batches, Word::Behind);
    evidence.means(
        "The step ends, and the result is right. But a rank already waits for a gradient while it has a forward pass to run. \
         Here the gradient is late, and comes only when this pass is over: run it first, and then wait.",
    );
    Ok(())
}

/// No backward pass runs before the rank after it has begun with the activations that were sent
/// last.
fn sends_soon(evidence: &mut Evidence, ranks: usize, micro_batches: usize) -> Result<()> {
    hears(evidence, ranks, micro_batches, Word::InFront);
    evidence.means(
        "The step ends, and the result is right. But a rank runs a backward pass while it has activations to send, and the rank \
         after it has nothing to work on for so long. Send them before the backward pass.",
    );
    Ok(())
}
