//! What a model has learned so far: its loss on text that is held still, and what it writes.

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

/// The mean loss over `batches` batches of `text`, the same at every evaluation. Rank r takes batches r, r + N, …; every
/// rank returns the same number, which does not depend on N either: the batches' losses are put side by side before they
/// are added up. All ranks make equally many passes, in which they may gather parameters; what a rank computes beyond the
/// last batch is not counted.
pub fn evaluate(gpt: &Gpt, comm: &Comm, sampler: &Sampler, text: &[u32], batches: usize) -> Result<f64> {
    let mut losses = vec![0f64; batches];
    for turn in 0..batches.div_ceil(comm.size()) {
        let i = turn * comm.size() + comm.rank();
        let batch = sampler.evaluation_batch(text, i);
        let loss = f64::from(gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?);
        if let Some(place) = losses.get_mut(i) {
            *place = loss;
        }
    }
    comm.all_reduce(&mut losses, Reduce::Sum)?;
    Ok(losses.iter().sum::<f64>() / batches as f64)
}

/// After which steps a model is evaluated: every `interval` steps, and after the last.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub interval: usize,
    pub last: usize,
}

impl Due {
    pub const NEVER: Due = Due { interval: usize::MAX, last: 0 };

    /// Whether it is after this step, counted from 1.
    pub fn after(self, step: usize) -> bool {
        step.is_multiple_of(self.interval) || step == self.last
    }
}

/// When a model is evaluated, on how much, and what it goes on writing.
#[derive(Clone, Debug)]
pub struct EvalConfig {
    pub due: Due,
    /// Batches per evaluation and split.
    pub batches: usize,
    pub prompt: String,
    pub prompt_tokens: Vec<u32>,
}

/// Evaluates a run's model: all ranks compute the loss, rank 0 prints, lets the model write, and saves weights.
pub struct Evaluator<'a> {
    pub config: &'a Config,
    pub eval: &'a EvalConfig,
    pub corpus: &'a Corpus,
    pub screen: &'a Screen,
    pub comm: &'a Comm,
    /// The folder for weights that are better than all before; `None`: none are saved.
    pub save_to: Option<PathBuf>,
}

impl Evaluator<'_> {
    /// Evaluates after `step` steps. All ranks call it, and hold all parameters meanwhile.
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
        // One line of the screen: the end has room for more.
        let text = self.written(gpt, step, 90)?.replace('\n', " / ");
        let text = screen.quote(&text, 4).lines().next().unwrap_or_default().to_string();
        screen.say(format!("{}{}\n{text}", screen.bold(line), screen.dim(saved)));
        Ok(())
    }

    /// Rank 0 lets the trained model write more. It holds all parameters meanwhile.
    pub fn last_words(&self, gpt: &Gpt) -> Result<()> {
        if self.comm.rank() == 0 {
            let (steps, text) = (thousands(self.config.steps as u64), self.written(gpt, self.config.steps, 240)?);
            self.screen.say(format!("\n  After {steps} steps the model writes:\n\n{}", self.screen.quote(&text, 4)));
        }
        Ok(())
    }

    /// The prompt, and the `count` characters that the model writes after it.
    fn written(&self, gpt: &Gpt, step: usize, count: usize) -> Result<String> {
        let stream = Stream::new(self.config.seed, "samples").branch(step as u64);
        let written = generate(gpt, &self.eval.prompt_tokens, count, 0.8, stream)?;
        Ok(format!("{}{}", self.eval.prompt, self.corpus.vocabulary.decode(&written)))
    }
}
