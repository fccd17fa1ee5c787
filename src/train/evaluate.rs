//! Evaluates a model: its loss on fixed batches, and the text that it writes.

use super::Config;
use super::journal::{Evaluation, Journal};
use crate::checkpoint::{self, Description};
use crate::comm::{Comm, Reduce};
use crate::data::{Corpus, Sampler};
use crate::model::{Gpt, Pass, generate};
use crate::show::Screen;
use crate::tensor::random::Stream;
use anyhow::Result;
use std::path::PathBuf;

/// The mean loss over `batches` batches of `text`, which are the same at every evaluation.
///
/// Rank r of N ranks takes batches r, r + N, and so on. Every rank returns the same number. It does not depend on N,
/// because the losses of all batches are collected before they are added up. All ranks make the same number of passes,
/// in which they may gather parameters. Passes beyond the last batch do not count.
pub fn evaluate(gpt: &Gpt, comm: &Comm, sampler: &Sampler, text: &[u32], batches: usize) -> Result<f64> {
    let mut losses = vec![0f64; batches];
    for pass in 0..batches.div_ceil(comm.size()) {
        let i = pass * comm.size() + comm.rank();
        let batch = sampler.evaluation_batch(text, i);
        let loss = f64::from(gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?);
        if let Some(slot) = losses.get_mut(i) {
            *slot = loss;
        }
    }
    comm.all_reduce(&mut losses, Reduce::Sum)?;
    Ok(losses.iter().sum::<f64>() / batches as f64)
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

/// Evaluates a run's model. All ranks compute the loss. Rank 0 prints it, samples text from the model, and saves
/// weights.
pub struct Evaluator<'a> {
    pub config: &'a Config,
    pub eval: &'a EvalConfig,
    pub corpus: &'a Corpus,
    pub screen: &'a Screen,
    pub comm: &'a Comm,
    /// The folder for the best weights so far; `None` saves no weights.
    pub save_to: Option<PathBuf>,
}

impl Evaluator<'_> {
    /// Evaluates after `step` steps. All ranks call it, and need to hold all parameters.
    pub fn run(&self, gpt: &Gpt, step: usize, journal: &mut Journal) -> Result<()> {
        let sampler = self.config.sampler(self.comm.rank());
        let loss = |text| evaluate(gpt, self.comm, &sampler, text, self.eval.batches);
        let (train, val) = (loss(&self.corpus.train)?, loss(&self.corpus.validation)?);
        journal.evaluated(Evaluation { step, train, val })?;
        if self.comm.rank() != 0 {
            return Ok(());
        }
        let mut saved = String::new();
        if let Some(folder) = self.save_to.as_ref().filter(|_| journal.improved()) {
            let description = Description { shape: gpt.shape, vocabulary: self.corpus.vocabulary.characters() };
            saved = format!("   saved {}", checkpoint::save(folder, &gpt.params, &description)?.display());
        }
        let screen = self.screen;
        let line = format!("step={step} train_loss={train:.3} val_loss={val:.3}");
        let text = screen.quote(&self.sample(gpt, step)?, 4);
        // One line of the screen. The sample after the last step may be longer.
        let text = if step == self.eval.due.last { &text } else { text.lines().next().unwrap_or_default() };
        screen.say(format!("{}{}\n{text}", screen.bold(line), screen.dim(saved)));
        Ok(())
    }

    /// The prompt, continued by the model. The sample after the last step keeps its line breaks and ends with a whole
    /// word.
    fn sample(&self, gpt: &Gpt, step: usize) -> Result<String> {
        let last = step == self.eval.due.last;
        let stream = Stream::new(self.config.seed, "samples").branch(step as u64);
        let written = generate(gpt, &self.eval.prompt_tokens, if last { 120 } else { 90 }, 0.8, stream)?;
        let written = self.corpus.vocabulary.decode(&written);
        let text = |continued: &str| format!("{}{continued}", self.eval.prompt);
        Ok(if last { text(whole_words(&written)) } else { text(&written).replace('\n', " / ") })
    }
}

/// The text without its last word, which may be incomplete. A text of one word stays as it is.
fn whole_words(text: &str) -> &str {
    text.rfind(char::is_whitespace).map_or(text, |end| text[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_ends_with_a_whole_word() {
        let cases =
            [(" Who's there?\n\nRA", " Who's there?"), (" Long live ", " Long live"), ("words", "words"), ("", "")];
        for (written, whole) in cases {
            assert_eq!(whole_words(written), whole, "{written:?}");
        }
    }
}
