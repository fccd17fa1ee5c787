//! Expert parallelism: the ranks of a group hold different experts of every block, and tokens
//! travel to theirs (Lepikhin et al., arXiv 2006.16668; Rajbhandari et al., arXiv 2201.05596).
//!
//! Each of e ranks has tokens of its own, as data ranks have, and E/e of the experts. Its router
//! chooses among all of them. Copies of tokens go to the ranks of their experts in an all-to-all,
//! results come back in a second one, and the backward pass takes both ways once more. Nobody knows
//! in advance how many copies go where, so ranks first tell each other.
//!
//! A block's shared expert needs no other rank's tokens, so it computes while copies travel.
//! Megatron-LM's `--moe-shared-expert-overlap` cuts it in two, and its second matrix computes while
//! results come back. Here only the first of the four exchanges is hidden. In the backward pass an
//! operation returns its gradient to the tape before the next one runs. So an exchange begins and
//! ends in one operation, and nothing computes meanwhile.
//!
//! Cost: a token whose k experts are chosen evenly leaves its rank k (1 - 1/e) times, and so do the
//! results. In all four exchanges a rank waits for the one with most copies.

use super::partition::even;
use super::wire::{Started, all_to_all_v, start_all_to_all_v};
use crate::comm::{Comm, Reduce};
use crate::model::{
    Auxiliary, Balance, Build, Counts, Dispatched, Dispatching, Layer, Mixture, Pass,
    TokenDispatcher,
};
use crate::tensor::{Activation, Precision, TensorOp, consume, rows};
use candle_core::{Error, Result, Shape, bail};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// One rank's part of every block's experts, and the way to the others.
///
/// Two ranks hold two of four experts each, and compute what one rank computes:
///
/// ```
/// use shardlab::launch;
/// use shardlab::model::{Gpt, Input, Pass, Plain};
/// use shardlab::parallel::ExpertParallel;
/// use shardlab::plan::{Experts, Family, ModelShape};
///
/// let (vocabulary, block, layers, heads, embd, family) = (8, 4, 1, 2, 8, Family::Gpt);
/// let experts = Some(Experts { count: 4, top_k: 2, ffn: 16, ..Experts::default() });
/// let shape = ModelShape { vocabulary, block, layers, heads, embd, family, experts };
/// let run = |ranks| {
///     launch::run(ranks, |comm| {
///         let gpt = Gpt::build(&shape, &ExpertParallel::new(comm).around(Box::new(Plain)))?;
///         gpt.params.allocate(1337);
///         let input = Input::Tokens { ids: &[0, 1, 2, 3], length: 4 };
///         let loss = gpt.forward(input, &[1, 2, 3, 4], &Pass::evaluate())?;
///         Ok((gpt.params.numel(), loss.scalar()?))
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
    overlap: bool,
}

impl ExpertParallel {
    /// For the ranks of `group`, which divide the experts evenly, in rank order.
    pub fn new(group: Comm) -> ExpertParallel {
        ExpertParallel { group, overlap: true }
    }

    /// Whether the shared expert computes while copies travel, as it does at first. Otherwise
    /// copies leave when it is done. Results have the same bits.
    pub fn overlap(self, overlap: bool) -> ExpertParallel {
        ExpertParallel { overlap, ..self }
    }

    /// This rank's experts, out of `all`.
    pub fn share(&self, all: usize) -> Range<usize> {
        even(&self.group, all)
    }

    /// A builder of models whose experts these ranks share. `build` makes all layers, of experts
    /// those that are on this rank.
    pub fn around(self, build: Box<dyn Build>) -> SharedExperts {
        SharedExperts { experts: Arc::new(self), build }
    }
}

/// The builder of [`ExpertParallel::around`].
pub struct SharedExperts {
    experts: Arc<ExpertParallel>,
    build: Box<dyn Build>,
}

impl Build for SharedExperts {
    fn around(&self) -> &dyn Build {
        &*self.build
    }

    fn experts(&self, all: usize) -> Range<usize> {
        self.experts.share(all)
    }

    fn mixture(&self, mixture: Mixture) -> Box<dyn Layer> {
        self.build
            .mixture(Mixture { dispatcher: Some(self.experts.clone()), ..mixture })
    }
}

/// Watches the routers of one pass, whose choices all ranks of `group` count together.
pub fn balance_over(group: &Comm, auxiliary: Auxiliary) -> Arc<Balance> {
    let group = group.labelled("load");
    let add_up =
        move |counts: &mut [u64]| group.all_reduce(counts, Reduce::Sum).map_err(Error::wrap);
    Balance::over_ranks(auxiliary, Box::new(add_up))
}

