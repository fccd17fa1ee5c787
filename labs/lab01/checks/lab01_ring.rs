//! The check of lab01-ring: sums on one, two and more ranks, chunks of different lengths, and then
//! rounds and bytes.

use exercise::all_reduce;
use kit::check::{Evidence, run};
use shardlab::comm::CommTraffic;
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: its numbers are the sums", |evidence| sums(evidence, 1, 4)),
        ("2 ranks, 2 numbers: one chunk each", |evidence| sums(evidence, 2, 2)),
        ("4 ranks, 4 numbers, as lab01 shows it", |evidence| sums(evidence, 4, 4)),
        ("3 ranks, 10 numbers: chunks of different lengths", |evidence| {
            sums(evidence, 3, 10)
        }),
        ("5 ranks, 3 numbers: some chunks are empty", |evidence| sums(evidence, 5, 3)),
        ("4 ranks, 4,096 numbers: the rounds and bytes of a ring", |evidence| {
            costs(evidence, 4, 4096)
        }),
    ])
}

/// How many digits f32 holds exactly.
const DIGITS: usize = 7;

/// Element `i` of a rank's numbers. Each digit of a sum belongs to one rank, so a wrong sum shows
/// which rank is missing.
fn brings(rank: usize, i: usize) -> f32 {
    ((i % 9 + 1) * 10_usize.pow((rank % DIGITS) as u32)) as f32
}

/// The numbers that every rank ends with, and its traffic. Under mpirun there are as many ranks as
/// mpirun has started.
fn results(ranks: usize, len: usize) -> Result<Vec<(usize, Vec<f32>, CommTraffic)>> {
    launch::run(ranks, |comm| {
        let mut data: Vec<f32> = (0..len).map(|i| brings(comm.rank(), i)).collect();
        let before = comm.traffic();
        all_reduce(&comm, &mut data)?;
        Ok((comm.rank(), data, comm.traffic() - before))
    })
}

/// The halves of the algorithm in which ranks send to the left and receive from the right.
const TURNED: [([bool; 2], &str); 3] = [
    ([true, true], "both halves"),
    ([true, false], "the first half"),
    ([false, true], "the second half"),
];

/// What each rank ends with if some halves are turned, and the numbers of the chunks go down all
/// the same. None where chunks have different lengths: there ranks would wait for more numbers than
/// come.
fn turned(ranks: usize, len: usize, halves: [bool; 2]) -> Option<Vec<Vec<f32>>> {
    if !len.is_multiple_of(ranks) {
        return None;
    }
    let size = len / ranks;
    let of = |rank: usize| (0..len).map(|i| brings(rank, i)).collect();
    let mut data: Vec<Vec<f32>> = (0..ranks).map(of).collect();
    for (half, turned) in halves.into_iter().enumerate() {
        for round in 0..ranks - 1 {
            let before = data.clone();
            for (rank, mine) in data.iter_mut().enumerate() {
                let from = (rank + if turned { 1 } else { ranks - 1 }) % ranks;
                let sent = (from + half + ranks - round) % ranks * size;
                let into = (rank + half + ranks - round - 1) % ranks * size;
                for i in 0..size {
                    let kept = if half == 0 { mine[into + i] } else { 0.0 };
                    mine[into + i] = kept + before[from][sent + i];
                }
            }
        }
    }
    Some(data)
}

