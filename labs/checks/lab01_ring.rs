//! The check of lab01-ring: sums on one, two and more ranks, parts of other lengths, and then steps and bytes.

use exercise::all_reduce;
use shardlab::Result;
use shardlab::comm::Traffic;
use shardlab::launch;
use shardlab::workbook::check::{Evidence, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: its numbers are the sums", |evidence| sums(evidence, 1, 4)),
        ("2 ranks, 2 numbers: one part each", |evidence| sums(evidence, 2, 2)),
        ("4 ranks, 4 numbers, as lab01 shows it", |evidence| sums(evidence, 4, 4)),
        ("3 ranks, 10 numbers: parts of different lengths", |evidence| sums(evidence, 3, 10)),
        ("5 ranks, 3 numbers: some parts are empty", |evidence| sums(evidence, 5, 3)),
        ("4 ranks, 4,096 numbers: the steps and bytes of a ring", |evidence| costs(evidence, 4, 4096)),
    ])
}

/// Digits that are exact in f32.
const DIGITS: usize = 7;

/// Element `i` of what a rank brings: each digit of a sum is one rank's, so that a wrong sum tells whose is missing.
fn brings(rank: usize, i: usize) -> f32 {
    ((i % 9 + 1) * 10_usize.pow((rank % DIGITS) as u32)) as f32
}

/// What every rank ends with, and what it sent. Under mpirun there are as many ranks as it has started.
fn results(ranks: usize, len: usize) -> Result<Vec<(usize, Vec<f32>, Traffic)>> {
    launch::run(ranks, |comm| {
        let mut data: Vec<f32> = (0..len).map(|i| brings(comm.rank(), i)).collect();
        let before = comm.traffic();
        all_reduce(&comm, &mut data)?;
        Ok((comm.rank(), data, comm.traffic() - before))
    })
}

fn sums(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    let ranks = launch::ranks(None, ranks)?;
    let expected: Vec<f32> = (0..len).map(|i| (0..ranks).map(|rank| brings(rank, i)).sum()).collect();
    let results = results(ranks, len)?;
    let mut wrong = None;
    for (rank, got, _) in &results {
        let first = (0..len).find(|&i| got[i] != expected[i]);
        let i = first.unwrap_or(0);
        evidence.row(first.is_none(), format!("rank {rank}, number {i}"), expected[i], got[i]);
        wrong = wrong.or(first.map(|i| (*rank, i, got[i])));
    }
    let Some((rank, i, got)) = wrong else { return Ok(()) };
    let own = |rank: usize, got: &[f32]| (0..len).all(|i| got[i] == brings(rank, i));
    evidence.means_if(ranks == 1, "With one rank there is nothing to send: its numbers are the sums already.");
    evidence.means_if(
        results.iter().all(|(rank, got, _)| own(*rank, got)),
        "Every rank holds what it brought: nothing that came was added.",
    );
    // A rank has all sums of one part at least, but not of all.
    let some = |got: &[f32]| (0..len).any(|i| got[i] == expected[i]);
    evidence.means_if(
        results.iter().all(|(_, got, _)| some(got)) && got < expected[i],
        "Each rank has a part that is complete, and others that are not: that is how it stands after the first n-1 steps. \
         Now the complete parts must go round, and replace what is there.",
    );
    // How often each rank's number is in the sum: the digits, in units of what rank 0 brings.
    let times = |rank: usize| (got / brings(0, i)) as usize / 10_usize.pow(rank as u32) % 10;
    let whole = (got / brings(0, i)).fract() == 0.0 && ranks <= DIGITS;
    let named = |count: &dyn Fn(usize) -> bool| (0..ranks).filter(|&r| count(times(r))).collect::<Vec<_>>();
    let (missing, twice) = (named(&|times| times == 0), named(&|times| times > 1));
    evidence.means_if(
        whole && !twice.is_empty(),
        format!("Rank {rank}'s sum has the numbers of ranks {twice:?} more than once: in the second round parts replace, they are not added."),
    );
    evidence.means_if(
        whole && !missing.is_empty(),
        format!("Rank {rank}'s sum lacks the numbers of ranks {missing:?}: were they added to another part, or replaced by an older one?"),
    );
    evidence.means("This is no sum of the ranks' numbers in this place: did a part land in another part's place?");
    Ok(())
}

fn costs(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    sums(evidence, ranks, len)?;
    let ranks = launch::ranks(None, ranks)?;
    let results = results(ranks, len)?;
    let most = |of: fn(&Traffic) -> u64| results.iter().map(|(_, _, traffic)| of(traffic)).max().unwrap_or(0);
    let (steps, bytes) = (most(|traffic| traffic.rounds), most(|traffic| traffic.bytes));
    let others = ranks as u64 - 1;
    let (best_steps, best_bytes) = (2 * others, 2 * others * (len * size_of::<f32>()) as u64 / ranks as u64);
    evidence.row(steps == best_steps, "steps a rank, 2(n-1)", best_steps, steps);
    // Parts that are not equally long differ by one number.
    let near = bytes.abs_diff(best_bytes) <= best_steps * size_of::<f32>() as u64;
    evidence.row(near, "bytes a rank sends, 2(n-1)/n of its data", best_bytes, bytes);
    let own = "The sums are right, but not by sends and receives: this is the library's own all-reduce.";
    evidence.means_if(steps == 0 && ranks > 1, own);
    let whole =
        "The sums are right, but more travels than has to: in each step one part of n goes out, and one comes in.";
    evidence.means_if(bytes > best_bytes && steps <= best_steps, whole);
    evidence.means(
        "The sums are right, but not by the shortest way: one part out and one part in, in each of 2(n-1) steps.",
    );
    evidence.figure("steps a rank", steps, best_steps);
    evidence.figure("bytes a rank sends", bytes, best_bytes);
    Ok(())
}
