//! What labNN runs, in which order, and its checks.

use crate::flags::{Args, Break};
use crate::lesson::{compare_with_all_reduce, sum};
use anyhow::Result;
use kit::flags::ensure_ranks_can_differ;
use kit::show::{Screen, table};
use kit::{Beside, Checks, LabRun, report};
use shardlab::comm::Comm;
use shardlab::launch;
use std::path::PathBuf;

/// Starts the ranks, and runs the lab on each.
///
/// # Errors
/// If the flags do not fit together, a rank fails, or a check does.
pub fn run(args: Args) -> Result<()> {
    let ranks = launch::ranks(args.ranks, 4)?;
    ensure_ranks_can_differ(args.broken.is_some(), ranks)?;
    let folder = PathBuf::from("runs/labNN");
    let run = LabRun {
        ranks,
        ..LabRun::plain("labNN", args.ascii, folder, &args.comm)?
    };
    run.on_ranks(|comm, checks| one_rank(&args, &run, comm, checks))
}

/// One rank's work, and its checks.
fn one_rank(args: &Args, run: &LabRun, comm: &Comm, checks: &mut Checks) -> Result<()> {
    let last = comm.rank() + 1 == comm.size();
    let mine = if last && args.broken == Some(Break::LeftOut) {
        0.0
    } else {
        comm.rank() as f64 + 1.0
    };
    let beside = compare_with_all_reduce(comm, mine)?;
    // Of each rank, what it brought and what it has then.
    let mut numbers = vec![0.0; 2 * comm.size()];
    comm.all_gather(&[mine, sum(comm, mine)?], &mut numbers)?;
    if comm.rank() == 0 {
        run.heading(None);
        report::ranks(&run.screen, comm.size());
        run.screen.say("");
        show(&run.screen, &numbers);
        check(checks, beside, &numbers);
    }
    Ok(())
}

/// TODO: the picture. It makes someone say "now I see it".
fn show(screen: &Screen, numbers: &[f64]) {
    let row = |(rank, of_rank): (usize, &[f64])| {
        let name = screen.rank(rank, format!("rank {rank}"));
        vec![name, of_rank[0].to_string(), of_rank[1].to_string()]
    };
    let rows: Vec<Vec<String>> = numbers.chunks(2).enumerate().map(row).collect();
    screen.say(table(screen, &["rank", "brought", "has then"], &rows));
    screen.say("");
}

/// TODO: the checks, for the reader and for the exit code: parallel against serial.
fn check(checks: &mut Checks, beside: Beside, numbers: &[f64]) {
    let ranks = numbers.len() as f64 / 2.0;
    checks.beside("sum, TODO,", beside);
    checks.check_equal(
        "the numbers add up",
        &(ranks * (ranks + 1.0) / 2.0).to_string(),
        &numbers[1].to_string(),
        "a rank's number is missing in the sum",
    );
    checks.end_with("More: --ranks 2, --break left-out");
}
