//! The figure of an expert's gradient: what its ranks have of it, and what divides their sum.
//!
//! The ranks are threads that the library's [`Replicas`] group. The figure's script
//! (`book/figures/divisor.js`) shows what they have, and divides nothing.

use super::cases::json_of;
use crate::draw::{Anchor, Coat, Ink, Sketch, Stroke};
use anyhow::{Context, Result};
use serde::Serialize;
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::parallel::Replicas;

const RANKS: usize = 4;

/// How many neighbours can share the experts.
const SHARING: [usize; 3] = [1, 2, 4];

/// A gradient, what its sum was divided by, and how many times as large as the right one it is.
#[derive(Clone, Copy, Serialize)]
struct Divided {
    by: usize,
    is: f32,
    times: f32,
}

/// One number of expert 0's gradient, on all ranks.
#[derive(Serialize)]
struct Case {
    /// Neighbours that share the experts.
    ep: usize,
    /// What each rank's tokens have to say.
    own: Vec<f32>,
    /// On ranks that hold the expert, the sum over the tokens that were sent there; and the sum
    /// over all such ranks.
    sums: Vec<Option<[f32; 2]>>,
    /// By all ranks, and by those that hold the expert, which is the mistake.
    divided: [Divided; 2],
}

impl Case {
    fn of(ep: usize) -> Result<Case> {
        let ranks = launch::run(RANKS, |comm| gradient(&comm, ep))?;
        let divided = ranks.first().context("four ranks")?.2;
        let (own, sums) = ranks.into_iter().map(|(own, sums, _)| (own, sums)).unzip();
        Ok(Case { ep, own, sums, divided })
    }
}

/// One rank's part.
fn gradient(comm: &Comm, ep: usize) -> Result<(f32, Option<[f32; 2]>, [Divided; 2])> {
    let replicas = Replicas::sharing_experts(comm, ep)?;
    let own = comm.rank() as f32 + 1.0;
    let mut sent = [own];
    if let Some(together) = replicas.experts() {
        together.all_reduce(&mut sent, Reduce::Sum)?;
    }
    let same = replicas.of(true);
    let [mut sum, mut mean] = [sent; 2];
    same.all_reduce(&mut sum, Reduce::Sum)?;
    same.all_reduce(&mut mean, Reduce::Mean)?;
    let right = mean[0] * replicas.expert_factor().unwrap_or(1.0);
    let divided = |by: &Comm, is| Divided { by: by.size(), is, times: is / right };
    let holds = replicas.experts().is_none_or(|together| together.rank() == 0);
    Ok((
        own,
        holds.then_some([sent[0], sum[0]]),
        [divided(comm, right), divided(same, mean[0])],
    ))
}

/// Everything that a reader can choose, as JSON with one case per line.
pub(super) fn cases() -> Result<String> {
    let case = |ep| Ok(serde_json::to_value(Case::of(ep)?)?);
    Ok(json_of([("cases", SHARING.into_iter().map(case).collect::<Result<_>>()?)]))
}

/// The first picture, which stays where scripts do not run: two neighbours share the experts, and
/// below it the mistake for all.
pub(super) fn picture() -> Result<String> {
    const LEFT: f64 = 100.0;
    const BOX: (f64, f64) = (86.0, 26.0);
    const ROOM: f64 = 95.0;
    const ROW: f64 = 50.0;
    let case = Case::of(2)?;
    let [right, _] = case.divided;
    let mut sketch = Sketch::default();
    let corner = |rank: usize, row: usize| (LEFT + ROOM * rank as f64, 24.0 + ROW * row as f64);
    let top = |rank, row| (corner(rank, row).0 + BOX.0 / 2.0, corner(rank, row).1);
    let below = |rank, row| (top(rank, row).0, top(rank, row).1 + BOX.1);
    sketch.words((0.0, 14.0), Anchor::Start, format!("ep={}", case.ep));
    let divided = format!("divided by {}", right.by);
    for (row, words) in
        ["own tokens", "sum over ep", "sum over edp", &divided].into_iter().enumerate()
    {
        sketch.words((0.0, corner(0, row).1 + 17.0), Anchor::Start, words);
    }
    let holders: Vec<usize> = (0..RANKS).filter(|&rank| case.sums[rank].is_some()).collect();
    for rank in 0..RANKS {
        let ink = Ink::Rank(rank);
        sketch.words((top(rank, 0).0, 14.0), Anchor::Middle, format!("rank {rank}"));
        sketch.boxed(corner(rank, 0), BOX, ink, Coat::Light, &case.own[rank].to_string());
        let to = holders.iter().rfind(|&&holder| holder <= rank).context("the first holds it")?;
        sketch.line(below(rank, 0), top(*to, 1), ink, Stroke::Thin);
        let Some([sent, sum]) = case.sums[rank] else {
            for row in 1..4 {
                sketch.boxed(corner(rank, row), BOX, Ink::Page, Coat::Dashes, "");
            }
            continue;
        };
        for &holder in &holders {
            sketch.line(below(rank, 1), top(holder, 2), ink, Stroke::Thin);
        }
        sketch.line(below(rank, 2), top(rank, 3), ink, Stroke::Thin);
        for (row, number) in [sent, sum, right.is].into_iter().enumerate() {
            sketch.boxed(corner(rank, row + 1), BOX, ink, Coat::Light, &number.to_string());
        }
    }
    let mut y = corner(0, 4).1 + 4.0;
    sketch.words((0.0, y), Anchor::Start, "divided by the ranks that hold the expert:");
    for ep in SHARING {
        let Case { divided: [_, Divided { by, is, times }], .. } = Case::of(ep)?;
        y += 19.0;
        let words = format!("ep={ep}: by {by}, that is {is}, {times} times the gradient");
        sketch.words((LEFT, y), Anchor::Start, words);
    }
    let title = "Four ranks' parts of an expert's gradient, which two neighbours share: added up, and divided by four";
    Ok(sketch.svg(title, y + 8.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says: the gradient is the mean over all ranks however they share the experts,
    /// and with the mistake it is `ep` times as large.
    #[test]
    fn the_divisor_is_all_ranks() {
        for ep in SHARING {
            let Case { own, sums, divided: [right, wrong], .. } = Case::of(ep).unwrap();
            assert_eq!(own, [1.0, 2.0, 3.0, 4.0]);
            assert_eq!((right.by, right.is, right.times), (RANKS, 2.5, 1.0));
            assert_eq!((wrong.by, wrong.times), (RANKS / ep, ep as f32));
            assert_eq!(sums.iter().flatten().count(), wrong.by);
        }
    }
}
