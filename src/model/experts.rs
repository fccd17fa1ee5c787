//! A mixture of experts in place of an MLP: for each token a router chooses a few of the block's
//! MLPs, and weights what they compute (Shazeer et al., arXiv 1701.06538).
//!
//! The router is a small matrix. A softmax makes scores of its products, the experts with the
//! highest scores compute, and their results are added up, each times its score. (Other rules are
//! in `router.rs`.) So the router learns only from experts that it has chosen. Auxiliary losses
//! keep it from choosing the same few for ever: `balance.rs`. A shared expert computes for every
//! token.
//!
//! Cost: a token is copied once for each of its experts, and a step computes as many products as
//! experts were chosen, however many there are. Where ranks share the experts, copies travel, while
//! the shared expert computes: see `parallel/experts.rs`.

use super::layers::{Layer, Pass};
use super::router;
use crate::plan::Experts;
use crate::tensor::{self, Activation, Param, Precision, Route};
use candle_core::Result;
use std::sync::Arc;

/// A block's experts and their router.
pub struct Mixture {
    /// `[experts, width]`
    pub router: Param,
    /// `[E]`, added where scores select.
    pub bias: Option<Param>,
    /// Those that are on this rank.
    pub experts: Vec<Box<dyn Layer>>,
    /// Computes for every token.
    pub shared: Option<Box<dyn Layer>>,
    /// The way to the experts of other ranks; `None`: all are here.
    pub dispatcher: Option<Arc<dyn TokenDispatcher>>,
    pub rules: Experts,
    /// The layer's name, which decides its dropout masks and names its load.
    pub name: String,
}

/// Brings copies of tokens to the ranks of their experts, and results back.
pub trait TokenDispatcher: Send + Sync {
    /// Sends `copies` [copies, D], which are in the order of all experts, to the ranks that
    /// hold these. `counts` says how many each expert gets. May return before copies arrive, so
    /// that what needs none of them can compute meanwhile.
    ///
    /// # Errors
    /// If a rank has ended, or makes another call.
    fn dispatch(&self, copies: Activation, counts: &[usize], pass: &Pass) -> Result<Dispatching>;

    /// Sends the `results` of what has arrived, in that order, back to where it came from: [copies,
    /// width], in the order of the copies.
    ///
    /// # Errors
    /// As [`TokenDispatcher::dispatch`].
    fn combine(&self, results: Activation, arrived: &Counts, pass: &Pass) -> Result<Activation>;
}

/// Waits for what others have sent in a dispatch.
pub type Dispatching = Box<dyn FnOnce() -> Result<Dispatched>>;

/// Copies for this rank's experts, in the order of the ranks that sent them, and then of experts.
pub struct Dispatched {
    /// [copies, D]
    pub rows: Activation,
    pub counts: Counts,
}

/// Copies that ranks have sent each other in one dispatch.
pub struct Counts {
    /// From this rank to each.
    pub sent: Vec<usize>,
    /// From each rank, for each expert that is here.
    pub arrived: Vec<Vec<usize>>,
}

impl Counts {
    /// From each rank to this one.
    pub fn arriving(&self) -> Vec<usize> {
        self.arrived.iter().map(|from| from.iter().sum()).collect()
    }

    /// For each expert that is here, the places of its copies among those that have arrived.
    pub fn places(&self) -> Vec<Vec<u32>> {
        places(&self.arrived)
    }
}

impl Layer for Mixture {
    fn forward(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let (chosen, log_scores) = self.route(x, pass)?;
        self.mix(x, &chosen, &router::weights(&log_scores, &self.rules)?, pass)
    }
}

/// `pass` inside of an expert. Masks of dropout belong to positions, which experts do not know: it
/// follows when all is in its old order again.
fn undropped(pass: &Pass) -> Pass {
    Pass { dropout: None, ..pass.clone() }
}

