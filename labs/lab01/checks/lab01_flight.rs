//! The check of lab01-flight: files that the library's flight recorder writes when a rank makes a
//! mistake.

use exercise::{Call, Suspect, suspect};
use kit::check::{Evidence, run};
use shardlab::comm::{self, Comm, Options, Reduce};
use shardlab::{Result, launch};
use std::process::ExitCode;
use std::time::Duration;

const RANKS: usize = 4;

/// One rank's mistake in the last step, in place of the second all-reduce.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    LeavesOut,
    FewerNumbers,
    Maximum,
    /// It calls `reduce`, whose sum only rank 0 gets.
    Reduces,
    /// It makes the two all-reduces in the wrong order: the first one is wrong already.
    WrongOrder,
    Returns,
}

/// A job that a rank breaks, and its file.
#[derive(Clone, Copy)]
struct Job {
    ranks: usize,
    /// The rank that makes the mistake.
    odd: usize,
    mistake: Mistake,
    steps: usize,
    /// Nothing has stopped the ranks at the mistake, and they made one more call.
    went_on: bool,
}

impl Job {
    fn new(odd: usize, mistake: Mistake) -> Job {
        Job { ranks: RANKS, odd, mistake, steps: 2, went_on: false }
    }
}

fn main() -> ExitCode {
    run(&[
        ("rank 3 leaves out an all-reduce", |evidence| {
            finds(evidence, Job::new(3, Mistake::LeavesOut))
        }),
        ("rank 0 leaves it out", |evidence| {
            finds(evidence, Job::new(0, Mistake::LeavesOut))
        }),
        ("rank 1 brings fewer numbers", |evidence| {
            finds(evidence, Job::new(1, Mistake::FewerNumbers))
        }),
        ("rank 2 asks for the maximum", |evidence| {
            finds(evidence, Job::new(2, Mistake::Maximum))
        }),
        ("rank 3 calls reduce", |evidence| finds(evidence, Job::new(3, Mistake::Reduces))),
        ("rank 1 swaps two all-reduces", |evidence| {
            finds(evidence, Job::new(1, Mistake::WrongOrder))
        }),
        ("rank 1 swaps two, and the job goes on", |evidence| {
            let job = Job::new(1, Mistake::WrongOrder);
            finds(evidence, Job { went_on: true, ..job })
        }),
        ("rank 2 has returned", |evidence| finds(evidence, Job::new(2, Mistake::Returns))),
        ("rank 0 has returned", |evidence| finds(evidence, Job::new(0, Mistake::Returns))),
        ("rank 1 has returned after 118 calls", |evidence| {
            let job = Job::new(1, Mistake::Returns);
            finds(evidence, Job { steps: 40, ..job })
        }),
        ("3 ranks", |evidence| {
            let job = Job::new(1, Mistake::LeavesOut);
            finds(evidence, Job { ranks: 3, ..job })
        }),
        ("all ranks made the same calls", nothing),
    ])
}

/// The job of each rank: steps of two all-reduces and a barrier. In the last step `odd` makes a
/// mistake, after a pause.
fn job(
    comm: &Comm,
    odd: bool,
    mistake: Mistake,
    steps: usize,
    pause: Duration,
) -> comm::Result<()> {
    let gradients = || comm.all_reduce(&mut [1f32; 4], Reduce::Sum);
    for step in 1..=steps {
        let wrong = (odd && step == steps).then_some(mistake);
        let all = wrong != Some(Mistake::Reduces);
        let losses = |losses: &mut [f32], op| reduce(comm, losses, op, all);
        if wrong == Some(Mistake::WrongOrder) {
            std::thread::sleep(pause);
            losses(&mut [2f32; 4], Reduce::Sum)?;
        }
        gradients()?;
        if wrong.is_some() {
            std::thread::sleep(pause);
        }
        match wrong {
            Some(Mistake::LeavesOut) => {}
            Some(Mistake::FewerNumbers) => losses(&mut [2f32; 3], Reduce::Sum)?,
            Some(Mistake::Maximum) => losses(&mut [2f32; 4], Reduce::Max)?,
            Some(Mistake::Returns) => return Ok(()),
            Some(Mistake::Reduces | Mistake::WrongOrder) | None => {
                losses(&mut [2f32; 4], Reduce::Sum)?
            }
        }
        comm.barrier()?;
    }
    Ok(())
}

