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
        ("3 ranks: later positions come first", |evidence| {
            attention(evidence, &Case { falling: true, ..Case::new(3) })
        }),
        ("scores of 1,000 and more", |evidence| {
            attention(evidence, &Case { level: 1000.0, ..Case::new(2) })
        }),
        ("scores near -1,000", |evidence| {
            attention(evidence, &Case { level: -1000.0, ..Case::new(2) })
        }),
        ("the largest scores come in the last round", |evidence| {
            attention(evidence, &Case { stairs: 800.0, zig_zag: true, ..Case::new(4) })
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
    /// Whether the later positions come first in a block.
    falling: bool,
    /// Is added to all scores.
    level: f64,
    /// Is added to the scores of the keys of the first chunk, and taken from those of the third and
    /// later ones. With 4 ranks in zig-zag order, the last rank meets larger scores in its last two
    /// rounds: 800 more each time, and e^800 is infinite.
    stairs: f64,
}

impl Case {
    fn new(ranks: usize) -> Case {
        Case {
            ranks,
            zig_zag: false,
            falling: false,
            level: 0.0,
            stairs: 0.0,
        }
    }

    /// The positions that a rank holds.
    fn positions(&self, rank: usize) -> Vec<usize> {
        let half = ROWS / 2;
        let chunk = |number: usize| number * half..(number + 1) * half;
        let mut positions: Vec<usize> = if self.zig_zag {
            chunk(rank).chain(chunk(2 * self.ranks - 1 - rank)).collect()
        } else {
            (rank * ROWS..(rank + 1) * ROWS).collect()
        };
        if self.falling {
            positions.reverse();
        }
        positions
    }

    fn wave(i: usize, j: usize) -> f64 {
        2.0 * (1.0 + 1.7 * i as f64 + 2.3 * j as f64).sin()
    }

    /// The last number of a query is 1, so the last one of a key is added to all of its scores.
    fn query(&self, position: usize) -> Vec<f64> {
        vec![Case::wave(position, 0), Case::wave(position, 1), 1.0]
    }

    fn key(&self, position: usize) -> Vec<f64> {
        let stair = match position / (ROWS / 2) {
            0 => 1.0,
            1 => 0.0,
            _ => -1.0,
        };
        let added = self.level + self.stairs * stair;
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
    /// The own block in the first round, and the neighbour's own block in all others.
    OwnIsSent,
    /// Later positions count, too, or only in the first round they do not.
    Future,
    FutureOfOthers,
    /// A query's own position does not count.
    NotItself,
    /// Each round's softmax by itself, added up, or averaged over the ranks.
    Softmaxes,
    MeanOfSoftmaxes,
    /// A larger score rescales nothing, or only the sums, or only the results.
    NoRescale,
    OnlySums,
    OnlyResults,
    /// What is there is multiplied by e^(new - old), from the first key on or from the second on.
    Inverted,
    InvertedLater,
    /// Scores are divided by the root of a key's length.
    RootOfWidth,
    /// Not divided by the sum.
    NotDivided,
    /// Each round divides what is there.
    DividedTwice,
    /// Row numbers within a block in place of positions.
    RowNumbers,
    /// A query's position is taken to be its row in contiguous order, or all positions are.
    QueryInARow,
    AllInARow,
}

/// What a query meets at once: a key, or all keys of a round.
#[derive(Clone, Copy, PartialEq)]
enum Each {
    Key,
    Round,
}

/// The result of one query in some way.
fn result(case: &Case, rank: usize, row: usize, way: Way, each: Each) -> Vec<f64> {
    let position = case.positions(rank)[row];
    let mut rounds = case.rounds(rank);
    match way {
        Way::Own => rounds.truncate(1),
        Way::LastRoundMissing => rounds.truncate(case.ranks.max(2) - 1),
        Way::OwnIsSent => {
            let sent = rounds[1.min(case.ranks - 1)].clone();
            rounds[1..].fill(sent);
        }
        _ => {}
    }
    let in_a_row = rank * ROWS + row;
    let mut top = f64::NEG_INFINITY;
    let mut sum = 0.0;
    let mut out = vec![0.0; WIDTH];
    let mut all = vec![0.0; WIDTH];
    for (round, keys) in rounds.into_iter().enumerate() {
        if matches!(way, Way::Softmaxes | Way::MeanOfSoftmaxes) {
            (top, sum, out) = (f64::NEG_INFINITY, 0.0, vec![0.0; WIDTH]);
        }
        let from = (rank + case.ranks - round) % case.ranks;
        let seen = |&(j, key): &(usize, usize)| match way {
            Way::Future => true,
            Way::FutureOfOthers => round > 0 || key <= position,
            Way::NotItself => key < position,
            Way::RowNumbers => j <= row,
            Way::QueryInARow => key <= in_a_row,
            Way::AllInARow => from * ROWS + j <= in_a_row,
            _ => key <= position,
        };
        let keys: Vec<usize> =
            keys.into_iter().enumerate().filter(seen).map(|(_, key)| key).collect();
        let at_once = match each {
            Each::Key => 1,
            Each::Round => ROWS,
        };
        for keys in keys.chunks(at_once) {
            let score = |key: usize| match way {
                Way::RootOfWidth => case.score(position, key) / (WIDTH as f64).sqrt(),
                _ => case.score(position, key),
            };
            let larger = keys.iter().fold(top, |larger, &key| larger.max(score(key)));
            let old = match way {
                Way::InvertedLater if top == f64::NEG_INFINITY => 0.0,
                Way::Inverted | Way::InvertedLater => (larger - top).exp(),
                _ => (top - larger).exp(),
            };
            top = larger;
            let of = |keeps: &[Way]| if keeps.contains(&way) && old > 0.0 { 1.0 } else { old };
            sum *= of(&[Way::NoRescale, Way::OnlyResults]);
            for out in out.iter_mut() {
                *out *= of(&[Way::NoRescale, Way::OnlySums]);
            }
            for &key in keys {
                let new = (score(key) - larger).exp();
                sum += new;
                for (out, value) in out.iter_mut().zip(case.value(key)) {
                    *out += value * new;
                }
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
        let right = |row: usize| result(case, rank, row, Way::Right, Each::Key);
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
    let is_of = |way: Way, each: Each| {
        answers.iter().enumerate().all(|(rank, (rows, _))| {
            let same = |row: usize| {
                let wrong = result(case, rank, row, way, each);
                // Two ways to be wrong by dividing by nothing are one.
                wrong
                    .iter()
                    .zip(&rows[row])
                    .all(|(a, b)| is_near(*a, *b) || (a.is_nan() && b.is_nan()))
            };
            (0..ROWS).all(same)
        })
    };
    let is = |way: Way| is_of(way, Each::Key) || is_of(way, Each::Round);
    let several = |way| case.ranks > 1 && is(way);
    evidence.means_if(
        case.falling,
        "In these blocks later positions come first, and where they came last yours was right. A block's rows may have any order: \
         compare each key's position with the query's.",
    );
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
        is(Way::FutureOfOthers),
        "Of this rank's own block a query sees no later positions, and of the others' it does. Compare positions in every round.",
    );
    evidence.means_if(
        is(Way::QueryInARow) || is(Way::AllInARow),
        "These are right if every rank holds neighbouring positions, and here it does not. The block has its keys' positions with \
         it; your queries have those of `mine`.",
    );
    evidence.means_if(
        is(Way::RootOfWidth),
        "The scores are divided by the root of a key's length. Attention does so, but here `score` is given: nothing is divided.",
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
        several(Way::OwnIsSent),
        "Every round brings the neighbour's own block once more, because each rank sends its own one every time. Send on the block \
         that you received.",
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
    // This one makes infinities, too, and so does an upside-down factor, which fails before.
    evidence.means_if(
        !finite && case.stairs > 0.0,
        "An exponential is infinite: a later round had a larger score, and you kept the first round's maximum, or that of some \
         rounds. Compare with the keys of every round, and rescale what is there.",
    );
    evidence.means_if(
        is(Way::InvertedLater),
        "The factor of what is there is upside down. When a larger score comes, the old sums become smaller: multiply them by \
         e^(old - new), which is at most 1.",
    );
    // A largest score that never changes looks the same: the sentence is true of both.
    evidence.means_if(
        case.level == 0.0 && is(Way::Inverted),
        "All is NaN from the first key on. While the largest score is -infinity, e^(old - new) is 0. But e^(new - old), the same \
         upside down, is infinite, as is e^(score - old), and 0 times infinity is NaN. First the new largest score, then both \
         factors with it.",
    );
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
    let is_close = |(rank, (rows, _)): (usize, &(Vec<Vec<f64>>, u64))| {
        (0..ROWS).all(|row| {
            let right = result(case, rank, row, Way::Right, Each::Key);
            right.iter().zip(&rows[row]).all(|(a, b)| (a - b).abs() <= 1e-2)
        })
    };
    evidence.means_if(
        case.level != 0.0 && answers.iter().enumerate().all(is_close),
        "This is nearly right, as if scores were rounded: near 1,000 an f32 has four digits after the point, and an exponential \
         makes of an error a factor. Keep scores and sums in f64.",
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
