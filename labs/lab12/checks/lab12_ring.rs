//! The check of lab12-ring: the attention of one rank that has all keys, with harder and harder
//! scores, then the blocks that are sent.

use exercise::{Block, attend};
use kit::check::{Evidence, is_near, run};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: a query sees its own and earlier positions", |evidence| {
            attention(evidence, &Case::new(1))
        }),
        ("2 ranks: the other rank's keys count, too", |evidence| {
            attention(evidence, &Case::new(2))
        }),
        ("3 ranks, zig-zag: positions lie apart", |evidence| {
            attention(evidence, &Case { zig_zag: true, ..Case::new(3) })
        }),
        ("scores of 1,000 and more", |evidence| {
            attention(evidence, &Case { level: 1000.0, ..Case::new(2) })
        }),
        ("scores near -1,000", |evidence| {
            attention(evidence, &Case { level: -1000.0, ..Case::new(2) })
        }),
        ("the largest scores come in the last round", |evidence| {
            attention(evidence, &Case { slope: 30.0, zig_zag: true, ..Case::new(4) })
        }),
        ("4 ranks: each sends as few blocks as it can", blocks),
    ])
}

/// Positions of each rank.
const ROWS: usize = 4;
const WIDTH: usize = 3;

/// Ranks, and the scores between their queries and keys.
struct Case {
    ranks: usize,
    zig_zag: bool,
    /// Is added to all scores.
    level: f64,
    /// Is added to a score, times the position of the key from the end.
    slope: f64,
}

impl Case {
    fn new(ranks: usize) -> Case {
        Case { ranks, zig_zag: false, level: 0.0, slope: 0.0 }
    }

    /// The positions that a rank holds.
    fn positions(&self, rank: usize) -> Vec<usize> {
        let half = ROWS / 2;
        let chunk = |number: usize| number * half..(number + 1) * half;
        if self.zig_zag {
            chunk(rank).chain(chunk(2 * self.ranks - 1 - rank)).collect()
        } else {
            (rank * ROWS..(rank + 1) * ROWS).collect()
        }
    }

    fn wave(i: usize, j: usize) -> f64 {
        2.0 * (1.0 + 1.7 * i as f64 + 2.3 * j as f64).sin()
    }

    /// The last number of a query is 1, so the last one of a key is added to all of its scores.
    fn query(&self, position: usize) -> Vec<f64> {
        vec![Case::wave(position, 0), Case::wave(position, 1), 1.0]
    }

    fn key(&self, position: usize) -> Vec<f64> {
        let from_the_end = (self.ranks * ROWS - position) as f64;
        let added = self.level + self.slope * from_the_end;
        vec![Case::wave(position, 2), Case::wave(position, 3), added]
    }

    fn value(&self, position: usize) -> Vec<f64> {
        (0..WIDTH).map(|i| Case::wave(position, 4 + i)).collect()
    }

    fn block(&self, rank: usize) -> Block {
        let positions = self.positions(rank);
        Block {
            keys: positions.iter().map(|&position| self.key(position)).collect(),
            values: positions.iter().map(|&position| self.value(position)).collect(),
            positions: positions.iter().map(|&position| position as f64).collect(),
        }
    }

    /// The score of two positions.
    fn score(&self, query: usize, key: usize) -> f64 {
        self.query(query).iter().zip(self.key(key)).map(|(q, k)| q * k).sum()
    }

    /// The keys that a query of `rank` meets in each round, by their positions.
    fn rounds(&self, rank: usize) -> Vec<Vec<usize>> {
        (0..self.ranks)
            .map(|round| self.positions((rank + self.ranks - round) % self.ranks))
            .collect()
    }
}

/// A way to be wrong, or the right one.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Right,
    /// Only this rank's keys.
    Own,
    /// The own block, and then the next rank's own block in all rounds, and so on: without a block
    /// that came from farther away.
    LastRoundMissing,
    /// Later positions count, too.
    Future,
    /// A query's own position does not count.
    NotItself,
    /// Each round's softmax by itself, added up, or averaged over the ranks.
    Softmaxes,
    MeanOfSoftmaxes,
    /// A larger score rescales nothing, or only the sums, or only the results.
    NoRescale,
    OnlySums,
    OnlyResults,
    /// Not divided by the sum.
    NotDivided,
    /// Each round divides what is there.
    DividedTwice,
    /// Row numbers within a block in place of positions.
    RowNumbers,
}