/// All-reduces `losses`, or only reduces them. The flight recorder has the caller's source line
/// either way.
#[track_caller]
fn reduce(comm: &Comm, losses: &mut [f32], op: Reduce, all: bool) -> comm::Result<()> {
    if all {
        comm.all_reduce(losses, op)
    } else {
        comm.reduce(losses, op, 0)
    }
}

/// The file of a job, and the number of the call that breaks it.
fn record(broken: Job) -> Result<(String, usize)> {
    let Job { ranks, odd, mistake, steps, went_on } = broken;
    let number = 3 * (steps - 1) + if mistake == Mistake::WrongOrder { 1 } else { 2 };
    let file = std::env::temp_dir().join(format!("shardlab-flight-{}.jsonl", std::process::id()));
    let options = Options { flight_file: Some(file.clone()), ..Options::default() };
    // The job stops as soon as two ranks disagree. A longer pause lets all other ranks come to
    // their call before that.
    let mut pause = Duration::from_millis(10);
    loop {
        let outcome = launch::run_with(ranks, &options, |comm| {
            let odd = comm.rank() == odd;
            Ok(job(&comm, odd, mistake, steps, pause)?)
        });
        if outcome.is_ok() {
            return Err(std::io::Error::other("a job with a mistake has ended well").into());
        }
        let text = std::fs::read_to_string(&file)?;
        std::fs::remove_file(&file)?;
        if (0..ranks).all(|rank| rank == odd || line(&text, rank, number).is_some()) {
            let text = if went_on { one_more(&text, broken, number) } else { text };
            return Ok((text, number));
        }
        pause *= 2;
    }
}

/// The file of a swap, with a further call of each rank. This library stops a job at the first call
/// in which ranks differ. NCCL does not compare calls, and such a job goes on.
fn one_more(text: &str, broken: Job, number: usize) -> String {
    let mut lines = Vec::new();
    for rank in 0..broken.ranks {
        let sign = format!("\"rank\":{rank},");
        lines.extend(text.lines().filter(|line| line.contains(&sign)).map(String::from));
        // The step's other all-reduce, as this rank made it in the first step.
        let other = if rank == broken.odd { 1 } else { 2 };
        let made = line(text, rank, other).unwrap_or_default();
        lines.push(
            made.replace(&format!("\"number\":{other},"), &format!("\"number\":{},", number + 1)),
        );
    }
    lines.join("\n")
}

/// The line of a rank's call.
fn line(text: &str, rank: usize, number: usize) -> Option<&str> {
    let signs = [format!("\"rank\":{rank},"), format!("\"number\":{number},")];
    text.lines().find(|line| signs.iter().all(|sign| line.contains(sign)))
}

/// The kind, length, reduction and source line of a call, as the file has them.
fn signature(line: &str) -> [&str; 4] {
    ["call", "len", "op", "at"].map(|name| {
        let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_default();
        rest.split([',', '}']).next().unwrap_or_default().trim_matches('"')
    })
}

fn said([kind, len, op, at]: [&str; 4], number: usize) -> String {
    let at = at.rsplit(':').next().unwrap_or_default();
    format!("{kind} #{number} ({op}, {len}, line {at})")
}

