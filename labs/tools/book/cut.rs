//! The figure of an MLP on the ranks that share it: which rank holds which numbers, step by step,
//! and where the ranks must add.
//!
//! The figure's script (`book/figures/cut.js`) shows it, and multiplies nothing.

use super::cases::json_of;
use crate::draw::{Anchor, Coat, Ink, Sketch};
use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use itertools::iproduct;
use serde_json::{Value, json};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::parallel::partition::Sharded;

/// Columns of A, and rows of C.
const INNER: usize = 4;

/// Chosen so that summands of X·A have other signs than their sum: max(0, x) then tells whether it
/// came before the sum.
const X: [[f32; 4]; 2] = [[1., 2., 0., 1.], [3., 0., 1., 2.]];
const A: [[f32; INNER]; 4] =
    [[1., 1., 0., -2.], [0., -1., 1., 3.], [2., -1., 0., 0.], [-2., 1., -1., -1.]];
const C: [[f32; 2]; INNER] = [[1., 1.], [0., 2.], [1., 1.], [0., 2.]];

/// How A is cut, and, if by rows, what comes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Columns,
    SumFirst,
    MaxFirst,
}

const WAYS: [(&str, Way); 3] = [
    ("by columns", Way::Columns),
    ("by rows, sum before max", Way::SumFirst),
    ("by rows, max before sum", Way::MaxFirst),
];

/// The numbers of a matrix that a rank holds, at their places in the whole.
type Held = Vec<Vec<Option<i64>>>;

/// A matrix on the way from X to Y.
struct Stage {
    name: &'static str,
    /// A sign, or what leads to the next matrix: "max" or "add".
    next: &'static str,
    /// Whether ranks hold different numbers at the same place, which they must add.
    summands: bool,
}

/// The matrices in their order.
fn stages(way: Way) -> Vec<Stage> {
    let mut all = vec![("X", "·", false), ("A", "=", false)];
    match way {
        Way::Columns => all.push(("X·A", "max", false)),
        Way::SumFirst => all.extend([("summands", "add", true), ("X·A", "max", false)]),
        Way::MaxFirst => all.extend([("summands", "max", true), ("max", "add", true)]),
    }
    all.extend([("H", "·", false), ("C", "=", false), ("H·C", "add", true), ("Y", "", false)]);
    all.into_iter()
        .map(|(name, next, summands)| Stage { name, next, summands })
        .collect()
}

/// `part`, whose first row and column have these numbers in a matrix of this shape.
fn held(part: &Tensor, first: (usize, usize), shape: (usize, usize)) -> Result<Held> {
    let mut all = vec![vec![None; shape.1]; shape.0];
    for (i, row) in part.to_vec2::<f32>()?.into_iter().enumerate() {
        for (j, number) in row.into_iter().enumerate() {
            all[first.0 + i][first.1 + j] = Some(number as i64);
        }
    }
    Ok(all)
}

/// The ranks' tensors, added up.
fn sum(part: &Tensor, group: &Comm) -> Result<Tensor> {
    let mut numbers = part.flatten_all()?.to_vec1::<f32>()?;
    group.all_reduce(&mut numbers, Reduce::Sum)?;
    Ok(Tensor::from_vec(numbers, part.shape(), part.device())?)
}

/// Y = max(0, X·A)·C on one of the ranks that share A and C: what it holds of each matrix.
fn mlp(way: Way, group: &Comm) -> Result<Vec<Held>> {
    let x = Tensor::new(&X, &Device::Cpu)?;
    let a = Tensor::new(&A, &Device::Cpu)?;
    let c = Tensor::new(&C, &Device::Cpu)?;
    let mine = Sharded { numel: INNER, ranks: group.size() }.range(group.rank());
    let columns = |whole: &Tensor| whole.narrow(1, mine.start, mine.len())?.contiguous();
    let rows = |whole: &Tensor| whole.narrow(0, mine.start, mine.len())?.contiguous();
    let wide = (2, INNER);
    let mut matrices = Vec::new();
    let hidden = match way {
        Way::Columns => {
            let a = columns(&a)?;
            let xa = x.matmul(&a)?;
            let hidden = xa.relu()?;
            matrices.push(held(&x, (0, 0), wide)?);
            matrices.push(held(&a, (0, mine.start), (4, INNER))?);
            matrices.push(held(&xa, (0, mine.start), wide)?);
            matrices.push(held(&hidden, (0, mine.start), wide)?);
            hidden
        }
        Way::SumFirst | Way::MaxFirst => {
            let x = columns(&x)?;
            let a = rows(&a)?;
            let summand = x.matmul(&a)?;
            let (next, hidden) = if way == Way::SumFirst {
                let xa = sum(&summand, group)?;
                let hidden = xa.relu()?;
                (xa, hidden)
            } else {
                let early = summand.relu()?;
                let hidden = sum(&early, group)?;
                (early, hidden)
            };
            matrices.push(held(&x, (0, mine.start), wide)?);
            matrices.push(held(&a, (mine.start, 0), (4, INNER))?);
            for whole in [&summand, &next, &hidden] {
                matrices.push(held(whole, (0, 0), wide)?);
            }
            columns(&hidden)?
        }
    };
    let c = rows(&c)?;
    let summand = hidden.matmul(&c)?;
    let y = sum(&summand, group)?;
    matrices.push(held(&c, (mine.start, 0), (INNER, 2))?);
    matrices.push(held(&summand, (0, 0), (2, 2))?);
    matrices.push(held(&y, (0, 0), (2, 2))?);
    Ok(matrices)
}

