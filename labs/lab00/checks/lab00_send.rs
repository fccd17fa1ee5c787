//! The check of lab00-send: two ranks, and ranks that have nothing to do.

use exercise::give;
use kit::check::{Evidence, run};
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

fn main() -> ExitCode {
    run(&[
        ("2 ranks: rank 1 has rank 0's number", |evidence| {
            given(evidence, 2)
        }),
        (
            "3 ranks, as in the picture: rank 2 keeps its own",
            |evidence| given(evidence, 3),
        ),
        ("5 ranks: so do ranks 3 and 4", |evidence| {
            given(evidence, 5)
        }),
    ])
}

/// What a rank brings.
fn brings(rank: usize) -> u64 {
    10 * (rank as u64 + 1)
}

/// One rank's call: the messages that it sent, and what it has then, if the call ended.
#[derive(Clone, Copy, Default)]
struct Call {
    sent: u64,
    has: Option<u64>,
}

fn given(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let calls = Mutex::new(vec![Call::default(); ranks]);
    let result = launch::run(ranks, |comm| {
        let rank = comm.rank();
        evidence.given(format!("rank {rank} of {ranks}"));
        let mut number = [brings(rank)];
        let result = give(&comm, &mut number);
        let call = Call {
            sent: comm.traffic().messages,
            has: result.is_ok().then_some(number[0]),
        };
        calls.lock().unwrap_or_else(PoisonError::into_inner)[rank] = call;
        Ok(result?)
    });
    let error = result.as_ref().err().map(|error| format!("{error:#}"));
    // The workbook shows a panic by itself.
    if error
        .as_ref()
        .is_some_and(|error| error.contains("panicked: "))
    {
        return result.map(drop);
    }
    let calls = calls.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (rank, call) in calls.iter().enumerate() {
        let expected = brings(if rank == 1 { 0 } else { rank });
        evidence.row(
            call.has == Some(expected),
            format!("rank {rank}, brings {}", brings(rank)),
            expected,
            call.has
                .map_or("nothing".into(), |number| number.to_string()),
        );
    }
    if let Some(error) = &error {
        println!("{error}");
        // Also where each rank has the right number.
        evidence.row(false, "the run", "ends", "an error");
    }
    let senders: Vec<usize> = (0..ranks).filter(|&rank| calls[rank].sent > 0).collect();
    let has = |rank: usize| calls[rank].has;
    evidence.means_if(
        error.is_none() && has(1) == Some(brings(1)) && senders.is_empty(),
        "Rank 1 still has its own number: nobody has sent anything.",
    );
    evidence.means_if(
        error.is_none() && has(0) == Some(brings(1)),
        "The number went the other way: rank 0 has rank 1's.",
    );
    evidence.means_if(
        senders.len() > 1,
        format!(
            "Ranks {senders:?} have sent a number. All ranks run each line of your code, unless an `if` says which: only rank 0 \
             sends."
        ),
    );
    let waiting: Vec<usize> = (0..ranks).filter(|&rank| has(rank).is_none()).collect();
    evidence.means_if(
        !waiting.is_empty() && senders.is_empty(),
        "Ranks wait for a number, and nobody has sent one: a job that stands still in this way costs as much as one that works. \
         Rank 0 sends.",
    );
    evidence.means_if(
        !waiting.is_empty() && waiting != [1],
        format!(
            "Ranks {waiting:?} wait for a number that nobody sends to them. All ranks run each line of your code, unless an `if` \
             says which: only rank 1 receives."
        ),
    );
    evidence.means_if(
        waiting == [1] && senders == [0],
        "Rank 0 has sent its number, and rank 1 waits for one from another rank: the second argument of `recv` says from whom.",
    );
    evidence.means_if(
        error.is_some() && waiting.is_empty(),
        "Rank 0 has sent its number, and nobody has received it. Whatever one rank sends, another one receives.",
    );
    evidence.means(
        "Rank 1 did not get rank 0's number. In a training that begins so, ranks begin with different models, and nothing stops \
         them.",
    );
    Ok(())
}