/// The result of one query in some way.
fn result(case: &Case, rank: usize, row: usize, way: Way) -> Vec<f64> {
    let position = case.positions(rank)[row];
    let mut rounds = case.rounds(rank);
    match way {
        Way::Own => rounds.truncate(1),
        Way::LastRoundMissing => rounds.truncate(case.ranks.max(2) - 1),
        _ => {}
    }
    let mut top = f64::NEG_INFINITY;
    let mut sum = 0.0;
    let mut out = vec![0.0; WIDTH];
    let mut all = vec![0.0; WIDTH];
    for keys in rounds {
        if matches!(way, Way::Softmaxes | Way::MeanOfSoftmaxes) {
            (top, sum, out) = (f64::NEG_INFINITY, 0.0, vec![0.0; WIDTH]);
        }
        for (j, key) in keys.into_iter().enumerate() {
            let seen = match way {
                Way::Future => true,
                Way::NotItself => key < position,
                Way::RowNumbers => j <= row,
                _ => key <= position,
            };
            if !seen {
                continue;
            }
            let score = case.score(position, key);
            let larger = score.max(top);
            let old = if top == f64::NEG_INFINITY {
                0.0
            } else {
                (top - larger).exp()
            };
            let new = (score - larger).exp();
            top = larger;
            let of = |keeps: &[Way]| if keeps.contains(&way) && old > 0.0 { 1.0 } else { old };
            sum = sum * of(&[Way::NoRescale, Way::OnlyResults]) + new;
            for (out, value) in out.iter_mut().zip(case.value(key)) {
                *out = *out * of(&[Way::NoRescale, Way::OnlySums]) + value * new;
            }
        }
        if way == Way::DividedTwice && sum > 0.0 {
            out.iter_mut().for_each(|x| *x /= sum);
        }
        if sum > 0.0 {
            all.iter_mut().zip(&out).for_each(|(all, out)| *all += out / sum);
        }
    }
    match way {
        Way::Softmaxes => all,
        Way::MeanOfSoftmaxes => all.iter().map(|x| x / case.ranks as f64).collect(),
        Way::NotDivided | Way::DividedTwice => out,
        _ => out.iter().map(|x| x / sum).collect(),
    }
}

/// Each rank's rows, and the bytes that it sent.
fn answers(evidence: &Evidence, case: &Case) -> Result<Vec<(Vec<Vec<f64>>, u64)>> {
    launch::run(case.ranks, |comm| {
        let rank = comm.rank();
        let queries: Vec<Vec<f64>> =
            case.positions(rank).iter().map(|&position| case.query(position)).collect();
        evidence.given(format!(
            "rank {rank} of {}, positions {:?}",
            case.ranks,
            case.positions(rank)
        ));
        let before = comm.traffic();
        let rows = attend(&comm, &queries, &case.block(rank))?;
        Ok((rows, (comm.traffic() - before).bytes))
    })
}