impl TokenDispatcher for ExpertParallel {
    fn dispatch(&self, copies: Activation, counts: &[usize], pass: &Pass) -> Result<Dispatching> {
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
        let mut there = Exchange {
            group: self.group.clone(),
            labels: ["dispatch", "dispatch, backward"],
            sends: counts.sent.clone(),
            expects: counts.arriving(),
            precision: pass.precision,
            started: Mutex::default(),
        };
        if self.overlap {
            there.started = Mutex::new(Some(there.start(&copies)?));
        }
        Ok(Box::new(move || Ok(Dispatched { rows: consume(copies, there)?, counts })))
    }

    fn combine(&self, results: Activation, counts: &Counts, pass: &Pass) -> Result<Activation> {
        let back = Exchange {
            group: self.group.clone(),
            labels: ["combine", "combine, backward"],
            sends: counts.arriving(),
            expects: counts.sent.clone(),
            precision: pass.precision,
            started: Mutex::default(),
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
    /// The forward pass's exchange, if it has been started: then that pass only waits for it.
    started: Mutex<Option<Started>>,
}

impl Exchange {
    /// Starts the exchange of `x`.
    fn start(&self, x: &Activation) -> Result<Started> {
        let (_, width) = rows(x.dims())?;
        let [sends, expects] = [&self.sends, &self.expects].map(|rows| numbers(rows, width));
        let group = self.group.labelled(self.labels[0]);
        start_all_to_all_v(&group, self.precision, x.numbers(), &sends, &expects)
            .map_err(Error::wrap)
    }

    fn rows(
        &self,
        label: &'static str,
        x: &[f32],
        width: usize,
        [sends, expects]: [&[usize]; 2],
    ) -> Result<Vec<f32>> {
        let [sends, expects] = [sends, expects].map(|rows| numbers(rows, width));
        let group = self.group.labelled(label);
        all_to_all_v(&group, self.precision, x, &sends, &expects).map_err(Error::wrap)
    }
}

/// The numbers in so many rows for each rank.
fn numbers(rows: &[usize], width: usize) -> Vec<usize> {
    rows.iter().map(|rows| rows * width).collect()
}

impl TensorOp for Exchange {
    const NAME: &'static str = "expert parallel";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (_, width) = rows(dims)?;
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        let y = match started {
            Some(wait) => wait().map_err(Error::wrap)?,
            None => self.rows(self.labels[0], x, width, [&self.sends, &self.expects])?,
        };
        Ok((y, (self.expects.iter().sum::<usize>(), width).into()))
    }

    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        let (_, width) = rows(dims)?;
        self.rows(self.labels[1], dy, width, [&self.expects, &self.sends])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch;
    use crate::model::Linear;
    use crate::plan::Experts;
    use crate::tensor::{Init, Params};

    /// A shared expert that notes the calls and bytes that its rank has counted so far.
    struct Watching(Comm, Arc<Mutex<[u64; 2]>>);

    impl Layer for Watching {
        fn forward(&self, x: &Activation, _: &Pass) -> Result<Activation> {
            *self.1.lock().unwrap() = counted(&self.0);
            Ok(x.clone())
        }
    }

    fn counted(group: &Comm) -> [u64; 2] {
        [group.traffic().calls, group.traffic().bytes]
    }

    /// A start counts as a call, and its bytes count when the rank waits. So while the shared
    /// expert computes, the calls show that the dispatch has started, and the bytes that no rank
    /// has waited for it.
    #[test]
    fn the_shared_expert_computes_between_start_and_wait() {
        // The experts' counts; then what ranks compare, and 3 tokens of 2 numbers, twice.
        let (told, compared, rows) = (8, 32, 24);
        let all = [5, told + 2 * (compared + rows)];
        for (overlap, seen) in [(true, [3, told + compared]), (false, [1, told])] {
            let found = launch::run(2, |comm| {
                let params = Params::new();
                let matrix = |name: &str| params.declare(name, &[2, 2], Init::Normal(1.0));
                let watched = Arc::default();
                let mixture = Mixture {
                    router: matrix("router")?,
                    bias: None,
                    experts: vec![Box::new(Linear { weight: matrix("expert")?, bias: None })],
                    shared: Some(Box::new(Watching(comm.clone(), Arc::clone(&watched)))),
                    dispatcher: Some(Arc::new(ExpertParallel::new(comm.clone()).overlap(overlap))),
                    rules: Experts { count: 2, top_k: 2, ..Experts::default() },
                    name: "experts".into(),
                };
                params.allocate(1);
                let x = Activation::new(vec![1.0; 6], (1, 3, 2))?;
                mixture.forward(&x, &Pass::evaluate())?;
                let seen = *watched.lock().unwrap();
                Ok((seen, counted(&comm)))
            });
            assert_eq!(found.unwrap(), [(seen, all); 2], "overlap: {overlap}");
        }
    }
}