fn sums(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    let ranks = launch::ranks(None, ranks)?;
    let expected: Vec<f32> =
        (0..len).map(|i| (0..ranks).map(|rank| brings(rank, i)).sum()).collect();
    let results = results(ranks, len)?;
    let mut wrong = None;
    for (rank, got, _) in &results {
        let first = (0..len).find(|&i| got[i] != expected[i]);
        let i = first.unwrap_or(0);
        evidence.row(first.is_none(), format!("rank {rank}, number {i}"), expected[i], got[i]);
        wrong = wrong.or(first.map(|i| (*rank, i, got[i])));
    }
    let Some((rank, i, got)) = wrong else {
        return Ok(());
    };
    for (halves, named) in TURNED {
        let turned = turned(ranks, len, halves);
        evidence.means_if(
            ranks > 1
                && turned.is_some_and(|turned| {
                    results.iter().all(|(rank, got, _)| *got == turned[*rank])
                }),
            format!(
                "In {named} your ranks send to the left and receive from the right, and the numbers of the chunks still go down \
                 from round to round. So what arrives is not the chunk that it goes into: gradients would end up at other \
                 parameters, and no error says so. Turn the direction, or let the numbers go up."
            ),
        );
    }
    let own = |rank: usize, got: &[f32]| (0..len).all(|i| got[i] == brings(rank, i));
    evidence.means_if(
        ranks == 1,
        "With one rank there is nothing to send: its numbers already are the sums.",
    );
    evidence.means_if(
        results.iter().all(|(rank, got, _)| own(*rank, got)),
        "Every rank still holds its own numbers: it added nothing that it received.",
    );
    // A rank has all sums of at least one chunk, but not of all chunks.
    let some = |got: &[f32]| (0..len).any(|i| got[i] == expected[i]);
    evidence.means_if(
        results.iter().all(|(_, got, _)| some(got)) && got < expected[i],
        "Each rank has one complete chunk, and the others are incomplete. This is right after the first n-1 rounds. Now the \
         complete chunks must travel around the ring, and replace the incomplete ones.",
    );
    // How often the sum contains each rank's number: the digits, in units of rank 0's number.
    let times = |rank: usize| (got / brings(0, i)) as usize / 10_usize.pow(rank as u32) % 10;
    let whole = (got / brings(0, i)).fract() == 0.0 && ranks <= DIGITS;
    let named =
        |count: &dyn Fn(usize) -> bool| (0..ranks).filter(|&r| count(times(r))).collect::<Vec<_>>();
    let missing = named(&|times| times == 0);
    let twice = named(&|times| times > 1);
    evidence.means_if(
        whole && !twice.is_empty() && missing.is_empty(),
        format!(
            "Rank {rank}'s sum contains the numbers of ranks {twice:?} more than once, so these ranks' data would count more \
             than the others'. Is a chunk added in the second half, where it should replace what is there?"
        ),
    );
    evidence.means_if(
        whole && !twice.is_empty(),
        format!(
            "Rank {rank}'s sum contains the numbers of ranks {twice:?} more than once, and lacks those of ranks {missing:?}. \
             Which chunk arrives in a round, and to which one do you add it?"
        ),
    );
    evidence.means_if(
        whole && !missing.is_empty(),
        format!(
            "Rank {rank}'s sum lacks the numbers of ranks {missing:?}. Were they added to a different chunk, or replaced by \
             an older one?"
        ),
    );
    evidence.means(
        "This is no sum of the ranks' numbers at this offset: did a chunk end up at a different chunk's offset?",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence, ranks: usize, len: usize) -> Result<()> {
    sums(evidence, ranks, len)?;
    let ranks = launch::ranks(None, ranks)?;
    let results = results(ranks, len)?;
    let most = |of: fn(&CommTraffic) -> u64| {
        results.iter().map(|(_, _, traffic)| of(traffic)).max().unwrap_or(0)
    };
    let rounds = most(|traffic| traffic.rounds);
    let bytes = most(|traffic| traffic.bytes);
    let others = ranks as u64 - 1;
    let best_rounds = 2 * others;
    let best_bytes = 2 * others * (len * size_of::<f32>()) as u64 / ranks as u64;
    evidence.row(rounds == best_rounds, "rounds per rank, 2(n-1)", best_rounds, rounds);
    // Chunks of unequal length differ by one number.
    let near = bytes.abs_diff(best_bytes) <= best_rounds * size_of::<f32>() as u64;
    evidence.row(near, "bytes sent per rank, 2(n-1)/n of its data", best_bytes, bytes);
    let own = "The sums are right, but you did not send and receive: this is the library's own all-reduce.";
    evidence.means_if(rounds == 0 && ranks > 1, own);
    let whole = "The sums are right, but ranks send more than they have to. In each round, send one chunk of n and receive one.";
    evidence.means_if(bytes > best_bytes && rounds <= best_rounds, whole);
    evidence.means(
        "The sums are right, but not in the fewest rounds: send one chunk and receive one in each of 2(n-1) rounds.",
    );
    evidence.figure("rounds per rank", rounds, best_rounds);
    evidence.figure("bytes sent per rank", bytes, best_bytes);
    Ok(())
}
