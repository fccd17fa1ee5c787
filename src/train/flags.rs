//! The flags that training labs share, and how they become a [`Config`].

use super::config::Config;
use super::preset::{Defaults, Preset};
use super::schedule::Schedule;
use super::zero_flags::ZeroFlags;
use crate::checkpoint;
use crate::data::{Corpus, Sampling};
use crate::error::BadInput;
use crate::launch::CommFlags;
use crate::optim::AdamWConfig;
use crate::plan::GptShape;
use std::path::PathBuf;

/// The prompt, unless another one is given.
const PROMPT: &str = "What is an LLM?";

/// What a run prints and leaves behind: the same in every lab.
#[derive(Clone, Debug, clap::Args)]
pub struct RunFlags {
    /// Write one JSON line a step to this file
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Folder for the run's files [default: runs/LAB]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print what the run would be, and end
    #[arg(long)]
    pub dry_run: bool,
    /// Every rank prints its log lines, not only rank 0
    #[arg(long)]
    pub log_all_ranks: bool,
    /// Draw with ASCII characters
    #[arg(long)]
    pub ascii: bool,
    #[command(flatten)]
    pub comm: CommFlags,
}

impl RunFlags {
    /// The folder for the run's files; `lab` names the default.
    pub fn folder(&self, lab: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(lab))
    }
}

/// Flags of a training lab. A flag that is given beats the preset, wherever it stands.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainFlags {
    /// Ranks that train together: threads of this process [default: lab03 2, lab04 4], or the launcher's processes
    #[arg(long)]
    pub ranks: Option<usize>,
    /// Model shape and settings that belong together
    #[arg(long, value_enum, default_value_t = Preset::Baby)]
    pub preset: Preset,
    /// Transformer blocks
    #[arg(long)]
    pub layers: Option<usize>,
    /// Attention heads
    #[arg(long)]
    pub heads: Option<usize>,
    /// Width of the model
    #[arg(long)]
    pub embd: Option<usize>,
    /// Tokens in a sequence
    #[arg(long)]
    pub block: Option<usize>,
    /// Sequences a rank and micro-step
    #[arg(long)]
    pub batch: Option<usize>,
    /// Sequences a step, over all ranks and micro-steps; in place of --batch
    #[arg(long, conflicts_with = "batch")]
    pub global_batch: Option<usize>,
    /// Micro-steps whose gradients add up to one step
    #[arg(long, default_value_t = 1)]
    pub grad_accum: usize,
    /// Training steps [default: lab03 the preset's, lab04 6]
    #[arg(long)]
    pub steps: Option<usize>,
    /// Steps from one evaluation to the next
    #[arg(long, default_value_t = 100)]
    pub eval_interval: usize,
    /// Batches an evaluation and split
    #[arg(long)]
    pub eval_iters: Option<usize>,
    /// Steps from one log line to the next
    #[arg(long, default_value_t = 10)]
    pub log_interval: usize,
    /// Learning rate after the warm-up
    #[arg(long)]
    pub lr: Option<f64>,
    /// Learning rate at the end of the cosine
    #[arg(long)]
    pub min_lr: Option<f64>,
    /// Steps in which the learning rate rises
    #[arg(long, default_value_t = 100)]
    pub warmup: usize,
    /// The step at which the cosine ends [default: --steps]
    #[arg(long)]
    pub lr_decay_steps: Option<usize>,
    /// AdamW's decay, on matrices only
    #[arg(long, default_value_t = 0.1)]
    pub weight_decay: f64,
    /// AdamW's memory of gradients
    #[arg(long, default_value_t = 0.9)]
    pub beta1: f64,
    /// AdamW's memory of squared gradients
    #[arg(long)]
    pub beta2: Option<f64>,
    /// Largest global norm of a step's gradient; 0 = off
    #[arg(long, default_value_t = 1.0)]
    pub clip: f64,
    /// Stop the backward pass while a bucket of gradients is averaged
    #[arg(long)]
    pub no_overlap: bool,
    /// Share of activations that is dropped in training
    #[arg(long, default_value_t = 0.0)]
    pub dropout: f64,
    /// What all random numbers depend on
    #[arg(long, default_value_t = 1337)]
    pub seed: u64,
    /// How ranks get different data
    #[arg(long, value_enum, default_value_t = Sampling::Partition)]
    pub sampler: Sampling,
    /// Text to train on [default: the real Shakespeare where it is found, else a play that comes with the lab]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Text that samples continue
    #[arg(long)]
    pub prompt: Option<String>,
    /// Start from the weights in another run's folder
    #[arg(long, value_name = "DIR")]
    pub init_from: Option<PathBuf>,
    /// Evaluate and sample, but do not train
    #[arg(long)]
    pub eval_only: bool,
    #[command(flatten)]
    pub zero: ZeroFlags,
    #[command(flatten)]
    pub run: RunFlags,
}

impl TrainFlags {
    /// For a lab that neither evaluates nor samples nor writes files, nor begins from one: refuses what only lab03 heeds.
    pub fn refuse_flags_of_lab03(&self, lab: &str) -> Result<(), BadInput> {
        let given = [
            ("eval-only", self.eval_only),
            ("eval-iters", self.eval_iters.is_some()),
            ("init-from", self.init_from.is_some()),
            ("prompt", self.prompt.is_some()),
            ("metrics", self.run.metrics.is_some()),
            ("trace", self.run.trace.is_some()),
            ("dry-run", self.run.dry_run),
            ("log-all-ranks", self.run.log_all_ranks),
        ];
        given.into_iter().find(|(_, given)| *given).map_or(Ok(()), |(flag, _)| {
            let what = format!("{lab} compares trainings from the start, and has no --{flag}");
            Err(BadInput::new(what, format!("leave --{flag} out; lab03 has it")))
        })
    }

