//! The check of lab00-token: rings of three ranks, of more, and of fewer.

use exercise::pass_left;
use kit::check::{Evidence, run};
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

fn main() -> ExitCode {
    run(&[
        ("3 ranks, as in the picture", |evidence| ring(evidence, 3)),
        ("5 ranks: a larger ring", |evidence| ring(evidence, 5)),
        ("2 ranks: one neighbour on both sides", |evidence| ring(evidence, 2)),
        ("1 rank: its own neighbour", |evidence| ring(evidence, 1)),
    ])
}

/// What a rank brings: the picture's numbers on three ranks, and numbers without a rule on others.
fn brings(rank: usize, ranks: usize) -> u64 {
    let numbers = if ranks == 3 {
        [10, 20, 30, 0, 0]
    } else {
        [41, 7, 95, 12, 38]
    };
    numbers[rank]
}

/// One rank's call: the messages that it sent, and what it returned, if it returned.
#[derive(Clone, Copy, Default)]
struct Call {
    sent: u64,
    returned: Option<u64>,
}

fn ring(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let calls = Mutex::new(vec![Call::default(); ranks]);
    let result = launch::run(ranks, |comm| {
        let rank = comm.rank();
        evidence.given(format!(
            "rank {rank} of {ranks}. On its left is rank {}, on its right rank {}",
            (rank + ranks - 1) % ranks,
            (rank + 1) % ranks
        ));
        let result = pass_left(&comm, brings(rank, ranks));
        let call = Call {
            sent: comm.traffic().messages,
            returned: result.as_ref().ok().copied(),
        };
        calls.lock().unwrap_or_else(PoisonError::into_inner)[rank] = call;
        Ok(result.map(drop)?)
    });
    let error = result.as_ref().err().map(|error| format!("{error:#}"));
    // The workbook shows a panic by itself.
    if error.as_ref().is_some_and(|error| error.contains("panicked: ")) {
        return result.map(drop);
    }
    let calls = calls.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (rank, call) in calls.iter().enumerate() {
        let expected = brings((rank + 1) % ranks, ranks);
        evidence.row(
            call.returned == Some(expected),
            format!("rank {rank}, brings {}", brings(rank, ranks)),
            expected,
            call.returned.map_or("nothing".into(), |number| number.to_string()),
        );
    }
    // A ring of one rank needs no message.
    let most = calls.iter().map(|call| call.sent).max().unwrap_or(0);
    if error.is_none() && evidence.agrees() && ranks > 1 {
        evidence.same("messages that a rank sends", 1, most);
        evidence.means_if(
            most == 0,
            "No number has left its rank. What the others bring can be known here, and in no training.",
        );
        evidence.means(
            "The numbers are right, and have taken a long way. One step to the left is one message from each rank.",
        );
    }
    if ranks != 3 && (error.is_some() || !evidence.agrees()) {
        evidence.means(format!(
            "With 3 ranks this was right, and with {ranks} it is not: is a number of ranks written into your code? `size` knows it."
        ));
    }
    match error {
        None => wrong_numbers(evidence, &calls),
        Some(error) => {
            println!("{error}");
            // Also where each rank returned the right number.
            evidence.row(false, "the run", "ends", "an error");
            wrong_calls(evidence, &calls, &error);
        }
    }
    Ok(())
}

/// Which numbers came back, if they are wrong.
fn wrong_numbers(evidence: &mut Evidence, calls: &[Call]) {
    let ranks = calls.len();
    let all = |number: &dyn Fn(usize) -> u64| {
        let mut calls = calls.iter().enumerate();
        calls.all(|(rank, call)| call.returned == Some(number(rank)))
    };
    evidence.means_if(
        all(&|rank| brings(rank, ranks)),
        "Every rank returned the number that it brought. Return the one that `recv` put into `incoming`.",
    );
    evidence.means_if(
        all(&|rank| brings((rank + ranks - 1) % ranks, ranks)),
        "The numbers went around the other way: each rank has the number of its left neighbour. Who is to the left of rank 1: rank 0 or rank 2?",
    );
    evidence.means_if(
        all(&|_| 0),
        "Every rank returned the 0 that it made room with. `recv` replaces it, so return `incoming[0]` after that call.",
    );
    evidence.means_if(
        all(&|rank| if rank + 1 < ranks { brings(rank + 1, ranks) } else { 0 }),
        "The last rank has got nothing. A ring has no end: on its right sits rank 0, and left of rank 0 sits the last rank.",
    );
    evidence.means("A rank that takes a number from the wrong neighbour trains on the wrong neighbour's data, and nothing stops it.");
}

/// Why the run did not end well.
fn wrong_calls(evidence: &mut Evidence, calls: &[Call], error: &str) {
    let ranks = calls.len();
    let silent: Vec<usize> = (0..ranks).filter(|&rank| calls[rank].sent == 0).collect();
    let first = silent.first().copied().unwrap_or_default();
    let waiting = (first + ranks - 1) % ranks;
    evidence.means_if(
        error.contains("there is no rank"),
        "A ring has no end: left of rank 0 is rank size - 1, and right of that one is rank 0. The remainder `% size` closes it.",
    );
    evidence.means_if(
        silent.len() == ranks && calls.iter().all(|call| call.returned.is_none()),
        "All ranks wait for a number, and none has sent its own. Send first: `send` waits for nobody.",
    );
    evidence.means_if(
        !silent.is_empty(),
        format!("Rank {first} sent nothing, so rank {waiting} waits for ever. All ranks run the same code: each sends one number, and each receives one."),
    );
    evidence.means_if(
        calls.iter().all(|call| call.returned.is_some()),
        "A number was sent, and nobody has received it. Each rank sends one number and receives one.",
    );
    evidence.means(
        "A rank waits for a number from a rank that has sent its number elsewhere. If numbers go to the left, they come from the right.",
    );
}