impl Mixture {
    /// The experts of each token of `x` [.., D], those with the highest scores first, and the
    /// logarithms of their scores: [.., k].
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn route(&self, x: &Activation, pass: &Pass) -> Result<(Vec<u32>, Activation)> {
        // In f32, whatever the type of other products: a small difference chooses another expert.
        let mut logits = tensor::linear(x, &self.router, Precision::F32)?;
        let bias = self.bias.as_ref().map(Param::value).transpose()?;
        let bias = bias.as_deref();
        let mut ids = router::select(&logits, &self.rules, bias);
        if let Some(balance) = &pass.balance {
            ids = balance.replayed(&self.name, &ids, self.rules.top_k)?.unwrap_or(ids);
            logits = balance.watch(&self.name, &logits, &ids, self.rules.selection.scores)?;
        }
        if let Some(bias) = &self.bias {
            logits = router::count_load(&logits, &ids, &self.rules, bias)?;
        }
        let log_scores = router::log_scores_of(&logits, &ids, &self.rules)?;
        Ok((ids, log_scores))
    }

    /// What the experts that each token of `x` [.., D] has `chosen` make of it, times their
    /// `weights` [.., k], added up.
    ///
    /// # Errors
    /// If a rank has ended, or makes another call.
    pub fn mix(
        &self,
        x: &Activation,
        chosen: &[u32],
        weights: &Activation,
        pass: &Pass,
    ) -> Result<Activation> {
        let kept = self.kept(chosen, weights, pass)?;
        let Dispatch { counts, tokens, places } = Dispatch::new(chosen, &kept, &self.rules);
        let (results, shared) = match &self.dispatcher {
            None => {
                let routes = routes(&counts, &tokens);
                (self.compute(x.clone(), routes, pass)?, self.shared(x, pass)?)
            }
            Some(dispatcher) => {
                let copies = tensor::picked(x, tokens)?;
                let arriving = dispatcher.dispatch(copies, &counts, pass)?;
                let shared = self.shared(x, pass)?;
                let Dispatched { rows, counts } = arriving()?;
                let back = |places: Vec<u32>| Route { from: places.clone(), to: places };
                let routes = counts.places().into_iter().map(back).collect();
                let results = self.compute(rows, routes, pass)?;
                (dispatcher.combine(results, &counts, pass)?, shared)
            }
        };
        let mut y = tensor::weighted_sums(&results, weights, places)?;
        if let Some(shared) = shared {
            y = tensor::sum(&shared, y)?;
        }
        pass.drop(y, &self.name)
    }

    /// Whether each choice is within its expert's capacity, which counts in training alone.
    fn kept(&self, chosen: &[u32], weights: &Activation, pass: &Pass) -> Result<Vec<bool>> {
        let Some(capacity) = self.rules.selection.capacity.filter(|_| pass.train) else {
            return Ok(vec![true; chosen.len()]);
        };
        let most = capacity.most(chosen.len() / self.rules.top_k, &self.rules);
        let drops = capacity.drops;
        let kept = router::within(most, drops, chosen, weights.numbers());
        if let Some(balance) = &pass.balance {
            balance.note_kept(&self.name, &kept);
        }
        Ok(kept)
    }

    /// What the shared expert makes of `x`, if there is one.
    fn shared(&self, x: &Activation, pass: &Pass) -> Result<Option<Activation>> {
        let Some(shared) = &self.shared else {
            return Ok(None);
        };
        shared.forward(x, &undropped(pass)).map(Some)
    }

    /// What this rank's experts make of the rows of `x` that take these routes.
    fn compute(&self, x: Activation, routes: Vec<Route>, pass: &Pass) -> Result<Activation> {
        let undropped = undropped(pass);
        tensor::by_parts(x, routes, |expert, rows| self.experts[expert].forward(rows, &undropped))
    }
}

