//! The check of lab05-cross-entropy: the loss and its gradient against one rank with all logits,
//! then the bytes as the vocabulary grows.

use exercise::{Logits, cross_entropy};
use kit::check::{Evidence, is_near, run};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: the mean loss over all positions", |evidence| {
            loss(evidence, &Case::new(1, 10, 10))
        }),
        ("2 ranks: the same loss on both", |evidence| {
            loss(evidence, &Case::new(2, 10, 5))
        }),
        ("3 ranks, 10 tokens: padding is in no sum", |evidence| {
            loss(evidence, &Case::new(3, 10, 4))
        }),
        ("logits from -1,000 to 1,000", |evidence| {
            loss(evidence, &Case { spread: 1000.0, ..Case::new(2, 10, 5) })
        }),
        ("all logits of a position near 1,000, or near -1,000", |evidence| {
            loss(evidence, &Case { levels: [1000.0, -1000.0], ..Case::new(2, 10, 5) })
        }),
        ("3 ranks, 10 tokens: 10,000 in the padding", |evidence| {
            loss(evidence, &Case { padding: 10_000.0, ..Case::new(3, 10, 4) })
        }),
        ("4 ranks, 5 tokens: one rank has only padding", |evidence| {
            loss(evidence, &Case::new(4, 5, 2))
        }),
        ("4 ranks, 5 tokens, all logits near -1,000", |evidence| {
            loss(evidence, &Case { levels: [-1000.0; 2], ..Case::new(4, 5, 2) })
        }),
        ("1 rank: the gradient", |evidence| gradient(evidence, &Case::new(1, 10, 10))),
        ("3 ranks: each has the gradient of its columns", |evidence| {
            gradient(evidence, &Case::new(3, 10, 4))
        }),
        ("4 ranks: a larger vocabulary costs no more bytes", costs),
    ])
}

/// Positions of every case.
const POSITIONS: usize = 8;

/// The logits of a model on its ranks.
struct Case {
    ranks: usize,
    vocabulary: usize,
    /// Columns of each rank, padding included.
    each: usize,
    /// Is added to the logits of one half of the vocabulary, and subtracted from those of the other
    /// half.
    spread: f64,
    /// Is added to all logits of positions 0, 2, 4 .., and of positions 1, 3, 5 ...
    levels: [f64; 2],
    /// The numbers in the padding.
    padding: f64,
}

impl Case {
    fn new(ranks: usize, vocabulary: usize, each: usize) -> Case {
        Case {
            ranks,
            vocabulary,
            each,
            spread: 0.0,
            levels: [0.0; 2],
            padding: 2.5,
        }
    }

    fn logit(&self, position: usize, token: usize) -> f64 {
        let sign = if (2 * token < self.vocabulary) == position.is_multiple_of(2) {
            1.0
        } else {
            -1.0
        };
        4.0 * (1.0 + 2.3 * position as f64 + 1.7 * token as f64).sin()
            + sign * self.spread
            + self.levels[position % 2]
    }

    /// On all ranks in turn, and not always the largest logit.
    fn target(&self, position: usize) -> usize {
        (7 * position + 1) % self.vocabulary
    }

    /// A rank's columns that belong to a token.
    fn columns(&self, rank: usize) -> usize {
        self.vocabulary.saturating_sub(rank * self.each).min(self.each)
    }

    /// A rank's logits of a position, without padding.
    fn here(&self, rank: usize, position: usize) -> Vec<f64> {
        (0..self.columns(rank))
            .map(|j| self.logit(position, rank * self.each + j))
            .collect()
    }

    /// The same, with padding.
    fn padded(&self, rank: usize, position: usize) -> Vec<f64> {
        let mut row = self.here(rank, position);
        row.resize(self.each, self.padding);
        row
    }

    /// The target's logit, if this rank has it.
    fn chosen(&self, rank: usize, position: usize) -> Option<f64> {
        let target = self.target(position);
        (target / self.each == rank).then(|| self.logit(position, target))
    }

    fn all_chosen(&self, position: usize) -> f64 {
        self.logit(position, self.target(position))
    }

    fn all(&self, position: usize) -> Vec<f64> {
        (0..self.vocabulary).map(|token| self.logit(position, token)).collect()
    }

    /// The columns in which a rank can look up a target that it does not have.
    fn guesses(&self, target: usize) -> [usize; 3] {
        [target % self.each, 0, target.min(self.each - 1)]
    }
}

/// Each rank's result, and the bytes that it sent.
type Answer = (f64, Vec<Vec<f64>>, u64);

