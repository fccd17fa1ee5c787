//! A run's evaluations: its losses on fixed batches, the text that it writes, and its best weights.

use super::Symptoms;
use super::lab_checks::Outcome;
use crate::flags::EvalConfig;
use crate::record::progress;
use crate::show::Screen;
use crate::{Evaluation, Journal};
use anyhow::Result;
use shardlab::checkpoint::{self, Description};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::model::{Gpt, generate};
use shardlab::tensor::random::Stream;
use shardlab::train::{Config, Training, evaluate};
use std::path::{Path, PathBuf};

/// Characters of a validation split below which its loss depends on which they are.
const FEW: usize = 1000;

/// Evaluates a run's model. All ranks compute the loss. Rank 0 prints it, samples text from the
/// model, and saves weights.
pub struct Evaluator<'a> {
    pub config: &'a Config,
    pub eval: &'a EvalConfig,
    pub corpus: &'a Corpus,
    pub screen: &'a Screen,
    pub comm: &'a Comm,
    /// The folder for the best weights so far; `None` saves no weights.
    pub save_to: Option<PathBuf>,
    /// The folder of the weights that the run began with.
    pub init_from: Option<&'a Path>,
}

impl Evaluator<'_> {
    /// Takes the steps of a training, and evaluates it before the first and when it is due.
    /// `journal` writes them down, and `symptoms` sees what the ranks draw. All ranks call it.
    ///
    /// # Errors
    /// If a step fails or its loss is not finite, or a file cannot be written.
    pub fn train(
        &self,
        training: &mut Training,
        journal: &mut Journal,
        symptoms: &mut Symptoms,
    ) -> Result<()> {
        // Every rank holds all parameters meanwhile.
        training.whole(|gpt| self.run(gpt, 0, journal))?;
        symptoms.look(self.comm, training.zero.params(), 0)?;
        for step in 0..self.config.steps {
            let before = self.comm.total_traffic();
            let taken = training.step_with(&self.corpus.train, step, symptoms)?;
            let sent = self.comm.total_traffic() - before;
            let step = step + 1;
            journal.step(step, &taken, sent)?;
            journal.gathered(step, &training.zero.events());
            if self.eval.due.after(step) {
                training.whole(|gpt| self.run(gpt, step, journal))?;
            }
            symptoms.look(self.comm, training.zero.params(), step)?;
        }
        Ok(())
    }

    /// Evaluates after `step` steps. All ranks call it, and need to hold all parameters.
    pub fn run(&self, gpt: &Gpt, step: usize, journal: &mut Journal) -> Result<()> {
        progress(self.comm, || format!("evaluates after step {step}"));
        let sampler = self.config.sampler(self.comm.rank());
        let loss = |text| evaluate(gpt, self.comm, &sampler, text, self.eval.batches);
        let train = loss(&self.corpus.train)?;
        let val = loss(&self.corpus.validation)?;
        journal.evaluated(Evaluation { step, train, val })?;
        if self.comm.rank() != 0 {
            return Ok(());
        }
        let mut saved = String::new();
        if let Some(folder) = self.save_to.as_ref().filter(|to| self.saves(to, journal)) {
            let description = Description {
                shape: gpt.shape,
                vocabulary: self.corpus.vocabulary.characters(),
            };
            saved = format!(
                "   saved {}",
                checkpoint::save(folder, &gpt.params, &description)?.display()
            );
        }
        let screen = self.screen;
        let line = format!("step={step} train_loss={train:.3} val_loss={val:.3}");
        let text = screen.quote(&self.sample(gpt, step)?, 4);
        // One line of the screen. After the last step it may be three.
        let most = if step == self.eval.due.last { 3 } else { 1 };
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let text = lines.take(most).collect::<Vec<_>>().join("\n");
        // What was saved has its own line where there is no room for it.
        let end = if line.len() + saved.len() > screen.width {
            "\n"
        } else {
            ""
        };
        screen.say(format!("{}{end}{}\n{text}", screen.bold(&line), screen.dim(saved)));
        let chars = self.corpus.validation.len();
        if self.corpus.own && chars < FEW && journal.evaluations.len() == 1 {
            let name = &self.corpus.name;
            let note = format!("validation is {chars} characters of {name}: its loss says little");
            screen.say(screen.row("note", &note));
        }
        Ok(())
    }

    /// Whether the model is saved: it is the best so far, or the last of a run on the reader's own
    /// text, whose validation may be too short to say which is best.
    fn saves(&self, to: &Path, journal: &Journal) -> bool {
        let [first, .., last] = journal.evaluations[..] else {
            return false;
        };
        let outcome = Outcome::of(first, last, self.corpus.own);
        let is_last = last.step == self.eval.due.last;
        let never = is_last && journal.evaluations.iter().all(|e| e.val >= first.val);
        // What the run began with is better, and stays.
        let same = |from: &Path| from.canonicalize().ok() == to.canonicalize().ok();
        let kept = self.init_from.is_some_and(same);
        journal.improved()
            || never && !kept && matches!(outcome, Outcome::ByHeart | Outcome::TooFewSteps)
    }

    /// The prompt, continued by the model. The sample after the last step keeps its line breaks and
    /// ends with a whole word.
    fn sample(&self, gpt: &Gpt, step: usize) -> Result<String> {
        let last = step == self.eval.due.last;
        let stream = Stream::new(self.config.seed, "samples").branch(step as u64);
        let written =
            generate(gpt, &self.eval.prompt_tokens, if last { 120 } else { 90 }, 0.8, stream)?;
        let written = self.corpus.vocabulary.decode(&written);
        let text = |continued: &str| format!("{}{continued}", self.eval.prompt);
        Ok(if last {
            text(whole_words(&written))
        } else {
            text(&written).replace('\n', " / ")
        })
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
        let cases = [
            (" Who's there?\n\nRA", " Who's there?"),
            (" Long live ", " Long live"),
            ("words", "words"),
            ("", ""),
        ];
        for (written, whole) in cases {
            assert_eq!(whole_words(written), whole, "{written:?}");
        }
    }
}
