//! The flags of lab10.

use super::PRICE_PER_HOUR;
use crate::hub::Source;
use kit::flags::{COUNTS, is_not_negative, number, whole};
use kit::help;
use shardlab::model::TokenSampling;
use shardlab::tensor::Precision;

/// The flags that say what runs, and what is printed of it.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct LibraryFlags {
    /// A model by name, with random weights; a folder or a GGUF file with its weights; or
    /// hub:OWNER/NAME, to download it
    #[arg(long, value_name = "MODEL", default_value = "stories260k")]
    pub model: String,
    #[command(flatten)]
    pub hub: Source,
    /// Tokens per sequence [default: 64, with --finale 32]
    #[arg(long, value_name = "TOKENS", value_parser = whole(COUNTS), help_heading = help::MODEL)]
    pub seq: Option<usize>,
    /// Sequences per step, over all ranks
    #[arg(long, value_name = "SEQUENCES", default_value_t = 8, value_parser = whole(COUNTS), help_heading = help::MODEL)]
    pub batch: usize,
    /// The type of stored weights and gradients
    #[arg(long, value_enum, default_value_t, help_heading = help::STRATEGY)]
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
    #[arg(long, help_heading = help::INSTEAD)]
    pub finale: bool,
    /// The MB that each rank may take
    #[arg(long, value_name = "MB", default_value_t = 22.0, requires = "finale", hide_short_help = true, help_heading = help::INSTEAD)]
    pub memory_limit: f64,
    /// Print what the four stages of a model's life cost, and fine-tune the model if it has weights
    #[arg(long, help_heading = help::INSTEAD)]
    pub life_cycle: bool,
    #[command(flatten)]
    pub generation: Generation,
    /// Dollars per hour of the machine
    #[arg(long, value_name = "DOLLARS", default_value_t = PRICE_PER_HOUR, hide_short_help = true, help_heading = help::INSTEAD)]
    pub price_per_hour: f64,
    /// Rebuild the source's two figures, and exit
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
}

/// The flags of a text: its beginning, its length, the choice of tokens.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A text")]
pub struct Generation {
    /// Continue this text: the model's folder needs its tokenizer
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tokens to generate
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = whole(COUNTS))]
    pub tokens: usize,
    /// Draw tokens from their probabilities; below 1 likely ones become likelier. 0 takes the
    /// likeliest (greedy)
    #[arg(long, default_value_t = 0.0, value_parser = number::<f32>(is_not_negative, "0 or more"))]
    pub temperature: f32,
    /// Draw only from so many of the likeliest tokens; 0: from all
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        hide_short_help = true
    )]
    pub top_k: usize,
    /// Draw only from the likeliest tokens whose probabilities add up to this
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = number::<f32>(is_share, "a share above 0 and at most 1"), hide_short_help = true)]
    pub top_p: f32,
    /// The seed of the draws
    #[arg(long, default_value_t = 1337, hide_short_help = true)]
    pub draw_seed: u64,
    /// Print the five likeliest tokens at each step
    #[arg(long, hide_short_help = true)]
    pub show_next: bool,
    /// Generate the text under every strategy, and compare them
    #[arg(long)]
    pub compare: bool,
    /// Also generate it with candle-transformers' Llama, in one piece, and compare
    #[arg(long, hide_short_help = true)]
    pub reference: bool,
}

impl Generation {
    /// Whether the user asked for a text.
    pub fn asked(&self) -> bool {
        self.prompt.is_some() || self.show_next || self.compare || self.reference
    }

    pub(super) fn sampling(&self) -> TokenSampling {
        TokenSampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.draw_seed,
        }
    }
}

fn is_share(x: f64) -> bool {
    x > 0.0 && x <= 1.0
}

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// A rank reads sharded parameters outside of a step
    Ungathered,
}
