//! Mistakes of expert parallelism. Each was in a released program.

use super::routed::ENOUGH;
use kit::parity::{set_gradients, stored_gradients};
use shardlab::error::BadInput;
use shardlab::model::{Auxiliary, Balance, Load};
use shardlab::optim::Fragment;
use shardlab::parallel::strategy::Recompute;
use shardlab::parallel::zero::Mistake;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::plan::{Experts, Part};
use shardlab::train::{Config, Training};
use std::sync::Arc;

/// Micro-batches of a step, each of which can move biases.
const MICRO_BATCHES: usize = 2;

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// Experts' gradients are divided by the ranks that hold them, not by all
    AverageAll,
    /// The norm of all gradients leaves out other ranks' experts
    NormWithoutExperts,
    /// The ranks' parts of a router's gradient are never added up
    RouterParts,
    /// Blocks that are computed again count their loads again
    CountedTwice,
    /// A rank whose experts got nothing leaves out the exchange
    SkipEmpty,
    /// Each rank pads its buffers to its own largest load
    UnequalBuffers,
    /// Results go back in the order of the experts, not of the ranks that wait for them
    WrongUnpermute,
    /// No auxiliary loss keeps the choices even
    NoBalance,
    /// Results are weighted by scores with the bias that selects
    BiasedWeights,
    /// Each micro-batch moves the biases, not each step
    BiasPerMicroBatch,
    /// A checkpoint has one rank's experts, and every rank resumes with them
    OneRanksExperts,
}

impl Break {
    /// Refuses settings with which it would change nothing, and a training too short to show it.
    pub fn ensure_made(
        self,
        experts: &Experts,
        auxiliary: &Auxiliary,
        ranks: usize,
        steps: usize,
    ) -> Result<(), BadInput> {
        let here = experts.count / ranks;
        let most = experts.count - here;
        let (what, help) = match self {
            Break::NoBalance if experts.selection.bias => (
                "with --bias no loss keeps the choices even".to_string(),
                "leave --bias out with this --break".to_string(),
            ),
            Break::NoBalance if auxiliary.coefficient == 0.0 => (
                "with --aux-loss 0 no loss keeps the choices even".to_string(),
                "leave --aux-loss out with this --break".to_string(),
            ),
            Break::NoBalance | Break::BiasPerMicroBatch if experts.top_k == experts.count => (
                "all experts of a token have the same load".to_string(),
                format!("give --top {} or less with this --break", experts.count - 1),
            ),
            Break::NoBalance if steps < ENOUGH => (
                "routers have not settled after so few steps".to_string(),
                format!("give --steps {ENOUGH} or more with this --break"),
            ),
            Break::SkipEmpty if experts.top_k > most => (
                format!("with --top {} every rank's experts get tokens", experts.top_k),
                format!("give --top {most} or less with this --break"),
            ),
            Break::WrongUnpermute if here == 1 => (
                "with one expert on each rank both orders are the same".to_string(),
                format!("give --experts {} or more with this --break", 2 * ranks),
            ),
            _ => return Ok(()),
        };
        Err(BadInput::new(what, help))
    }

    /// The experts with which it is made.
    pub fn experts(self, experts: Experts) -> Experts {
        let mut selection = experts.selection;
        selection.bias |= matches!(self, Break::BiasedWeights | Break::BiasPerMicroBatch);
        Experts { selection, ..experts }
    }

    /// Changes the settings to those in which it shows.
    pub fn change(self, config: &mut Config, strategy: &mut Strategy) {
        match self {
            Break::BiasPerMicroBatch => config.grad_accum = config.grad_accum.max(MICRO_BATCHES),
            Break::CountedTwice => strategy.recompute = Recompute::Full,
            Break::NoBalance => config.auxiliary.coefficient = 0.0,
            _ => (),
        }
    }

    /// ZeRO's settings with which it is made.
    pub fn zero(self, zero: ZeroConfig) -> ZeroConfig {
        let local_norm = (self == Break::NormWithoutExperts).then_some(Mistake::LocalNorm);
        ZeroConfig { mistake: local_norm.or(zero.mistake), ..zero }
    }

    /// Changes averaged gradients of the data ranks that share the experts, or biases, by the loads
    /// of each micro-batch but the last, whose step is the optimizer's.
    pub fn change_step<'a>(
        self,
        training: &mut Training,
        balances: impl Iterator<Item = &'a Arc<Balance>>,
    ) -> anyhow::Result<()> {
        match self {
            Break::AverageAll => {
                let params = &training.stages.chunks[0].params;
                let mut gradients = stored_gradients(params);
                for spec in params.specs().iter().filter(|spec| spec.whole.part.is_expert()) {
                    let ranks = training.strategy.expert as f32;
                    gradients[spec.range()].iter_mut().for_each(|g| *g *= ranks);
                }
                set_gradients(params, &gradients);
            }
            Break::BiasPerMicroBatch => {
                let balances: Vec<_> = balances.collect();
                let earlier = &balances[..balances.len().saturating_sub(1)];
                let loads: Vec<_> = earlier.iter().flat_map(|balance| balance.loads()).collect();
                let steps = training.zero.steps();
                training.zero.restore(steps, |Fragment { spec, .. }, elements, state| {
                    if spec.whole.part != Part::SelectionBias {
                        return;
                    }
                    let of_it = |(layer, _): &&(String, Load)| {
                        // blocks.0.experts, and blocks.0.router.bias
                        let block = layer.trim_end_matches("experts");
                        spec.name.starts_with(block)
                    };
                    for (_, load) in loads.iter().filter(of_it) {
                        move_biases(state.values, &load.parts, elements.start);
                    }
                })?;
            }
            _ => (),
        }
        Ok(())
    }
}

/// Moves biases against loads, as the optimizer does after a step: those from expert `first` on.
fn move_biases(biases: &mut [f32], loads: &[f64], first: usize) {
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    for (bias, load) in biases.iter_mut().zip(&loads[first..]) {
        if (load - mean).abs() > 1e-9 {
            *bias += 1e-3_f32.copysign((mean - load) as f32);
        }
    }
}
