//! The model of a job: a published one by name, one of a config.json, or one of one's own.

use clap::builder::RangedU64ValueParser;
use kit::help;
use planner::{Counted, USUAL_LENGTH, counted, model};
use shapes::config_json::{self, Described};
use shapes::error::BadInput;
use shapes::files;
use shapes::model::{Dense, Family, ModelShape};
use std::path::{Path, PathBuf};

/// The longest sequences that a job may have.
const LONGEST: usize = 1 << 20;

/// Which model.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = help::MODEL)]
pub struct ModelOfJob {
    /// A model by name, such as gpt3-175b or llama-3-8b [default: llama-3-70b]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// A model of the Hugging Face Hub, by its file config.json
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub config: Option<PathBuf>,
    /// Layers of a model of your own, with --embd and --heads
    #[arg(long, value_name = "NUMBER", requires_all = ["embd", "heads"], conflicts_with_all = ["model", "config"])]
    pub layers: Option<usize>,
    /// Width of your own model
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "layers",
        hide_short_help = true
    )]
    pub embd: Option<usize>,
    /// Query heads of your own model
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "layers",
        hide_short_help = true
    )]
    pub heads: Option<usize>,
    /// Its key and value heads [default: as many as query heads]
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "layers",
        hide_short_help = true
    )]
    pub kv_heads: Option<usize>,
    /// Width of each of its heads [default: --embd / --heads]
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "layers",
        hide_short_help = true
    )]
    pub head_width: Option<usize>,
    /// Inner width of its MLP [default: 8/3 of --embd, up to a multiple of 256]
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "layers",
        hide_short_help = true
    )]
    pub ffn: Option<usize>,
    /// Its distinct tokens
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "layers",
        default_value_t = 32_000,
        hide_short_help = true
    )]
    pub vocab: usize,
    /// Its head is the token table
    #[arg(long, requires = "layers", hide_short_help = true)]
    pub tied: bool,
    /// Tokens of a sequence; more than 8,192 may be shared by context ranks [default: the model's,
    /// at most 8,192; for a model of your own 4,096]
    #[arg(long, value_name = "TOKENS", value_parser = RangedU64ValueParser::<usize>::new().range(1..=LONGEST as u64))]
    pub seq: Option<usize>,
}

impl ModelOfJob {
    /// The model, what to call it, and what to say of its file.
    ///
    /// # Errors
    /// If there is no such model or file, or its numbers do not fit together.
    pub fn described(&self) -> Result<(String, ModelShape, Vec<String>), BadInput> {
        let mut notes = Vec::new();
        let (name, mut shape) = match (&self.config, self.layers) {
            (Some(path), _) => {
                let Described { shape, notes: of_file, no_length } = of_file(path)?;
                notes = of_file;
                match (self.seq, no_length) {
                    (None, Some(why)) => notes.push(format!("{why}; --seq gives another length")),
                    (Some(seq), None) if seq > shape.block => notes.push(format!(
                        "--seq {seq} is more than config.json's max_position_embeddings, {}: a \
                         model learns longer sequences in a training of its own, with a changed RoPE",
                        shape.block
                    )),
                    _ => {}
                }
                (path.display().to_string(), shape)
            }
            (None, Some(layers)) => ("your model".to_string(), self.own(layers)?),
            (None, None) => {
                let name = self.model.as_deref().unwrap_or("llama-3-70b");
                (name.to_string(), model(name)?)
            }
        };
        shape.block = self.seq.unwrap_or(shape.block.min(USUAL_LENGTH));
        Ok((name, shape, notes))
    }

    /// The counts of a config.json's model that has experts, or layers of several kinds, and what
    /// to call it; `None` for a model that can be planned.
    ///
    /// # Errors
    /// If the file cannot be read, or has keys that are not understood.
    pub fn counted(&self) -> Result<Option<(String, Counted)>, BadInput> {
        let Some(path) = &self.config else {
            return Ok(None);
        };
        let (name, text) = text_of(path)?;
        let read = counted(&text);
        let read =
            read.map_err(|error| BadInput::new(format!("{name}: {}", error.what), error.help))?;
        Ok(read.map(|counted| (path.display().to_string(), counted)))
    }

    /// A Llama of one's own.
    fn own(&self, layers: usize) -> Result<ModelShape, BadInput> {
        let embd = self.embd.unwrap_or_default();
        let heads = self.heads.unwrap_or_default();
        let kv_heads = self.kv_heads.unwrap_or(heads);
        let head = match self.head_width {
            Some(head) => head,
            None => config_json::head_width(embd, heads).map_err(|error| {
                BadInput::new(error.what, format!("{}, or give --head-width", error.help))
            })?,
        };
        let usual_ffn = (8 * embd / 3).next_multiple_of(256);
        let shape = ModelShape {
            vocabulary: self.vocab,
            block: 4096,
            layers,
            heads,
            embd,
            family: Family::Dense(Dense {
                tied: self.tied,
                ..Dense::llama(kv_heads, head, self.ffn.unwrap_or(usual_ffn))
            }),
            experts: None,
        };
        config_json::check(&shape)?;
        Ok(shape)
    }
}

/// The text of a config.json, or of the one in a folder, and its path.
fn text_of(path: &Path) -> Result<(String, String), BadInput> {
    let inside = path.join("config.json");
    let path = if path.is_dir() { &inside } else { path };
    let name = path.display().to_string();
    let text = files::text(path, files::LIST).map_err(|error| {
        let what = format!("{name} cannot be read: {error}");
        BadInput::new(what, "give --config a model's own config.json, or the folder that has it")
    })?;
    Ok((name, text))
}

/// The model of a config.json.
fn of_file(path: &Path) -> Result<Described, BadInput> {
    let (name, text) = text_of(path)?;
    let read = config_json::planned(&text);
    read.map_err(|error| BadInput::new(format!("{name}: {}", error.what), error.help))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three numbers are a Llama 2 13B: the others follow as its own do.
    #[test]
    fn three_numbers_are_a_model() {
        let own = ModelOfJob {
            layers: Some(40),
            embd: Some(5120),
            heads: Some(40),
            vocab: 32_000,
            ..ModelOfJob::default()
        };
        let (name, shape, notes) = own.described().unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        let llama = model("llama-2-13b").unwrap();
        assert_eq!((name.as_str(), shape.dense()), ("your model", llama.dense()));
        assert_eq!(shape.parameters(), llama.parameters());
        assert_eq!((shape.block, shape.vocabulary), (4096, 32_000));
        let odd = ModelOfJob { heads: Some(7), ..own.clone() }.described().unwrap_err();
        assert!(odd.what.contains("7 heads cannot share a width of 5120 evenly"), "{odd}");
        let odd = ModelOfJob { kv_heads: Some(3), ..own }.described().unwrap_err();
        assert!(odd.what.contains("40 query heads cannot share 3 key"), "{odd}");
    }
}