/// Every way on one, two and four ranks: threads that really add.
pub(super) fn cases() -> Result<String> {
    let case = |((words, way), ranks)| {
        let found = launch::run(ranks, |group| mlp(way, &group))?;
        let stage = |(at, Stage { name, next, summands }): (usize, Stage)| {
            let held: Vec<&Held> = found.iter().map(|matrices| &matrices[at]).collect();
            json!({ "name": name, "next": next, "summands": summands, "held": held })
        };
        let stages: Vec<Value> = stages(way).into_iter().enumerate().map(stage).collect();
        Ok(json!({ "way": words, "ranks": ranks, "stages": stages }))
    };
    let cases = iproduct!(WAYS, [1, 2, 4]).map(case).collect::<Result<_>>()?;
    Ok(json_of([("cases", cases)]))
}

/// The first picture, which stays where scripts do not run: two ranks, A by columns.
pub(super) fn picture() -> Result<String> {
    const CELL: f64 = 16.0;
    const GAP: f64 = 20.0;
    /// Between two summands, for the sign.
    const SUM: f64 = 14.0;
    const TOP: f64 = 52.0;
    const HIGH: f64 = 4.0 * CELL;
    let ranks = launch::run(2, |group| mlp(Way::Columns, &group))?;
    let mut sketch = Sketch::default();
    let words = ["rank 0", "rank 1", "every rank"];
    for (i, (ink, words)) in
        [Ink::Rank(0), Ink::Rank(1), Ink::Same].into_iter().zip(words).enumerate()
    {
        let x = 80.0 * i as f64 + 1.0;
        sketch.boxed((x, 1.0), (14.0, 14.0), ink, Coat::Light, "");
        sketch.words((x + 20.0, 13.0), Anchor::Start, words);
    }
    let mut x = 1.0;
    for (at, stage) in stages(Way::Columns).into_iter().enumerate() {
        let held: Vec<&Held> = ranks.iter().map(|matrices| &matrices[at]).collect();
        let first = held.first().context("two ranks")?;
        let wide = CELL * first[0].len() as f64;
        sketch.words((x + wide / 2.0, TOP - 12.0), Anchor::Middle, stage.name);
        // What both ranks hold is drawn once, but each rank's summand has its own place.
        let blocks = if stage.summands { held.len() } else { 1 };
        let high = CELL * (blocks * first.len()) as f64 + SUM * (blocks - 1) as f64;
        let mut y = TOP + (HIGH + SUM - high) / 2.0;
        for block in 0..blocks {
            for (i, row) in first.iter().enumerate() {
                for j in 0..row.len() {
                    let there = |rank: &usize| held[*rank][i][j].is_some();
                    let owners: Vec<usize> = (0..held.len()).filter(there).collect();
                    let (rank, ink) = match owners[..] {
                        _ if stage.summands => (block, Ink::Rank(block)),
                        [rank] => (rank, Ink::Rank(rank)),
                        _ => (0, Ink::Same),
                    };
                    let number = held[rank][i][j].context("some rank holds every number")?;
                    let corner = (x + CELL * j as f64, y + CELL * i as f64);
                    let number = number.to_string().replace('-', "−");
                    sketch.boxed(corner, (CELL, CELL), ink, Coat::Light, &number);
                }
            }
            y += CELL * first.len() as f64 + SUM;
            if block + 1 < blocks {
                sketch.words((x + wide / 2.0, y - 2.5), Anchor::Middle, "+");
            }
        }
        x += wide;
        let sign = match stage.next {
            "max" | "add" => "→",
            sign => sign,
        };
        sketch.words((x + GAP / 2.0, TOP + (HIGH + SUM) / 2.0 + 4.0), Anchor::Middle, sign);
        x += GAP;
    }
    let title = "An MLP on two ranks: A by columns, C by rows, and one all-reduce that adds their summands of Y";
    Ok(sketch.svg(title, TOP + HIGH + SUM + 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(way: Way, ranks: usize) -> (Held, u64) {
        let of_rank = |group: Comm| Ok((mlp(way, &group)?.pop(), group.traffic().calls));
        let (y, calls) = launch::run(ranks, of_rank).unwrap().pop().unwrap();
        (y.unwrap(), calls)
    }

    /// What the figure says: both right ways give what one rank computes, columns with one
    /// all-reduce and rows with two. In the other order every number is wrong.
    #[test]
    fn columns_need_one_sum_and_rows_two() {
        let (one, _) = last(Way::Columns, 1);
        assert_eq!(one, [[Some(1), Some(7)], [Some(1), Some(9)]]);
        for ranks in [2, 4] {
            assert_eq!(last(Way::Columns, ranks), (one.clone(), 1));
            assert_eq!(last(Way::SumFirst, ranks), (one.clone(), 2));
            let (wrong, calls) = last(Way::MaxFirst, ranks);
            let differ = wrong.iter().flatten().zip(one.iter().flatten()).all(|(a, b)| a != b);
            assert!(differ && calls == 2, "{wrong:?}");
        }
    }
}