    /// Checks the flags against each other and the text, before anything is allocated. `ranks` is what
    /// [`launch::ranks`](crate::launch::ranks) made of `--ranks`; `lab` names the default folder.
    pub fn resolve(&self, ranks: usize, corpus: &Corpus, lab: &str) -> Result<Config, BadInput> {
        let defaults = self.preset.defaults(corpus.embedded);
        let shape = self.shape(&defaults, corpus)?;
        let steps = self.steps.unwrap_or(defaults.steps);
        let lr = self.lr.unwrap_or(defaults.lr);
        let (prompt, prompt_tokens) = self.prompt(corpus)?;
        if self.eval_only && self.run.metrics.is_some() {
            let help =
                "leave one of the two out: --metrics has a line for each training step, and --eval-only trains none";
            return Err(BadInput::new("--metrics has nothing to write with --eval-only", help));
        }
        if self.eval_only && self.zero.are_given() {
            let help = "leave one of the two out: --zero and --dtype say how a model is held while it trains";
            return Err(BadInput::new("--eval-only trains nothing that could be divided", help));
        }
        let adamw = AdamWConfig {
            beta1: self.beta1,
            beta2: self.beta2.unwrap_or(defaults.beta2),
            epsilon: 1e-8,
            weight_decay: self.weight_decay,
        };
        let config = Config {
            ranks,
            preset: self.preset,
            shape,
            batch: self.batch(ranks)?.unwrap_or(defaults.batch),
            grad_accum: self.grad_accum,
            steps,
            eval_interval: self.eval_interval,
            eval_iters: self.eval_iters.unwrap_or(defaults.eval_iters),
            log_interval: self.log_interval,
            schedule: Schedule {
                lr,
                // A tenth of a given --lr, as in the presets: their floor could lie above it.
                min_lr: self.min_lr.unwrap_or(if self.lr.is_some() { lr / 10.0 } else { defaults.min_lr }),
                warmup: self.warmup,
                decay_steps: self.lr_decay_steps.or(defaults.lr_decay_steps).unwrap_or(steps),
            },
            adamw,
            zero: self.zero.resolve(adamw, self.no_overlap)?,
            clip: self.clip,
            dropout: self.dropout,
            seed: self.seed,
            sampling: self.sampler,
            prompt,
            prompt_tokens,
            out: self.run.folder(lab),
        };
        config.check(corpus)?;
        Ok(config)
    }

    /// Sequences a rank and micro-step, if they were given. No rank is ever handed an empty share.
    fn batch(&self, ranks: usize) -> Result<Option<usize>, BadInput> {
        let Some(global) = self.global_batch else { return Ok(self.batch) };
        let parts = ranks.saturating_mul(self.grad_accum);
        if global > 0 && parts > 0 && global.is_multiple_of(parts) {
            return Ok(Some(global / parts));
        }
        let what = format!(
            "--global-batch {global} cannot be divided among {ranks} ranks x {} micro-steps: a share would be empty or \
             another's size",
            self.grad_accum
        );
        let less = global / parts.max(1) * parts;
        let nearest = if less > 0 { format!("{less} or {}", less + parts) } else { parts.to_string() };
        Err(BadInput::new(
            what,
            format!("give a multiple of {parts}, such as {nearest}; or fewer ranks or --grad-accum"),
        ))
    }

    /// The preset's shape with what was given in its place; with `--init-from`, the shape of those weights.
    fn shape(&self, defaults: &Defaults, corpus: &Corpus) -> Result<GptShape, BadInput> {
        let Some(dir) = &self.init_from else {
            return Ok(GptShape {
                vocabulary: corpus.vocabulary.size(),
                block: self.block.unwrap_or(defaults.block),
                layers: self.layers.unwrap_or(defaults.layers),
                heads: self.heads.unwrap_or(defaults.heads),
                embd: self.embd.unwrap_or(defaults.embd),
            });
        };
        let saved = checkpoint::describe(dir)?;
        let given = [("layers", self.layers), ("heads", self.heads), ("embd", self.embd), ("block", self.block)];
        let has = [saved.shape.layers, saved.shape.heads, saved.shape.embd, saved.shape.block];
        for ((flag, given), has) in given.into_iter().zip(has) {
            if let Some(given) = given.filter(|&given| given != has) {
                let what = format!("--{flag} {given} contradicts the weights in {}, which have {has}", dir.display());
                return Err(BadInput::new(what, format!("leave --{flag} out: the shape comes with the weights")));
            }
        }
        if saved.vocabulary != corpus.vocabulary.characters() {
            let what = format!("the weights in {} know other characters than {} has", dir.display(), corpus.name);
            return Err(BadInput::new(what, "give --data the text that they were trained on"));
        }
        Ok(saved.shape)
    }

    /// The prompt, and its tokens: what was given, else the lab's own, else the text's beginning.
    fn prompt(&self, corpus: &Corpus) -> Result<(String, Vec<u32>), BadInput> {
        let encode = |text: &str| corpus.vocabulary.encode(text).map(|tokens| (text.to_string(), tokens));
        let Some(given) = &self.prompt else {
            let own = encode(PROMPT).or_else(|_| encode(&corpus.first_line));
            return own.map_err(|c| BadInput::new(format!("{}: lost {c:?}", corpus.name), "give --prompt"));
        };
        if given.is_empty() {
            return Err(BadInput::new("--prompt is empty", "give at least one character"));
        }
        encode(given).map_err(|unknown| {
            let what = format!("--prompt has the character {unknown:?}, which {} has not", corpus.name);
            BadInput::new(what, format!("the model knows only these: {:?}", corpus.vocabulary.characters()))
        })
    }
}
