//! Flags for the training text, and for the size of a step.

use super::{COUNTS, SIZES, one_of, whole};
use crate::help;
use shardlab::data::{Corpus, Sampling};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::train::Config;
use std::path::PathBuf;

/// The text, and its division among ranks and micro-steps.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct DataFlags {
    /// Text to train on [default: the real Shakespeare where it is found, else a play that comes
    /// with the lab]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// How ranks get different data
    #[arg(long, value_parser = one_of::<Sampling>(), default_value = Sampling::Partition.name(), hide_short_help = true)]
    pub sampler: Sampling,
    /// Sequences per rank and micro-step
    #[arg(long, value_parser = whole(COUNTS))]
    pub batch: Option<usize>,
    /// Sequences per step, over all ranks and micro-steps; in place of --batch
    #[arg(long, conflicts_with = "batch", value_parser = whole(COUNTS), hide_short_help = true)]
    pub global_batch: Option<usize>,
    /// Micro-steps whose gradients add up to one step
    #[arg(long, default_value_t = 1, value_parser = whole(SIZES), hide_short_help = true)]
    pub grad_accum: usize,
}

impl DataFlags {
    /// The text to train on. What the reader should know of it is said first.
    ///
    /// # Errors
    /// As [`Corpus::find`].
    pub fn corpus(&self) -> Result<Corpus, BadInput> {
        let corpus = Corpus::find(self.data.as_deref())?;
        if let Some(note) = corpus.note.as_ref().filter(|_| launch::is_first_process()) {
            eprintln!("note: {note}");
        }
        Ok(corpus)
    }

    /// Takes the micro-batches that a strategy names.
    pub(super) fn take(&mut self, strategy: &Strategy) {
        self.grad_accum = strategy.micro_batches.unwrap_or(self.grad_accum);
        self.batch = strategy.micro_batch.or(self.batch);
    }

    /// Sequences per rank and micro-step, if a flag gives them. Refuses a batch that leaves a rank
    /// without sequences.
    pub(super) fn batch(&self, ranks: usize) -> Result<Option<usize>, BadInput> {
        let Some(global) = self.global_batch else {
            return Ok(self.batch);
        };
        let parts = ranks.saturating_mul(self.grad_accum);
        if global.is_multiple_of(parts) {
            return Ok(Some(global / parts));
        }
        let what = format!(
            "--global-batch {global} cannot be divided evenly among {ranks} ranks x {} micro-steps",
            self.grad_accum
        );
        let less = global / parts * parts;
        let nearest = if less > 0 {
            format!("{less} or {}", less + parts)
        } else {
            parts.to_string()
        };
        Err(BadInput::new(
            what,
            format!(
                "give a multiple of {parts}, such as {nearest}; or fewer ranks or --grad-accum"
            ),
        ))
    }
}

/// Refuses sequences that do not fit into the text, or into a rank's slice of it.
pub(super) fn ensure_text_is_long_enough(config: &Config, corpus: &Corpus) -> Result<(), BadInput> {
    let block = config.shape.block;
    // The last token of a sequence has a next one, too.
    let split = corpus.train.len().min(corpus.validation.len());
    if block >= split {
        let what = format!(
            "--block {block} does not fit into {}: its shorter split has {split} tokens",
            corpus.name
        );
        return Err(BadInput::new(
            what,
            format!("give --block at most {}, or a longer text", split - 1),
        ));
    }
    let slice = corpus.train.len() / config.ranks;
    if config.sampling == Sampling::Partition && block >= slice {
        let what = format!(
            "each of {} ranks gets {slice} tokens of the text, no more than --block {block}",
            config.ranks
        );
        return Err(BadInput::new(what, "give fewer ranks, a smaller --block, or --sampler seeds"));
    }
    Ok(())
}
