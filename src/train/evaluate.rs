//! Evaluates a model: its loss on fixed batches, and the text that it writes.

use super::Config;
use super::journal::{Evaluation, Journal};
use crate::checkpoint::{self, Description};
use crate::comm::{Comm, Reduce};
use crate::data::{Corpus, Sampler};
use crate::model::{Gpt, Pass, generate};
use crate::show::{Screen, thousands};
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

/// Evaluates a run's model: all ranks compute the loss; rank 0 prints it, samples text from the model, and saves
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
        // One line of the screen. The sample at the run's end is longer.
        let text = self.written(gpt, step, 90)?.replace('\n', " / ");
        let text = screen.quote(&text, 4).lines().next().unwrap_or_default().to_string();
        screen.say(format!("{}{}\n{text}", screen.bold(line), screen.dim(saved)));
        Ok(())
    }

    /// Prints a longer sample of the trained model, on rank 0. Rank 0 needs to hold all parameters.
    pub fn last_words(&self, gpt: &Gpt) -> Result<()> {
        if self.comm.rank() == 0 {
            let (steps, text) = (thousands(self.config.steps as u64), self.written(gpt, self.config.steps, 240)?);
            self.screen.say(format!("\n  After {steps} steps the model writes:\n\n{}", self.screen.quote(&text, 4)));
        }
        Ok(())
    }

    /// The prompt, continued by the model with `count` characters.
    fn written(&self, gpt: &Gpt, step: usize, count: usize) -> Result<String> {
        let stream = Stream::new(self.config.seed, "samples").branch(step as u64);
        let written = generate(gpt, &self.eval.prompt_tokens, count, 0.8, stream)?;
        Ok(format!("{}{}", self.eval.prompt, self.corpus.vocabulary.decode(&written)))
    }
}
