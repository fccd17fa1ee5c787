//! Flags for evaluations and samples during training.

use super::preset::Defaults;
use super::{COUNTS, positive, whole};
use crate::help;
use crate::show::thousands;
use clap::builder::NonEmptyStringValueParser;
use shardlab::data::{Corpus, Vocabulary};
use shardlab::error::BadInput;

/// The default prompt.
const PROMPT: &str = "What is an LLM?";

/// Evaluations and samples.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::OUTPUT)]
pub struct EvalFlags {
    /// Steps from one evaluation to the next [default: the preset's]
    #[arg(long, value_parser = positive(), hide_short_help = true)]
    pub eval_interval: Option<usize>,
    /// Batches per evaluation and split
    #[arg(long, value_parser = whole(COUNTS), hide_short_help = true)]
    pub eval_iters: Option<usize>,
    /// Text that samples continue
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub prompt: Option<String>,
}

impl EvalFlags {
    /// Checks the flags, for a run of `steps` steps. `defaults` replace flags that are not given.
    pub fn resolve(
        &self,
        steps: usize,
        defaults: &Defaults,
        corpus: &Corpus,
    ) -> Result<EvalConfig, BadInput> {
        let batches = self.eval_iters.unwrap_or(defaults.eval_iters);
        let interval = self.eval_interval.unwrap_or(defaults.eval_interval);
        let (prompt, prompt_tokens) = self.prompt(corpus)?;
        Ok(EvalConfig {
            due: Due { interval, last: steps },
            batches,
            prompt,
            prompt_tokens,
        })
    }

    /// The prompt and its tokens: the given prompt, or else the default prompt, or else the text's
    /// beginning.
    fn prompt(&self, corpus: &Corpus) -> Result<(String, Vec<u32>), BadInput> {
        let encode =
            |text: &str| corpus.vocabulary.encode(text).map(|tokens| (text.to_string(), tokens));
        let Some(given) = &self.prompt else {
            let own = encode(PROMPT).or_else(|_| encode(&corpus.first_line));
            return own.map_err(|c| {
                BadInput::new(format!("{}: lost {c:?}", corpus.name), "give --prompt")
            });
        };
        encode(given).map_err(|unknown| {
            let what =
                format!("--prompt has the character {unknown:?}, which is not in {}", corpus.name);
            let (first, more) = characters(&corpus.vocabulary);
            BadInput::new(what, format!("the model knows only these: {first:?}{more}"))
        })
    }
}

/// The steps after which a model is evaluated: every `interval` steps, and the last step.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub interval: usize,
    pub last: usize,
}

impl Due {
    pub const NEVER: Due = Due { interval: usize::MAX, last: 0 };

    /// Whether an evaluation follows this step, counted from 1.
    pub fn after(self, step: usize) -> bool {
        step.is_multiple_of(self.interval) || step == self.last
    }
}

/// The settings of evaluations and samples.
#[derive(Clone, Debug)]
pub struct EvalConfig {
    pub due: Due,
    /// Batches per evaluation and split.
    pub batches: usize,
    pub prompt: String,
    pub prompt_tokens: Vec<u32>,
}

/// A vocabulary's first hundred characters, and how many more there are, in words.
pub fn characters(vocabulary: &Vocabulary) -> (String, String) {
    const MOST: usize = 100;
    let first = vocabulary.characters().chars().take(MOST).collect();
    match vocabulary.size().saturating_sub(MOST) {
        0 => (first, String::new()),
        more => (first, format!(" and {} more", thousands(more as u64))),
    }
}
