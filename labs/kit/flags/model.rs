//! Flags for the model's shape, and for its initial weights.

use super::preset::{Defaults, Preset};
use super::{SIZES, in_range, is_below_one, number};
use crate::help;
use shardlab::checkpoint;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::plan::{Family, ModelShape};
use std::path::PathBuf;

/// The model's shape.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct ModelFlags {
    /// Model shape and settings that belong together
    #[arg(long, value_enum, default_value = "baby")]
    pub preset: Preset,
    /// Transformer blocks
    #[arg(long)]
    pub layers: Option<usize>,
    /// Attention heads
    #[arg(long, hide_short_help = true)]
    pub heads: Option<usize>,
    /// Width of the model
    #[arg(long, hide_short_help = true)]
    pub embd: Option<usize>,
    /// Tokens in a sequence
    #[arg(long, hide_short_help = true)]
    pub block: Option<usize>,
    /// Fraction of activations that dropout sets to 0 in training
    #[arg(long, default_value_t = 0.0, value_parser = number::<f64>(is_below_one, "a fraction, at least 0 and below 1"), hide_short_help = true)]
    pub dropout: f64,
    /// Start from the weights in an earlier run's folder
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub init_from: Option<PathBuf>,
}

impl ModelFlags {
    /// The model's shape, checked.
    pub(super) fn resolve(
        &self,
        defaults: &Defaults,
        corpus: &Corpus,
    ) -> Result<ModelShape, BadInput> {
        let shape = self.shape(defaults, corpus)?;
        // Weights may come from elsewhere, and their shape with them. What is larger was mistyped.
        in_range("layers", shape.layers, 1..=1 << 12)?;
        in_range("heads", shape.heads, SIZES)?;
        in_range("embd", shape.embd, SIZES)?;
        in_range("block", shape.block, SIZES)?;
        if !shape.embd.is_multiple_of(shape.heads) {
            return Err(BadInput::new(
                format!("--embd {} cannot be divided among --heads {}", shape.embd, shape.heads),
                "each head gets embd / heads numbers: give --embd a multiple of --heads",
            ));
        }
        Ok(shape)
    }

    /// The preset's shape, with given flags in its place. With `--init-from`, the shape of those
    /// weights.
    fn shape(&self, defaults: &Defaults, corpus: &Corpus) -> Result<ModelShape, BadInput> {
        let Some(dir) = &self.init_from else {
            return Ok(ModelShape {
                vocabulary: corpus.vocabulary.size(),
                block: self.block.unwrap_or(defaults.block),
                layers: self.layers.unwrap_or(defaults.layers),
                heads: self.heads.unwrap_or(defaults.heads),
                embd: self.embd.unwrap_or(defaults.embd),
                family: Family::Gpt,
                experts: None,
            });
        };
        let saved = checkpoint::describe(dir)?;
        let given = [
            ("layers", self.layers),
            ("heads", self.heads),
            ("embd", self.embd),
            ("block", self.block),
        ];
        let has = [saved.shape.layers, saved.shape.heads, saved.shape.embd, saved.shape.block];
        for ((flag, given), has) in given.into_iter().zip(has) {
            if let Some(given) = given.filter(|&given| given != has) {
                let what = format!(
                    "--{flag} {given} contradicts the weights in {}, which have {has}",
                    dir.display()
                );
                return Err(BadInput::new(
                    what,
                    format!("leave --{flag} out: the shape comes with the weights"),
                ));
            }
        }
        if saved.vocabulary != corpus.vocabulary.characters() {
            let what = format!(
                "the weights in {} have a different vocabulary than {}",
                dir.display(),
                corpus.name
            );
            return Err(BadInput::new(what, "give --data the text that they were trained on"));
        }
        Ok(saved.shape)
    }
}