fn finds(evidence: &mut Evidence, broken: Job) -> Result<()> {
    let (text, number) = record(broken)?;
    let Job { ranks, odd, mistake, steps, went_on } = broken;
    let lines = text.lines().count();
    evidence.given(format!("a file of {lines} lines"));
    let found = suspect(&text);
    let right = line(&text, (odd + 1) % ranks, number).map(signature).unwrap_or_default();
    let own = line(&text, odd, number).map(signature);
    let (rank, call, at) = match &found {
        Some(Suspect { rank, expected }) => {
            let Call { number, kind, len, op, at, .. } = expected;
            (
                Some(*rank),
                Some([kind.clone(), len.to_string(), op.clone(), at.clone()]),
                *number,
            )
        }
        None => (None, None, 0),
    };
    let call = call.as_ref().map(|call| call.each_ref().map(|text| text.as_str()));
    evidence.row(
        rank == Some(odd),
        "the rank",
        odd,
        rank.map_or("none".into(), |rank| rank.to_string()),
    );
    let got = call.map_or("none".into(), |call| said(call, at));
    evidence.row(call == Some(right) && at == number, "the call", said(right, number), got);
    if evidence.agrees() {
        return Ok(());
    }

    evidence.means_if(
        ranks != RANKS,
        format!(
            "This job has {ranks} ranks, and every job before it had {RANKS}. How many ranks there are, and how many of them are \
             a majority, follows from the file."
        ),
    );
    evidence.means_if(
        went_on && at > number,
        format!(
            "The ranks differ at #{at}, and at #{number} before. Look for the first difference. From there on a rank's calls are \
             out of step with the others', so later differences follow from it."
        ),
    );
    evidence.means_if(
        rank == Some(odd) && at == number && own.is_some() && call == own,
        "The rank is right, but this is the call that it made. Asked is the call that it should have made: the one of the \
         other ranks.",
    );
    evidence.means_if(
        mistake == Mistake::Returns && odd == 0 && rank.is_none(),
        "Rank 0's list ends before the others' does. What comes after it is only in their lists, so go through the numbers of \
         all ranks.",
    );
    evidence.means_if(
        steps > 22 && rank.is_none(),
        "Each list has the last 64 calls of its rank, so the smallest number of the file is not 1. Do you begin there, and do you \
         go on to the largest?",
    );
    evidence.means_if(
        mistake == Mistake::Returns && rank.is_none(),
        format!("Rank {odd} made no wrong call. It made no more calls at all: its list ends before the others' does."),
    );
    evidence.means_if(
        steps > 22 && found.is_some() && at < number,
        "Each list has the last 64 calls of its rank. The list of a rank that made one call fewer begins one call earlier, \
         so its first call is missing in the other lists. Compare calls by their numbers. A rank is missing only if its list \
         has ended.",
    );
    evidence.means_if(
        found.is_some() && at > 0 && at < number,
        format!(
            "All ranks made the same call #{at}. Times and states are always different, and ranks are meant to be."
        ),
    );
    evidence.means_if(
        mistake == Mistake::FewerNumbers,
        "Both calls are an all-reduce, of 3 numbers on this rank and of 4 on the other ranks. The job of December 2024 made this mistake.",
    );
    evidence.means_if(
        mistake == Mistake::Maximum,
        "Both calls are an all-reduce of 4 numbers, but one asks for the sum and the other for the maximum.",
    );
    evidence.means_if(
        mistake == Mistake::Reduces,
        "Both calls add up 4 numbers on the same source line. But one is a reduce, which gives the sum only to rank 0, and the \
         other is an all-reduce.",
    );
    evidence.means_if(
        mistake == Mistake::WrongOrder,
        "The two calls have the same kind, length and reduction, but they are different calls: their source lines differ.",
    );
    evidence.means_if(
        rank.is_some_and(|rank| rank != odd) && at == number,
        format!(
            "{ranks} ranks made call #{number}, and {} of them agree. No rank is the reference, not even rank 0: the majority \
             is right.",
            ranks - 1
        ),
    );
    evidence
        .means("Go through the numbers from the smallest on. At each, compare the calls of all ranks that made it.");
    Ok(())
}

fn nothing(evidence: &mut Evidence) -> Result<()> {
    let (text, number) = record(Job::new(3, Mistake::LeavesOut))?;
    // The same file, without the calls in which the ranks differ.
    let before: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains(&format!("\"number\":{number},")))
        .collect();
    let found = suspect(&before.join("\n"));
    evidence.row(found.is_none(), "the suspect", "none", format!("{found:?}"));
    evidence.means("In this file all ranks made the same calls. So no rank is a suspect: the cause is somewhere else.");
    Ok(())
}
