//! The check of lab01-which: three ranks make the call that the reader names, beside the one that
//! the picture shows.

use exercise::call;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::{Result, launch};
use std::process::ExitCode;

pub fn main() -> ExitCode {
    run(&[("your call leaves the picture's numbers", compare)])
}

/// What each rank brings.
const BRINGS: [[u64; 3]; 3] = [[4, 1, 3], [2, 6, 1], [1, 1, 5]];
const CALLS: [&str; 7] = [
    "all-reduce",
    "reduce",
    "broadcast",
    "all-gather",
    "reduce-scatter",
    "scatter",
    "barrier",
];

/// What each of three ranks has after a call. Where one rank sends or gets everything, it is
/// rank 0.
fn after(call: &str) -> Result<Vec<String>> {
    launch::run(3, |comm| {
        let brings = BRINGS[comm.rank()];
        let mut whole = brings.to_vec();
        let mut part = vec![0];
        let has = match call {
            "all-reduce" => {
                comm.all_reduce(&mut whole, Reduce::Sum)?;
                whole
            }
            "reduce" => {
                comm.reduce(&mut whole, Reduce::Sum, 0)?;
                if comm.rank() == 0 { whole } else { Vec::new() }
            }
            "broadcast" => {
                comm.broadcast(&mut whole, 0)?;
                whole
            }
            "all-gather" => {
                let mut all = vec![0; 9];
                comm.all_gather(&brings, &mut all)?;
                all
            }
            "reduce-scatter" => {
                comm.reduce_scatter(&brings, &mut part, Reduce::Sum)?;
                part
            }
            "scatter" => {
                comm.scatter(&brings, &mut part, 0)?;
                part
            }
            _ => {
                comm.barrier()?;
                whole
            }
        };
        let has: Vec<String> = has.iter().map(u64::to_string).collect();
        Ok(if has.is_empty() { "-".into() } else { has.join(" ") })
    })
}

fn compare(evidence: &mut Evidence) -> Result<()> {
    let named = call();
    // As the page, the library and PyTorch write it.
    let bare = |name: &str| name.to_lowercase().replace(['_', ' ', '-'], "");
    let short = bare(named.trim());
    let short = short.trim_start_matches("comm.").trim_start_matches("dist.");
    let short = short.trim_end_matches("tensor");
    let Some(name) = CALLS.into_iter().find(|call| bare(call) == short) else {
        evidence.answer("the call's name", "", named);
        let calls = CALLS.join(", ");
        evidence.means(format!("The page's calls are {calls}."));
        return Ok(());
    };
    let shown = after("reduce-scatter")?;
    let got = after(name)?;
    for (rank, (shown, got)) in shown.iter().zip(&got).enumerate() {
        let at = format!("rank {rank}: the picture, and your {name}");
        evidence.row(shown == got, at, shown, got);
    }
    evidence.means(match name {
        "all-reduce" => {
            "After an all-reduce every rank has all three sums, and here a rank has one."
        }
        "reduce" => {
            "A reduce leaves all sums on one rank, and the others get nothing. Averaged so, gradients would reach only one rank."
        }
        "broadcast" => {
            "A broadcast copies one rank's numbers to all ranks. Here no rank brings a 7: did something add up?"
        }
        "all-gather" => {
            "An all-gather gives all ranks' numbers to every rank, one after the other. Here no rank brings a 7: did something \
             add up?"
        }
        "scatter" => {
            "A scatter hands out one rank's numbers. Averaged so, gradients would be those of one rank, and the others' work \
             would be lost."
        }
        _ => "A barrier moves no data: all ranks keep what they have.",
    });
    Ok(())
}
