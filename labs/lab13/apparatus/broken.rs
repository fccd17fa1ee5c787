//! Mistakes of expert parallelism. Each was in a released program.

use super::routed::ENOUGH;
use shardlab::error::BadInput;
use shardlab::model::Auxiliary;
use shardlab::parallel::strategy::Recompute;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::plan::Experts;
use shardlab::tensor::Params;

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
}

impl Break {
    /// Refuses experts with which it would change nothing, and a training too short to show it.
    pub fn ensure_made(
        self,
        experts: &Experts,
        ranks: usize,
        steps: usize,
    ) -> Result<(), BadInput> {
        let here = experts.number / ranks;
        if self == Break::NoBalance && steps < ENOUGH {
            let what = "routers have not settled after so few steps";
            let help = format!("give --steps {ENOUGH} or more with this --break");
            return Err(BadInput::new(what, help));
        }
        let most = experts.number - here;
        let (what, help) = match self {
            Break::SkipEmpty if experts.chosen > most => (
                format!("with --top {} every rank's experts get tokens", experts.chosen),
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

    /// The strategy in which it shows.
    pub fn strategy(self, strategy: Strategy) -> Strategy {
        match self {
            Break::CountedTwice => Strategy { recompute: Recompute::Full, ..strategy },
            _ => strategy,
        }
    }

    /// The auxiliary losses with which it is made.
    pub fn auxiliary(self, auxiliary: Auxiliary) -> Auxiliary {
        match self {
            Break::NoBalance => Auxiliary { coefficient: 0.0, ..auxiliary },
            _ => auxiliary,
        }
    }

    /// ZeRO's settings with which it is made.
    pub fn zero(self, zero: ZeroConfig) -> ZeroConfig {
        let local_norm = zero.local_norm || self == Break::NormWithoutExperts;
        ZeroConfig { local_norm, ..zero }
    }

    /// Whether routers begin with zeros. All scores are equal then, everyone chooses the first
    /// experts, and the last rank's get nothing.
    pub fn begins_uneven(self) -> bool {
        self == Break::SkipEmpty
    }

    /// Changes averaged gradients, of `ranks` data ranks that share the experts.
    pub fn change_gradients(self, params: &Params, ranks: usize) -> anyhow::Result<()> {
        if self != Break::AverageAll {
            return Ok(());
        }
        let mut gradients = params.whole_gradients()?;
        for spec in params.specs().iter().filter(|spec| spec.whole.expert) {
            gradients[spec.range()].iter_mut().for_each(|g| *g *= ranks as f32);
        }
        Ok(())
    }
}