fn answers(evidence: &Evidence, case: &Case) -> Result<Vec<Answer>> {
    let targets: Vec<usize> = (0..POSITIONS).map(|i| case.target(i)).collect();
    launch::run(case.ranks, |comm| {
        let rank = comm.rank();
        let rows: Vec<Vec<f64>> = (0..POSITIONS).map(|i| case.padded(rank, i)).collect();
        let logits = Logits {
            rows: &rows,
            first: rank * case.each,
            columns: case.columns(rank),
        };
        let Logits { first, columns, .. } = logits;
        evidence.given(format!(
            "rank {rank} of {}, {columns} tokens from {first} on, targets {targets:?}",
            case.ranks
        ));
        let before = comm.traffic();
        let (loss, gradient) = cross_entropy(&comm, &logits, &targets)?;
        Ok((loss, gradient, (comm.traffic() - before).bytes))
    })
}

fn largest(logits: &[f64]) -> f64 {
    logits.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// ln(sum of e^logit).
fn log_sum(logits: &[f64]) -> f64 {
    let top = largest(logits);
    top + logits.iter().map(|logit| (logit - top).exp()).sum::<f64>().ln()
}

fn mean(of: impl Fn(usize) -> f64) -> f64 {
    (0..POSITIONS).map(of).sum::<f64>() / POSITIONS as f64
}

fn loss(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let answers = answers(evidence, case)?;
    let expected = mean(|i| log_sum(&case.all(i)) - case.all_chosen(i));
    for (rank, (loss, ..)) in answers.iter().enumerate() {
        evidence.near(format!("rank {rank}: loss"), expected, *loss);
    }
    if evidence.agrees() {
        return Ok(());
    }

    let ranks = case.ranks;
    let n = case.ranks as f64;
    let over = |of: &dyn Fn(usize) -> f64| (0..ranks).map(of).sum::<f64>();
    let is =
        |wrong: &dyn Fn(usize) -> f64| (0..ranks).all(|rank| is_near(wrong(rank), answers[rank].0));
    let several = |wrong: &dyn Fn(usize) -> f64| ranks > 1 && is(wrong);
    // ln(sum of e^(logit - the rank's own largest)) over all ranks' logits.
    let mixed = |i: usize| {
        let shifted = |rank: usize| {
            let here = case.here(rank, i);
            here.iter().map(|logit| (logit - largest(&here)).exp()).sum::<f64>()
        };
        over(&shifted).ln()
    };
    let own_loss = |rank: usize, i: usize| log_sum(&case.here(rank, i)) - case.all_chosen(i);
    let owner = |i: usize| case.target(i) / case.each;
    evidence.means_if(
        is(&|_| -expected),
        "The sign is wrong. A loss is positive, because the target's logit is smaller than ln(sum of e^logit).",
    );
    evidence.means_if(
        is(&|_| expected * POSITIONS as f64),
        "This is the sum over all positions. The loss is their mean.",
    );
    evidence.means_if(
        several(&|_| expected * n),
        format!(
            "The loss is {ranks} times too large: the ranks have added up one and the same loss."
        ),
    );
    evidence.means_if(
        several(&|rank| mean(|i| mixed(i) + largest(&case.here(rank, i)) - case.all_chosen(i)))
            || several(&|_| mean(|i| mixed(i) + largest(&case.here(owner(i), i)) - case.all_chosen(i)))
            || several(&|_| mean(|i| mixed(i) + largest(&case.all(i)) - case.all_chosen(i))),
        "Each rank has subtracted its own largest logit. The exponentials then have different scales, and their sum over the \
         ranks means nothing. This is right only as long as all ranks have the same largest logit. Use the largest of all \
         ranks.",
    );
    evidence.means_if(
        several(&|rank| mean(|i| own_loss(rank, i)))
            || several(&|rank| mean(|i| log_sum(&case.here(rank, i)) - case.chosen(rank, i).unwrap_or(0.0))),
        "The sum of the exponentials covers only this rank's own tokens. The softmax needs the sum over the whole vocabulary, so \
         add up the ranks' sums.",
    );
    let own_targets = |rank: usize| {
        let mine: Vec<f64> = (0..POSITIONS)
            .filter(|&i| owner(i) == rank)
            .map(|i| own_loss(rank, i))
            .collect();
        mine.iter().sum::<f64>() / mine.len() as f64
    };
    evidence.means_if(
        several(&|_| over(&own_targets) / n)
            || several(&|_| mean(|i| own_loss(owner(i), i)))
            || several(&|_| over(&|rank| mean(|i| own_loss(rank, i))) / n)
            || several(&|_| over(&|rank| mean(|i| log_sum(&case.here(rank, i)) - case.chosen(rank, i).unwrap_or(0.0))) / n),
        "This combines losses of which each is a loss over one rank's tokens. Such a loss is too small: its softmax leaves out \
         all other tokens. The ranks have to combine the sums, before the logarithm.",
    );
    evidence.means_if(
        several(&|_| expected - n.ln()) || several(&|_| mean(|i| log_sum(&case.all(i)) - n.ln() - case.all_chosen(i) / n)),
        "The ranks' sums of exponentials were averaged, and not added up. That makes the loss too small, by the logarithm of \
         the number of ranks.",
    );
    evidence.means_if(
        is(&|_| mean(|i| log_sum(&case.all(i)))),
        "The target's logit is missing. The loss of a position is ln(sum of e^logit) minus this logit.",
    );
    evidence.means_if(
        several(&|rank| mean(|i| log_sum(&case.all(i)) - case.chosen(rank, i).unwrap_or(0.0))),
        "Each rank has subtracted only the targets that are among its own tokens. The ranks have different losses now. One \
         rank has the target's logit, and every rank needs it.",
    );
    evidence.means_if(
        several(&|_| mean(|i| log_sum(&case.all(i)) - case.all_chosen(i) / n)),
        format!(
            "The target's logit counts only 1/{ranks}: it was averaged over the ranks. Add it up instead: one rank has it, \
             and all other ranks bring 0."
        ),
    );
    let every_rank_chooses = |guess: usize, i: usize| {
        over(&|rank| {
            let elsewhere = || case.padded(rank, i)[case.guesses(case.target(i))[guess]];
            case.chosen(rank, i).unwrap_or_else(elsewhere)
        })
    };
    evidence.means_if(
        (0..3).any(|guess| several(&|_| mean(|i| log_sum(&case.all(i)) - every_rank_chooses(guess, i)))),
        "Each rank has brought a logit for every target, though only one rank has the target among its tokens. All other \
         ranks must bring 0.",
    );
    let padded =
        |i: usize| log_sum(&(0..ranks).flat_map(|rank| case.padded(rank, i)).collect::<Vec<_>>());
    evidence.means_if(
        ranks * case.each > case.vocabulary && is(&|_| mean(|i| padded(i) - case.all_chosen(i))),
        format!(
            "The padding is in the sum, as if it were tokens. Only a rank's first `columns` columns are tokens; e^{} of \
             each column after them makes the loss too large.",
            case.padding
        ),
    );
    let but_the_last = |rank: usize, i: usize| {
        if rank + 1 == ranks {
            case.here(rank, i)
        } else {
            case.padded(rank, i)
        }
    };
    let some_padded =
        |i: usize| log_sum(&(0..ranks).flat_map(|rank| but_the_last(rank, i)).collect::<Vec<_>>());
    evidence.means_if(
        several(&|_| mean(|i| some_padded(i) - case.all_chosen(i))),
        "Padding is in the sum, and that of the last rank is not. Other ranks can have some, too: on each, only the first `columns` \
         columns are tokens.",
    );
    let brought = |of: &dyn Fn(usize, usize) -> f64, i: usize| over(&|rank| of(rank, i));
    // A logit of every rank whose columns are enough for the target's number, as if they began with
    // token 0.
    let without_first = |rank: usize, i: usize| {
        let column = Some(case.target(i)).filter(|&target| target < case.columns(rank));
        column.map_or(0.0, |column| case.here(rank, i)[column])
    };
    evidence.means_if(
        several(&|_| mean(|i| log_sum(&case.all(i)) - brought(&without_first, i))),
        "The sum of the exponentials is right, and the target's logit is wrong. A target is a token of the whole vocabulary. \
         Which column is it on a rank whose tokens begin with `first`?",
    );
    evidence.means_if(
        several(&|_| mean(|i| log_sum(&case.all(i)) - case.all_chosen(i).max(0.0))),
        "The sum of the exponentials is right, and the target's logit is wrong: its largest value over the ranks was taken. If \
         it is negative, the 0 of all other ranks wins.",
    );
    let finite = answers.iter().all(|(loss, ..)| loss.is_finite());
    let level = case.levels[0].min(case.levels[1]);
    let apart = case.levels[0] != case.levels[1];
    // Whether the loss is finite where no position is near 1,000.
    let apart_alone = !finite && apart && {
        let low = Case { levels: [level; 2], ..*case };
        self::answers(evidence, &low)?.iter().all(|(loss, ..)| loss.is_finite())
    };
    evidence.means_if(
        apart_alone,
        "The exponentials of some positions are all 0, and ln 0 is -infinity: the largest logit of all positions was subtracted. \
         A batch has positions with large and with small logits. Each position has its own largest logit.",
    );
    evidence.means_if(
        !finite && level < 0.0 && case.columns(ranks - 1) > 0,
        "The exponentials of a position near -1,000 are all 0, and ln 0 is -infinity: something larger than all its logits was \
         subtracted. Its largest logit is negative. Does your search for it begin at 0?",
    );
    evidence.means_if(
        !finite && level < 0.0,
        "The exponentials of a position near -1,000 are all 0, and ln 0 is -infinity. What does a rank without a token bring as \
         its largest logit? A 0 is larger than all logits of the others.",
    );
    evidence.means_if(
        !finite && case.padding > 1000.0,
        "All exponentials are 0, and ln 0 is -infinity: a number of the padding was subtracted. It has no part in the loss, so it \
         cannot be the largest logit, either.",
    );
    evidence.means_if(
        !finite && case.columns(ranks - 1) == 0,
        "The last rank has no token. The largest of no logits is -infinity and the sum of none is 0: take care that no \
         infinity is subtracted from an infinity.",
    );
    evidence.means_if(
        !finite && case.spread > 0.0,
        "An exponential is infinite, or all of them are 0. Before each exponential, subtract the position's largest logit over \
         all ranks. Then the largest exponential is 1. `Reduce::Max` finds this logit; no sum or mean of maxima does.",
    );
    let differ = answers.iter().any(|(loss, ..)| !is_near(answers[0].0, *loss));
    evidence
        .means_if(differ, "The ranks have different losses. All that they need is the same on every rank, or reduced.");
    evidence.means(
        "The loss is the mean over the positions of ln(sum of e^logit) - (the target's logit). The sum is over the tokens of \
         all ranks.",
    );
    Ok(())
}

fn gradient(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let answers = answers(evidence, case)?;
    let hot = |rank: usize, i: usize, j: usize| {
        if rank * case.each + j == case.target(i) {
            1.0
        } else {
            0.0
        }
    };
    // The softmax with any sum, and without the padding.
    let softmax = |rank: usize, i: usize, j: usize, log_sum: f64| {
        if j < case.columns(rank) {
            (case.padded(rank, i)[j] - log_sum).exp()
        } else {
            0.0
        }
    };
    let right = |rank: usize, i: usize, j: usize| {
        (softmax(rank, i, j, log_sum(&case.all(i))) - hot(rank, i, j)) / POSITIONS as f64
    };
    let entries = || (0..POSITIONS).flat_map(|i| (0..case.each).map(move |j| (i, j)));
    let mut complete = true;
    for (rank, (_, rows, _)) in answers.iter().enumerate() {
        let found: Vec<usize> = rows.iter().map(Vec::len).collect();
        if found != [case.each; POSITIONS] {
            let shape = format!("{POSITIONS} rows of {}", case.each);
            evidence.row(
                false,
                format!("rank {rank}: gradient"),
                shape,
                format!("rows of {found:?}"),
            );
            complete = false;
            continue;
        }
        let (i, j) = entries()
            .find(|&(i, j)| !is_near(right(rank, i, j), rows[i][j]))
            .unwrap_or((0, 0));
        evidence.near(
            format!("rank {rank}: position {i}, column {j}"),
            right(rank, i, j),
            rows[i][j],
        );
    }
    if evidence.agrees() {
        return Ok(());
    }
    evidence.means_if(
        answers.iter().all(|(_, rows, _)| rows.is_empty()),
        "The loss is right. Now compute the gradient: how does the mean loss change if one of the rank's logits grows a little?",
    );
    if !complete {
        evidence.means("The gradient has an entry for each logit that the rank was given. In the padding it is 0.");
        return Ok(());
    }

    let ranks = case.ranks;
    let n = case.ranks as f64;
    let positions = POSITIONS as f64;
    let is = |wrong: &dyn Fn(usize, usize, usize) -> f64| {
        let rank_is =
            |rank: usize| entries().all(|(i, j)| is_near(wrong(rank, i, j), answers[rank].1[i][j]));
        (0..ranks).all(rank_is)
    };
    let several = |wrong: &dyn Fn(usize, usize, usize) -> f64| ranks > 1 && is(wrong);
    evidence.means_if(
        is(&|rank, i, j| -right(rank, i, j)),
        "The sign is wrong: it is the softmax minus 1 at the target.",
    );
    evidence.means_if(
        is(&|rank, i, j| right(rank, i, j) * positions),
        "The loss is a mean over the positions, so each position's gradient is divided by their number.",
    );
    evidence.means_if(
        is(&|rank, i, j| right(rank, i, j) + hot(rank, i, j) / positions),
        "This is the softmax. At the target, subtract 1 from it: without it, training pushes every logit down.",
    );
    evidence.means_if(
        several(&|rank, i, j| (softmax(rank, i, j, log_sum(&case.here(rank, i))) - hot(rank, i, j)) / positions),
        "On each rank the softmax adds up to 1 over its own tokens. Divide by the sum over all ranks, which the loss has \
         already.",
    );
    let guess_hot = |guess: usize| {
        move |rank: usize, i: usize, j: usize| {
            let target = case.target(i);
            let here = target / case.each == rank;
            let column = if here {
                target % case.each
            } else {
                case.guesses(target)[guess]
            };
            (softmax(rank, i, j, log_sum(&case.all(i))) - f64::from(column == j)) / positions
        }
    };
    evidence.means_if(
        (0..3).any(|guess| several(&guess_hot(guess))),
        "Each rank has subtracted 1 in every row. Only the rank that has the target among its tokens does so.",
    );
    // The first row of a rank that has taken a token's number for a column's.
    let taken = (1..ranks)
        .flat_map(|rank| (0..POSITIONS).map(move |i| (rank, i)))
        .find(|&(rank, i)| case.target(i) < case.columns(rank));
    let as_column = |rank: usize, i: usize, j: usize| {
        let taken = j == case.target(i) && j < case.columns(rank);
        (softmax(rank, i, j, log_sum(&case.all(i))) - f64::from(taken)) / positions
    };
    if let Some((rank, i)) = taken.filter(|_| several(&as_column)) {
        let column = case.target(i);
        evidence.means(format!(
            "On rank {rank}, column {column} of position {i} got the target's -1, because the target is token {column}. Column {column} \
             there is token {}: a target is a number in the whole vocabulary, and a column one among the rank's own tokens.",
            rank * case.each + column
        ));
    }
    evidence.means_if(
        (0..ranks).all(|rank| {
            let tokens = || entries().filter(|&(_, j)| j < case.columns(rank));
            tokens().all(|(i, j)| is_near(right(rank, i, j), answers[rank].1[i][j]))
        }),
        "The padding has a gradient. Its logits have no part in the loss, so their gradient is 0.",
    );
    let total = |i: usize, j: usize| (0..ranks).map(|rank| right(rank, i, j)).sum::<f64>();
    evidence.means_if(
        several(&|_, i, j| total(i, j)) || several(&|_, i, j| total(i, j) / n),
        "The ranks have combined their gradients, but these are gradients of different tokens. The backward pass communicates \
         nothing: each rank has what its columns need.",
    );
    evidence.means_if(
        several(&|rank, i, j| right(rank, i, j) * n) || several(&|rank, i, j| right(rank, i, j) / n),
        format!(
            "The gradient is wrong by a factor of {ranks}. The ranks share one loss; none is averaged or added up."
        ),
    );
    evidence.means(
        "The gradient of a logit is (softmax - 1 if it is the target's) / positions, with the sum of all ranks in the softmax.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence) -> Result<()> {
    let small = Case::new(4, 64, 16);
    let large = Case::new(4, 256, 64);
    let bytes = |evidence: &Evidence, case: &Case| -> Result<u64> {
        Ok(answers(evidence, case)?.iter().map(|(.., bytes)| *bytes).max().unwrap_or(0))
    };
    let few = bytes(evidence, &small)?;
    let many = bytes(evidence, &large)?;
    evidence.row(many == few, "bytes that a rank sends, 256 tokens instead of 64", few, many);
    // All-reduces of three numbers per position.
    let best = (2 * (small.ranks - 1) * 3 * POSITIONS * size_of::<f64>() / small.ranks) as u64;
    let gathered = ((large.ranks - 1) * POSITIONS * large.each * size_of::<f64>()) as u64;
    evidence.means_if(
        many >= gathered,
        "Everything is right, but the logits were gathered: each rank receives the whole vocabulary, for every position. A GPT \
         with 50,257 tokens sends 50,257 numbers per position in this way. Three are enough.",
    );
    evidence.means(
        "Everything is right, but the bytes grow with the vocabulary. The ranks have to combine a few numbers per position, \
         however many tokens there are.",
    );
    evidence.figure("bytes that a rank sends", few, best);
    Ok(())
}