/// The routes of tokens to experts that are all here: so many to each, in the order of `tokens`.
fn routes(counts: &[usize], tokens: &[u32]) -> Vec<Route> {
    let mut to = 0..tokens.len() as u32;
    let mut from = tokens;
    let route = |&count: &usize| {
        let (mine, others) = from.split_at(count);
        from = others;
        Route { from: mine.to_vec(), to: to.by_ref().take(count).collect() }
    };
    counts.iter().map(route).collect()
}

/// For each expert the places of its copies, where `counts` from each rank follow each other.
fn places(counts: &[Vec<usize>]) -> Vec<Vec<u32>> {
    let mut places = vec![Vec::new(); counts.first().map_or(0, Vec::len)];
    let mut start = 0;
    for of_rank in counts {
        for (of_expert, &count) in places.iter_mut().zip(of_rank) {
            of_expert.extend(start..start + count as u32);
            start += count as u32;
        }
    }
    places
}

/// Copies of tokens in the order of their experts.
struct Dispatch {
    /// Copies that each expert gets.
    counts: Vec<usize>,
    /// For each copy its token.
    tokens: Vec<u32>,
    /// For each choice, of which each token has as many, the place of its copy, unless it was
    /// dropped.
    places: Vec<Option<u32>>,
}

impl Dispatch {
    /// Of `chosen` experts, each token's, one token after the other, those that are `kept`.
    fn new(chosen: &[u32], kept: &[bool], rules: &Experts) -> Dispatch {
        let mut choices: Vec<u32> = (0..chosen.len() as u32).collect();
        choices.retain(|&choice| kept[choice as usize]);
        let mut counts = vec![0; rules.count];
        choices.iter().for_each(|&choice| counts[chosen[choice as usize] as usize] += 1);
        choices.sort_by_key(|&choice| chosen[choice as usize]); // stable: tokens stay in order
        let tokens = choices.iter().map(|choice| choice / rules.top_k as u32).collect();
        let mut places = vec![None; chosen.len()];
        (0..)
            .zip(&choices)
            .for_each(|(place, &choice)| places[choice as usize] = Some(place));
        Dispatch { counts, tokens, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Batch;
    use crate::model::{Auxiliary, Balance, Gpt, Input};
    use crate::plan::{Capacity, Drops, Family, Groups, ModelShape, Scores, Selection};
    use std::sync::Mutex;

    /// A small GPT with experts, each 8 wide.
    fn shape(layers: usize, experts: Experts) -> ModelShape {
        ModelShape {
            vocabulary: 5,
            block: 4,
            layers,
            heads: 1,
            embd: 4,
            family: Family::Gpt,
            experts: Some(Experts { ffn: 8, ..experts }),
        }
    }

    /// A model of two experts, of which the router's ties always choose the first: the other one
    /// has no rows, and its gradient, which ranks wait for, is complete all the same.
    #[test]
    fn an_expert_may_have_no_tokens() {
        let shape = shape(1, Experts { count: 2, top_k: 1, ..Experts::default() });
        let gpt = Gpt::new(&shape).unwrap();
        gpt.params.allocate(3);
        let specs = gpt.params.specs();
        let of = |part: &str| specs.iter().find(|spec| spec.name.contains(part)).unwrap();
        gpt.params.values_mut()[of("router").range()].fill(0.0);
        let complete = Arc::new(Mutex::new(Vec::new()));
        let heard = complete.clone();
        let _listener = gpt.params.listen(Box::new(move |_, spec| {
            heard.lock().unwrap().push(spec.index);
            Ok(())
        }));
        let input = Input::Tokens { ids: &[0, 1, 2, 3], length: 4 };
        let loss = gpt.forward(input, &[1, 2, 3, 4], &Pass::training(None)).unwrap();
        assert!(loss.scalar().unwrap().is_finite());
        loss.backward(vec![1.0], None).unwrap();
        let gradients = gpt.params.gradients();
        let largest = |part: &str| {
            gradients[of(part).range()].iter().fold(0f32, |largest, g| largest.max(g.abs()))
        };
        assert!(largest("experts.0.fc") > 0.0 && largest("router") > 0.0);
        assert_eq!((largest("experts.1.fc"), largest("experts.1.out")), (0.0, 0.0));
        assert!(complete.lock().unwrap().contains(&of("experts.1.fc").index));
    }

    /// If all layers are dense, which trainings refuse, the model is a GPT.
    #[test]
    fn a_dense_first_block_is_that_of_a_gpt() {
        let experts = Experts { count: 2, top_k: 1, dense_layers: 2, ..Experts::default() };
        let mixture = shape(2, experts);
        let loss = |shape: ModelShape| {
            let gpt = Gpt::new(&shape).unwrap();
            gpt.params.allocate(3);
            let input = Input::Tokens { ids: &[0, 1, 2, 3], length: 4 };
            let loss = gpt.forward(input, &[1, 2, 3, 4], &Pass::training(None)).unwrap();
            loss.scalar().unwrap()
        };
        assert_eq!(loss(mixture), loss(ModelShape { experts: None, ..mixture }));
    }

    /// Whatever a mixture has, candle's graph has the pass as one node above one variable, and a
    /// second backward pass is refused.
    #[test]
    fn candle_sees_one_node() {
        let selection = Selection {
            scores: Scores::Sigmoid,
            bias: true,
            groups: Some(Groups { count: 2, top_k: 1 }),
            factor: 2.5,
            capacity: Some(Capacity { factor: 1.0, drops: Drops::Probs }),
        };
        let experts = Experts {
            count: 4,
            top_k: 2,
            normalized: true,
            shared: 1,
            selection,
            ..Experts::default()
        };
        let gpt = Gpt::new(&shape(2, experts)).unwrap();
        gpt.params.allocate(3);
        let auxiliary = Auxiliary { coefficient: 0.01, z: 0.001, ..Auxiliary::default() };
        let pass = Pass {
            balance: Some(Balance::new(auxiliary)),
            ..Pass::training(None)
        };
        let batch = Batch {
            inputs: vec![0, 1, 2, 3],
            targets: vec![1, 2, 3, 4],
            length: 4,
            sequences: [0].into(),
            starts: vec![0],
            documents: Default::default(),
        };
        let loss = gpt.loss(&batch, &pass).unwrap();
        assert_eq!(loss.sorted_nodes().len(), 2);
        loss.backward().unwrap();
        assert!(gpt.params.gradients().iter().any(|&gradient| gradient != 0.0));
        let error = loss.backward().map(drop).unwrap_err().to_string();
        assert!(error.contains("serves one backward pass"), "{error}");
    }

    #[test]
    fn copies_of_several_ranks_are_found() {
        let counts = [vec![2, 0, 1], vec![0, 3, 1]];
        assert_eq!(places(&counts), [vec![0, 1], vec![3, 4, 5], vec![2, 6]]);
        assert!(places(&[]).is_empty());
    }

    #[test]
    fn copies_are_sorted_by_expert_and_then_by_token() {
        let rules = Experts { count: 4, top_k: 2, ..Experts::default() };
        let dispatch = Dispatch::new(&[3, 0, 0, 1, 3, 1], &[true; 6], &rules);
        assert_eq!(dispatch.counts, [2, 2, 0, 2]);
        assert_eq!(dispatch.tokens, [0, 1, 1, 2, 0, 2]);
        assert_eq!(dispatch.places, [4, 0, 1, 2, 5, 3].map(Some));
        let kept = [true, false, true, true, true, true];
        let dispatch = Dispatch::new(&[3, 0, 0, 1, 3, 1], &kept, &rules);
        assert_eq!(dispatch.counts, [1, 2, 0, 2]);
        assert_eq!(dispatch.tokens, [1, 1, 2, 0, 2]);
        assert_eq!(dispatch.places, [Some(3), None, Some(0), Some(1), Some(4), Some(2)]);
    }
}
