//! Expert parallelism: the ranks of a group hold different experts of every block, and tokens
//! travel to theirs (Lepikhin et al., arXiv 2006.16668; Rajbhandari et al., arXiv 2201.05596).
//!
//! Each of e ranks has tokens of its own, as data ranks have, and E/e of the experts. Its router
//! chooses among all of them. Copies of tokens go to the ranks of their experts in an all-to-all,
//! results come back in a second one, and the backward pass takes both ways once more. Nobody knows
//! in advance how many copies go where, so ranks first tell each other.
//!
//! Cost: a token whose k experts are chosen evenly leaves its rank k (1 - 1/e) times, and so do the
//! results. In all four exchanges a rank waits for the one with most copies.

use super::partition::even;
use super::wire::all_to_all_v;
use crate::comm::{Comm, Reduce};
use crate::model::{Arrived, Auxiliary, Balance, Counts, Deliver, Pass};
use crate::tensor::{Precision, Tensor, TensorOp, consume, rows};
use candle_core::{Error, Result, Shape, bail};
use std::ops::Range;
use std::sync::Arc;

/// One rank's part of every block's experts, and the way to the others.
///
/// Two ranks hold two of four experts each, and compute what one rank computes:
///
/// ```
/// use shardlab::comm::Comm;
/// use shardlab::launch;
/// use shardlab::model::{Gpt, Input, Pass};
/// use shardlab::parallel::{ExpertParallel, TensorParallel};
/// use shardlab::plan::{Experts, Family, ModelShape};
///
/// let experts = Experts { number: 4, chosen: 2, normalized: true, ..Experts::default() };
/// let family = Family::GptExperts { ffn: 16, experts };
/// let shape = ModelShape { vocabulary: 8, block: 4, layers: 1, heads: 2, embd: 8, family };
/// let run = |ranks| {
///     launch::run(ranks, |comm| {
///         let tensor = TensorParallel::new(Comm::alone());
///         let gpt = Gpt::build(&shape, &tensor.with_experts(ExpertParallel::new(comm)))?;
///         gpt.params.allocate(1337);
///         let input = Input::Tokens { ids: &[0, 1, 2, 3], length: 4 };
///         let loss = gpt.forward(input, &[1, 2, 3, 4], &Pass::evaluate())?;
///         Ok((gpt.params.numel(), loss.to_scalar::<f32>()?))
///     })
/// };
/// let (alone, two) = (run(1)?, run(2)?);
/// assert!(two[0].0 < alone[0].0);
/// assert!((two[0].1 - alone[0].1).abs() < 1e-6);
/// # anyhow::Ok(())
/// ```
#[derive(Clone)]
pub struct ExpertParallel {
    group: Comm,
}

impl ExpertParallel {
    /// For the ranks of `group`, which divide the experts evenly, in rank order.
    pub fn new(group: Comm) -> ExpertParallel {
        ExpertParallel { group }
    }

    /// This rank's experts, out of `all`.
    pub fn share(&self, all: usize) -> Range<usize> {
        even(&self.group, all)
    }
}

/// Watches the routers of one pass, whose choices all ranks of `group` count together.
pub fn balance_over(group: &Comm, auxiliary: Auxiliary) -> Arc<Balance> {
    let group = group.labelled("load");
    let add_up =
        move |counts: &mut [u64]| group.all_reduce(counts, Reduce::Sum).map_err(Error::wrap);
    Balance::over_ranks(auxiliary, Box::new(add_up))
}

impl Deliver for ExpertParallel {
    fn dispatch(&self, copies: Tensor, counts: &[usize], pass: &Pass) -> Result<Arrived> {
        let ranks = self.group.size();
        if !counts.len().is_multiple_of(ranks) || counts.is_empty() {
            bail!(
                "{} experts cannot be divided evenly among {ranks} expert ranks\n\
                 help: choose a number of experts that the ranks divide",
                counts.len()
            );
        }
        let here = counts.len() / ranks;
        let mine: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
        let mut all = vec![0; counts.len()];
        self.group.labelled("counts").all_to_all(&mine, &mut all).map_err(Error::wrap)?;
        let counts = Counts {
            sent: counts.chunks_exact(here).map(|of_rank| of_rank.iter().sum()).collect(),
            arrived: all
                .chunks_exact(here)
                .map(|from| from.iter().map(|&count| count as usize).collect())
                .collect(),
        };
        let there = Exchange {
            group: self.group.clone(),
            labels: ["dispatch", "dispatch, backward"],
            sends: counts.sent.clone(),
            expects: counts.arriving(),
            precision: pass.precision,
        };
        Ok(Arrived { rows: consume(copies, there)?, counts })
    }

    fn combine(&self, results: Tensor, counts: &Counts, pass: &Pass) -> Result<Tensor> {
        let back = Exchange {
            group: self.group.clone(),
            labels: ["combine", "combine, backward"],
            sends: counts.arriving(),
            expects: counts.sent.clone(),
            precision: pass.precision,
        };
        consume(results, back)
    }
}

/// Rows that change ranks; their gradients go back the same way.
struct Exchange {
    group: Comm,
    /// What the calls of the two passes are named.
    labels: [&'static str; 2],
    /// Rows to each rank.
    sends: Vec<usize>,
    /// Rows from each rank.
    expects: Vec<usize>,
    precision: Precision,
}

impl Exchange {
    fn rows(
        &self,
        label: &'static str,
        x: &[f32],
        width: usize,
        [sends, expects]: [&[usize]; 2],
    ) -> Result<Vec<f32>> {
        let numbers = |rows: &[usize]| rows.iter().map(|rows| rows * width).collect::<Vec<_>>();
        let group = self.group.labelled(label);
        all_to_all_v(&group, self.precision, x, &numbers(sends), &numbers(expects))
            .map_err(Error::wrap)
    }
}

impl TensorOp for Exchange {
    const NAME: &'static str = "expert parallel";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (_, width) = rows(dims)?;
        let y = self.rows(self.labels[0], x, width, [&self.sends, &self.expects])?;
        Ok((y, (self.expects.iter().sum::<usize>(), width).into()))
    }

    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, width) = rows(dims)?;
        self.rows(self.labels[1], dy, width, [&self.expects, &self.sends])
    }
}