fn attention(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let answers = answers(evidence, case)?;
    for (rank, (rows, _)) in answers.iter().enumerate() {
        if rows.len() != ROWS || rows.iter().any(|row| row.len() != WIDTH) {
            let found: Vec<usize> = rows.iter().map(Vec::len).collect();
            let expected = format!("{ROWS} rows of {WIDTH}");
            evidence.row(false, format!("rank {rank}"), expected, format!("rows of {found:?}"));
            evidence.means("The result has a row for each query, as wide as a value.");
            return Ok(());
        }
        let right = |row: usize| result(case, rank, row, Way::Right);
        let wrong =
            |row: &usize| !right(*row).iter().zip(&rows[*row]).all(|(a, b)| is_near(*a, *b));
        let row = (0..ROWS).find(wrong).unwrap_or(ROWS - 1);
        let position = case.positions(rank)[row];
        evidence.near(format!("rank {rank}: position {position}"), right(row)[0], rows[row][0]);
        let off = (1..WIDTH).find(|&i| !is_near(right(row)[i], rows[row][i]));
        if let Some(i) = off {
            let at = format!("rank {rank}: position {position}, number {i}");
            evidence.near(at, right(row)[i], rows[row][i]);
        }
    }
    if evidence.agrees() {
        return Ok(());
    }
    let is = |way: Way| {
        answers.iter().enumerate().all(|(rank, (rows, _))| {
            let same = |row: usize| {
                let wrong = result(case, rank, row, way);
                // Two ways to be wrong by dividing by nothing are one.
                wrong
                    .iter()
                    .zip(&rows[row])
                    .all(|(a, b)| is_near(*a, *b) || (a.is_nan() && b.is_nan()))
            };
            (0..ROWS).all(same)
        })
    };
    let several = |way| case.ranks > 1 && is(way);
    evidence.means_if(
        is(Way::Future),
        "Keys of later positions count. A query sees its own position and earlier ones: compare the block's positions with yours.",
    );
    evidence.means_if(
        is(Way::NotItself),
        "A query does not see its own position. It does in causal attention; the first position has no other key.",
    );
    evidence.means_if(
        is(Way::RowNumbers) && !is(Way::Right),
        "Rows of a block are compared with rows, as if every block began with this rank's first position. Each block has its \
         positions with it.",
    );
    evidence.means_if(
        is(Way::NotDivided),
        "The sum of the weights is missing: after the last round, divide by it.",
    );
    evidence.means_if(
        several(Way::Own),
        "Only this rank's own keys count. The block that arrives is the one to attend to in the next round.",
    );
    evidence.means_if(
        several(Way::LastRoundMissing),
        "One round is missing. There are as many rounds as ranks, and one message fewer.",
    );
    evidence.means_if(
        several(Way::Softmaxes) || several(Way::MeanOfSoftmaxes),
        "Each round has a softmax of its own, and their results are combined as equals. But a round with large scores weighs more: \
         divide once, at the end, by the sum over all rounds.",
    );
    evidence.means_if(
        several(Way::DividedTwice),
        "Every round divides what is there, and later rounds add weights to it that were not divided. Divide once, at the end.",
    );
    evidence.means_if(
        is(Way::NoRescale),
        "A larger score has come, and what was there has kept its old scale. It was multiplied by e^-(the old largest score); \
         what comes now by e^-(the new one). Bring the old to the new scale: multiply it by e^(old - new).",
    );
    evidence.means_if(
        is(Way::OnlySums),
        "The sum is rescaled when a larger score comes, and the result is not. Both have the old scale.",
    );
    evidence.means_if(
        is(Way::OnlyResults),
        "The result is rescaled when a larger score comes, and the sum is not. Both have the old scale.",
    );
    let finite = answers.iter().all(|(rows, _)| rows.iter().flatten().all(|x| x.is_finite()));
    evidence.means_if(
        !finite && case.level > 0.0,
        "An exponential is infinite. Subtract the query's largest score so far before each exponential: then none is above 1.",
    );
    evidence.means_if(
        !finite && case.level < 0.0,
        "All exponentials of a query are 0, and so is their sum: something larger than all its scores was subtracted. Its largest \
         score is negative. Does your search for it begin at 0?",
    );
    evidence.means_if(
        !finite,
        "Something was divided by 0, or an infinity subtracted from an infinity. A query that has seen no key yet has the sum 0 and \
         the largest score -infinity.",
    );
    evidence.means(
        "A result is the mean of the values that the query sees, weighted by e^score. Over all rounds: the sum of e^(score - \
         largest) · value, divided by the sum of e^(score - largest), with one `largest`.",
    );
    Ok(())
}

fn blocks(evidence: &mut Evidence) -> Result<()> {
    let case = Case::new(4);
    let block = (ROWS * (1 + 2 * WIDTH) * size_of::<f64>()) as u64;
    let sent = answers(evidence, &case)?.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let least = (case.ranks - 1) as u64;
    evidence.row(
        sent <= least * block,
        "blocks that a rank sends, of 4 ranks",
        least,
        sent.div_ceil(block),
    );
    evidence.means_if(
        sent == case.ranks as u64 * block,
        "Everything is right, but in the last round every rank sends its block home, where nobody needs it: it is the rank's own.",
    );
    evidence.means(
        "Everything is right, but ranks send more than they must: each block has to reach every other rank once.",
    );
    evidence.figure("bytes that a rank sends", sent, least * block);
    Ok(())
}
