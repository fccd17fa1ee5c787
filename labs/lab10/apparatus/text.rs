//! A text to generate, its flags, and its comparison with the same text from elsewhere.

use super::model::Model;
use super::sampling::TokenSampling;
use kit::Checks;
use kit::flags::{COUNTS, is_not_negative, number, whole};
use shardlab::tensor::Precision;

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
        TokenSampling { temperature: self.temperature, seed: self.draw_seed }
    }
}

/// A text to generate.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub model: &'a Model,
    pub how: &'a Generation,
    pub dtype: Precision,
}

/// Checks that a text has the tokens of the first one. `result` is printed if it does.
pub(super) fn same_tokens(
    checks: &mut Checks,
    name: &str,
    first: &[u32],
    found: &[u32],
    result: String,
) {
    let same = first.iter().zip(found).take_while(|(a, b)| a == b).count();
    checks.check(
        first == found,
        &format!("{name}: the same {} tokens", first.len()),
        &if first == found { result } else { format!("{same} only") },
        &format!("{name} generates different tokens from token {} on", same + 1),
    );
}
