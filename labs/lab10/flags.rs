//! lab10's flags: the model, the strategy, and what runs instead of the comparison.

use crate::apparatus::{Candidate, Generation, make_ds_config};
use clap::Parser;
use kit::flags::{COUNTS, StrategyFlag, one_of, whole};
use kit::{RunFlags, help};
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;

/// One model under every strategy, with a library's settings.
#[derive(Parser)]
#[command(name = "lab10", version)]
#[command(mut_arg("strategy", |flag| flag.conflicts_with_all(["finale", "broken"])))]
#[command(after_long_help = help::examples("lab10", &[
    ("--tp 2 --pp 2", "your own strategy for four ranks"),
    ("--emit-deepspeed --tp 2 --zero 1", "DeepSpeed's settings for it"),
    ("--finale", "a model that only some strategies fit"),
]))]
pub struct Args {
    /// Ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    #[command(flatten)]
    pub library: LibraryFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    #[command(flatten)]
    pub run: RunFlags,
}

/// The flags that say what runs, and what is printed of it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct LibraryFlags {
    /// A model by name, with random weights; a folder or a GGUF file with its weights; or
    /// hub:OWNER/NAME, to download it to HF_HOME/hub
    #[arg(long, value_name = "MODEL", default_value = "stories260k")]
    pub model: String,
    /// Tokens per sequence [default: 64, with --finale 32]
    #[arg(long, value_name = "TOKENS", value_parser = whole(COUNTS), help_heading = help::MODEL)]
    pub seq: Option<usize>,
    /// Sequences per step, over all ranks
    #[arg(long, value_name = "SEQUENCES", default_value_t = 8, value_parser = whole(COUNTS), help_heading = help::MODEL)]
    pub batch: usize,
    /// The type of stored weights and gradients
    #[arg(long, value_parser = one_of::<Precision>(), default_value = Precision::default().name(), help_heading = help::STRATEGY)]
    pub dtype: Precision,
    /// Tensor ranks, for --emit-deepspeed or your own strategy
    #[arg(long, value_name = "RANKS", help_heading = help::STRATEGY)]
    pub tp: Option<usize>,
    /// Pipeline stages
    #[arg(long, value_name = "STAGES", help_heading = help::STRATEGY)]
    pub pp: Option<usize>,
    /// ZeRO's stage
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(0..=3), help_heading = help::STRATEGY)]
    pub zero: Option<u8>,
    /// Micro-batches per replica and step, if there are pipeline stages
    #[arg(long, default_value_t = 2, value_parser = whole(COUNTS), help_heading = help::STRATEGY)]
    pub micro_batches: usize,
    /// Draw throughput, by strategy and by batch size, and how far each computation is from this
    /// machine's peaks
    #[arg(long, help_heading = help::INSTEAD)]
    pub roofline: bool,
    /// Print the DeepSpeed configuration of the job, and exit
    #[arg(long, help_heading = help::INSTEAD)]
    pub emit_deepspeed: bool,
    /// Run a larger model on 8 ranks with little memory each: which strategies fit?
    #[arg(long, conflicts_with_all = ["tp", "pp", "zero", "roofline", "broken"], help_heading = help::INSTEAD)]
    pub finale: bool,
    /// The MB that each rank may take
    #[arg(long, value_name = "MB", default_value_t = 20.0, requires = "finale", hide_short_help = true, help_heading = help::INSTEAD)]
    pub memory_limit: f64,
    /// Print what the four stages of a model's life cost, and exit
    #[arg(long, help_heading = help::INSTEAD)]
    pub life_cycle: bool,
    #[command(flatten)]
    pub generation: Generation,
    /// Rebuild the source's figures from its own counts, and exit
    #[arg(long, help_heading = help::INSTEAD)]
    pub source: bool,
    /// Make a mistake on purpose, and see how it ends
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

impl LibraryFlags {
    /// Tokens per sequence. Shorter ones have fewer activations, so that the state decides which
    /// strategy fits.
    pub fn seq(&self) -> usize {
        self.seq.unwrap_or(if self.finale { 32 } else { 64 })
    }

    /// Refuses what `--break local-as-global` would not obey: data ranks share a batch, and
    /// nothing is trained.
    pub fn ensure_data_ranks_alone(&self) -> Result<(), BadInput> {
        let given = [
            ("--tp", self.tp.is_some()),
            ("--pp", self.pp.is_some()),
            ("--zero", self.zero.is_some()),
            ("--roofline", self.roofline),
            ("--emit-deepspeed", self.emit_deepspeed),
            ("--prompt and its like", self.generation.asked()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(BadInput::new(
                format!("{flag} changes nothing under --break local-as-global"),
                "leave it out: data ranks share the batch, and no strategy matters to the mistake",
            )),
        }
    }

    /// The strategy that is given, or that of --tp, --pp and --zero on so many ranks, if one of
    /// them is.
    ///
    /// # Errors
    /// If these do not go together, or do not divide the ranks.
    pub fn own_strategy(
        &self,
        given: Option<Strategy>,
        ranks: usize,
    ) -> Result<Option<Candidate>, BadInput> {
        let LibraryFlags { tp, pp, zero, .. } = *self;
        let mut candidate = if let Some(given) = given {
            let parts = [given.tensor, given.pipeline];
            let m = given.micro_batches.unwrap_or(self.micro_batches);
            Candidate::new(given.ranks(), parts, given.zero, m)
        } else if tp.is_none() && pp.is_none() && zero.is_none() && self.broken.is_none() {
            return Ok(None);
        } else {
            let ungathered = self.broken == Some(Break::Ungathered);
            let zero = if ungathered { 3 } else { zero.unwrap_or(0) };
            let parts = [tp.unwrap_or(1), pp.unwrap_or(1)];
            Candidate::new(ranks, parts, Stage::ALL[usize::from(zero)], self.micro_batches)
        };
        candidate.config = make_ds_config(candidate.config)?;
        candidate.config.mesh(candidate.ranks)?;
        Ok(Some(candidate))
    }
}

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// A rank reads sharded parameters outside of a step
    Ungathered,
    /// Each rank walks its own sequences as if they were the global batch
    LocalAsGlobal,
}
