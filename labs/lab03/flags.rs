//! lab03's flags.

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kit::flags::{MuonFlags, StrategyFlag, positive};
use kit::{Break, EvalFlags, LogFlags, RunFlags, TrainFlags, help};
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;

/// One model, many ranks: data-parallel training of a character-level GPT.
#[derive(Parser)]
#[command(name = "lab03", version)]
#[command(after_long_help = help::examples("lab03", &[
    ("--ranks 4 --steps 100", "four ranks, a hundred steps"),
    ("--preset char --steps 200", "a larger model"),
    ("--link 1ms,1GB/s --trace steps.json", "over a slow link, with a timeline of every rank"),
    ("--break no-average", "ranks that train apart, and the check that notices"),
]))]
pub struct Args {
    /// Number of ranks: threads of this process [default: 2], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Training steps [default: the preset's]
    #[arg(long, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: Option<usize>,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub muon: MuonFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    /// Stop the backward pass while the ranks average a bucket of gradients
    #[arg(long, help_heading = help::STRATEGY)]
    pub no_overlap: bool,
    /// Average by sends and receives, in the rounds of one of lab01's algorithms
    #[arg(long, value_name = "ALGORITHM", value_parser = averaging(), conflicts_with_all = ["no_overlap", "broken", "eval_only"], help_heading = help::STRATEGY)]
    pub all_reduce: Option<Algorithm>,
    #[command(flatten)]
    pub eval: EvalFlags,
    /// Evaluate and sample, but do not train
    #[arg(long, conflicts_with_all = ["metrics", "broken"], hide_short_help = true, help_heading = help::OUTPUT)]
    pub eval_only: bool,
    #[command(flatten)]
    pub log: LogFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

impl Args {
    /// How ranks divide the job: as `--strategy` says, or as replicas.
    ///
    /// # Errors
    /// If the strategy has an axis of another lab.
    pub fn strategy(&self) -> Result<Strategy, BadInput> {
        self.strategy.or_replicas("lab03", self.ranks, 2)
    }
}

/// The algorithms that average: an all-reduce's own, and those that reduce to rank 0 and broadcast
/// from there.
fn averaging() -> impl TypedValueParser<Value = Algorithm> {
    let all = [Collective::AllReduce, Collective::Broadcast];
    let names = all.iter().flat_map(|collective| collective.algorithms());
    let names: Vec<&str> = names.map(|algorithm| algorithm.name()).collect();
    let of_name = |name: String| Algorithm::ALL.iter().copied().find(|a| a.name() == name);
    PossibleValuesParser::new(names).try_map(move |name| of_name(name).ok_or("not an algorithm"))
}
