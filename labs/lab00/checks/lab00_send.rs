//! The check of lab00-send: two ranks, and ranks that have nothing to do. Each claim has other
//! numbers, and counts messages.

use exercise::give;
use kit::check::{Evidence, run};
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

fn main() -> ExitCode {
    run(&[
        ("2 ranks: rank 1 has rank 0's number", |evidence| given(evidence, &[45, 63])),
        ("3 ranks, as in the picture: rank 2 keeps its own", |evidence| {
            given(evidence, &[10, 20, 30])
        }),
        ("5 ranks, other numbers: so do ranks 3 and 4", |evidence| {
            given(evidence, &[64, 7, 95, 12, 38])
        }),
    ])
}

/// One rank's call: the messages that it sent, the collectives that it entered, and what it has
/// then, if the call ended.
#[derive(Clone, Copy, Default)]
struct Call {
    sent: u64,
    collectives: u64,
    has: Option<u64>,
}

/// `brings`: one number for each rank.
fn given(evidence: &mut Evidence, brings: &[u64]) -> Result<()> {
    let ranks = brings.len();
    let calls = Mutex::new(vec![Call::default(); ranks]);
    let result = launch::run(ranks, |comm| {
        let rank = comm.rank();
        evidence.given(format!("rank {rank} of {ranks}"));
        let mut number = [brings[rank]];
        let result = give(&comm, &mut number);
        let traffic = comm.traffic();
        let call = Call {
            sent: traffic.messages,
            collectives: traffic.calls - traffic.messages,
            has: result.is_ok().then_some(number[0]),
        };
        calls.lock().unwrap_or_else(PoisonError::into_inner)[rank] = call;
        Ok(result?)
    });
    let error = result.as_ref().err().map(|error| format!("{error:#}"));
    // The workbook shows a panic by itself.
    if error.as_ref().is_some_and(|error| error.contains("panicked: ")) {
        return result.map(drop);
    }
    let calls = calls.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (rank, call) in calls.iter().enumerate() {
        let expected = brings[if rank == 1 { 0 } else { rank }];
        evidence.row(
            call.has == Some(expected),
            format!("rank {rank}, brings {}", brings[rank]),
            expected,
            call.has.map_or("nothing".into(), |number| number.to_string()),
        );
    }
    let sent: u64 = calls.iter().map(|call| call.sent).sum();
    evidence.same("messages sent", 1, sent);
    if let Some(error) = &error {
        // Without the library's advice, which is about programs that do not begin with
        // `if comm.rank() == …`.
        println!("{}", error.split("\nhelp: ").next().unwrap_or_default());
        // Also where each rank has the right number.
        evidence.row(false, "the run", "ends", "an error");
    }
    let senders: Vec<usize> = (0..ranks).filter(|&rank| calls[rank].sent > 0).collect();
    let has = |rank: usize| calls[rank].has;
    let waiting: Vec<usize> = (0..ranks).filter(|&rank| has(rank).is_none()).collect();
    evidence.means_if(
        calls.iter().any(|call| call.collectives > 0),
        "A collective needs all ranks, and each waits in it for the others. One message from rank 0 to rank 1 is enough.",
    );
    evidence.means_if(
        error.as_ref().is_some_and(|error| error.contains("there is no rank")),
        format!("Your code names a rank that is not there: these are ranks 0 to {}.", ranks - 1),
    );
    evidence.means_if(
        error.is_none() && senders.is_empty(),
        "No number has left its rank. A rank knows of the others only what they send to it.",
    );
    evidence.means_if(
        senders.iter().any(|&rank| rank != 0),
        format!(
            "Ranks {senders:?} have sent numbers. Only rank 0 has one that another rank needs."
        ),
    );
    if let Some(&rank) = waiting.iter().find(|&&rank| rank != 1) {
        let why = if rank == 0 {
            "Its own is the one that rank 1 takes."
        } else {
            "Rank 0 has sent only to rank 1."
        };
        evidence.means(format!("Rank {rank} waits for a number that nobody sends to it. {why}"));
    }
    evidence.means_if(
        waiting == [1] && senders.is_empty(),
        "Rank 1 waits for a number that nobody has sent. A job that waits in this way costs as much as one that works.",
    );
    evidence.means_if(
        waiting == [1],
        "Rank 0 has sent its number, and rank 1 waits for another message: of another type, such as i32 where rank 0 sends u64, of another length, or from another rank.",
    );
    evidence.means_if(sent > 1, "Rank 0 has sent more than once. Rank 1 needs one message.");
    evidence.means_if(
        error.is_some() && waiting.is_empty(),
        "Rank 0 has sent its number, and nobody has received it. Whatever one rank sends, another one receives.",
    );
    evidence.means(
        "Rank 1 does not have rank 0's number. In a training that begins so, ranks begin with different models, and nothing \
         stops them.",
    );
    Ok(())
}
