//! The flags that every training lab shares, and what they come to: a [`Config`] that is known to be sound.

use super::adamw::AdamWConfig;
use super::schedule::Schedule;
use crate::checkpoint;
use crate::data::{Corpus, Sampler, Sampling};
use crate::error::BadInput;
use crate::launch;
use crate::model::Pass;
use crate::plan::GptShape;
use crate::show;
use crate::tensor::Dropout;
use std::path::PathBuf;

/// The prompt, unless another one is given.
const PROMPT: &str = "What is an LLM?";

/// Shapes and settings that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// 0.8 M parameters, 64 tokens of context: minutes on a laptop.
    Baby,
    /// 10.6 M parameters, 256 tokens: nanoGPT's char-level model with a small batch.
    Char,
    /// 85 M parameters, 1,024 tokens: the seed's wordplay run, made for GPUs.
    Wordplay,
}

/// What a preset stands for.
struct Defaults {
    layers: usize,
    heads: usize,
    embd: usize,
    block: usize,
    batch: usize,
    lr: f64,
    min_lr: f64,
    beta2: f64,
    steps: usize,
    lr_decay_steps: Option<usize>,
    eval_iters: usize,
}

impl Preset {
    fn defaults(self, embedded_text: bool) -> Defaults {
        let small = Defaults {
            layers: 4,
            heads: 4,
            embd: 128,
            block: 64,
            batch: 12,
            lr: 1e-3,
            min_lr: 1e-4,
            beta2: 0.99,
            steps: 500,
            lr_decay_steps: None,
            eval_iters: 50,
        };
        match self {
            // The embedded text is short: after 300 steps the model begins to know it by heart.
            Preset::Baby => Defaults { steps: if embedded_text { 300 } else { 500 }, ..small },
            Preset::Char => Defaults { layers: 6, heads: 6, embd: 384, block: 256, batch: 4, ..small },
            Preset::Wordplay => Defaults {
                layers: 12,
                heads: 12,
                embd: 768,
                block: 1024,
                batch: 64,
                lr: 6e-4,
                min_lr: 6e-5,
                beta2: 0.95,
                steps: 1000,
                lr_decay_steps: Some(600_000),
                eval_iters: 200,
            },
        }
    }
}

/// Flags of a training lab. A flag that is given beats the preset, wherever it stands.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainFlags {
    /// Ranks that train together: threads of this process [default: 2], or the launcher's processes
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
    /// Micro-steps whose gradients add up to one step
    #[arg(long, default_value_t = 1)]
    pub grad_accum: usize,
    /// Training steps
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
    /// Write one JSON line a step to this file
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Folder for the run's files [default: runs/LAB]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Start from the weights in another run's folder
    #[arg(long, value_name = "DIR")]
    pub init_from: Option<PathBuf>,
    /// Evaluate and sample, but do not train
    #[arg(long)]
    pub eval_only: bool,
    /// Print what the run would be, and end
    #[arg(long)]
    pub dry_run: bool,
    /// Every rank prints its log lines, not only rank 0
    #[arg(long)]
    pub log_all_ranks: bool,
    /// Draw with ASCII characters
    #[arg(long)]
    pub ascii: bool,
}

/// What a training run is, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub ranks: usize,
    pub preset: Preset,
    pub shape: GptShape,
    pub batch: usize,
    pub grad_accum: usize,
    pub steps: usize,
    pub eval_interval: usize,
    pub eval_iters: usize,
    pub log_interval: usize,
    pub schedule: Schedule,
    pub adamw: AdamWConfig,
    pub clip: f64,
    pub dropout: f64,
    pub seed: u64,
    pub sampling: Sampling,
    pub prompt: String,
    pub prompt_tokens: Vec<u32>,
    pub out: PathBuf,
}

impl TrainFlags {
    /// Checks the flags against each other and the text, before anything is allocated. `ranks` is what
    /// [`launch::ranks`](crate::launch::ranks) made of `--ranks`; `lab` names the default folder.
    pub fn resolve(&self, ranks: usize, corpus: &Corpus, lab: &str) -> Result<Config, BadInput> {
        let defaults = self.preset.defaults(corpus.embedded);
        let shape = self.shape(&defaults, corpus)?;
        let steps = self.steps.unwrap_or(defaults.steps);
        let lr = self.lr.unwrap_or(defaults.lr);
        let (prompt, prompt_tokens) = self.prompt(corpus)?;
        if self.eval_only && self.metrics.is_some() {
            let help =
                "leave one of the two out: --metrics has a line for each training step, and --eval-only trains none";
            return Err(BadInput::new("--metrics has nothing to write with --eval-only", help));
        }
        let config = Config {
            ranks,
            preset: self.preset,
            shape,
            batch: self.batch.unwrap_or(defaults.batch),
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
            adamw: AdamWConfig {
                beta1: self.beta1,
                beta2: self.beta2.unwrap_or(defaults.beta2),
                epsilon: 1e-8,
                weight_decay: self.weight_decay,
            },
            clip: self.clip,
            dropout: self.dropout,
            seed: self.seed,
            sampling: self.sampler,
            prompt,
            prompt_tokens,
            out: self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(lab)),
        };
        config.check(corpus)?;
        Ok(config)
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

impl Config {
    /// Tokens that one step learns from, over all ranks and micro-steps.
    pub fn tokens_per_step(&self) -> usize {
        self.batch * self.grad_accum * self.ranks * self.shape.block
    }

    /// The run that the check before training compares in two ways: the baby preset's model on blocks and batches no larger
    /// than this run's, or this run's own model if that is smaller.
    pub fn parity_check(&self) -> Config {
        let baby = Preset::Baby.defaults(false);
        let block = baby.block.min(self.shape.block);
        let shape = GptShape { block, layers: baby.layers, heads: baby.heads, embd: baby.embd, ..self.shape };
        let shape = if shape.parameters() < self.shape.parameters() { shape } else { GptShape { block, ..self.shape } };
        Config { shape, batch: baby.batch.min(self.batch), grad_accum: 1, ..self.clone() }
    }

    /// The seed of a rank's own initial weights, before rank 0's replace them.
    pub fn seed_of(&self, rank: usize) -> u64 {
        self.seed.wrapping_add(rank as u64)
    }

    /// Whether the model is evaluated after this step, counted from 1.
    pub fn evaluates_after(&self, step: usize) -> bool {
        step.is_multiple_of(self.eval_interval) || step == self.steps
    }

    /// Bytes that the ranks on this machine take together: in training, or in the check before it, in which rank 0 holds a
    /// second model.
    pub fn memory(&self, batch: usize) -> u64 {
        let ranks = launch::ranks_here(self.ranks) as u64;
        let of = |shape: &GptShape, batch| shape.memory(batch, self.dropout > 0.0).total();
        let check = self.parity_check();
        let training = of(&self.shape, batch).saturating_mul(ranks);
        training.max(of(&check.shape, check.batch.min(batch)).saturating_mul(ranks + 1))
    }

    /// Refuses a run that `free` bytes do not hold.
    pub fn ensure_fits(&self, free: u64) -> Result<(), BadInput> {
        if self.memory(self.batch) <= free {
            return Ok(());
        }
        let gb = |bytes| show::bytes_decimal(bytes as f64);
        let what = format!(
            "{} ranks with --batch {} take {}, and {} are free",
            launch::ranks_here(self.ranks),
            self.batch,
            gb(self.memory(self.batch)),
            gb(free)
        );
        let largest = (1..self.batch).rev().find(|&batch| self.memory(batch) <= free);
        Err(BadInput::new(
            what,
            match largest {
                Some(batch) => {
                    let accum = (self.batch * self.grad_accum).div_ceil(batch);
                    format!("the largest that fits is --batch {batch} (with --grad-accum {accum} about the same step)")
                }
                None => {
                    "not even --batch 1 fits: give fewer --ranks, a smaller --block, or a smaller --preset".to_string()
                }
            },
        ))
    }

    /// The sampler of one rank.
    pub fn sampler(&self, rank: usize) -> Sampler {
        Sampler {
            sampling: self.sampling,
            seed: self.seed,
            rank,
            ranks: self.ranks,
            batch: self.batch,
            block: self.shape.block,
        }
    }

    /// The forward pass of one training step over these sequences.
    pub fn pass(&self, step: usize, sequences: &std::sync::Arc<[u64]>) -> Pass {
        let rules =
            || Dropout { p: self.dropout as f32, seed: self.seed, step: step as u64, sequences: sequences.clone() };
        Pass { train: true, dropout: (self.dropout > 0.0).then(rules) }
    }

    fn check(&self, corpus: &Corpus) -> Result<(), BadInput> {
        let shape = &self.shape;
        // Far above any model, and low enough that no figure about a run overflows.
        const SIZES: usize = 1 << 16;
        const COUNTS: usize = 1 << 20;
        for (flag, value, most) in [
            // candle walks the graph by recursion, and the stack of a rank has an end.
            ("layers", shape.layers, 1 << 12),
            ("heads", shape.heads, SIZES),
            ("embd", shape.embd, SIZES),
            ("block", shape.block, SIZES),
            ("batch", self.batch, COUNTS),
            ("grad-accum", self.grad_accum, SIZES),
            ("steps", self.steps, usize::MAX),
            ("eval-interval", self.eval_interval, usize::MAX),
            ("eval-iters", self.eval_iters, COUNTS),
            ("log-interval", self.log_interval, usize::MAX),
            ("lr-decay-steps", self.schedule.decay_steps, usize::MAX),
        ] {
            if !(1..=most).contains(&value) {
                let upto = if most == usize::MAX { " on".to_string() } else { format!(" to {most}") };
                let help = format!("give a whole number from 1{upto}");
                return Err(BadInput::new(format!("--{flag} {value} is out of range"), help));
            }
        }
        if !shape.embd.is_multiple_of(shape.heads) {
            return Err(BadInput::new(
                format!("--embd {} cannot be divided among --heads {}", shape.embd, shape.heads),
                "every head gets embd / heads numbers: give a multiple of the heads",
            ));
        }
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let not_negative = |x: f64| x >= 0.0 && x.is_finite();
        let below_one = |x: f64| (0.0..1.0).contains(&x);
        let Schedule { lr, min_lr, .. } = self.schedule;
        for (flag, value, sound, rule) in [
            ("lr", lr, positive(lr), "a finite number above 0"),
            ("min-lr", min_lr, not_negative(min_lr) && min_lr <= lr, "a number from 0 to --lr"),
            ("weight-decay", self.adamw.weight_decay, not_negative(self.adamw.weight_decay), "0 or more"),
            ("beta1", self.adamw.beta1, below_one(self.adamw.beta1), "at least 0 and below 1"),
            ("beta2", self.adamw.beta2, below_one(self.adamw.beta2), "at least 0 and below 1"),
            ("clip", self.clip, not_negative(self.clip), "0 (off) or a finite number above"),
            ("dropout", self.dropout, below_one(self.dropout), "at least 0 and below 1"),
        ] {
            if !sound {
                return Err(BadInput::new(format!("--{flag} {value} is out of range"), format!("give {rule}")));
            }
        }
        let split = corpus.shorter_split();
        if shape.block >= split {
            let what = format!(
                "--block {} does not fit into {}: its shorter split has {split} tokens",
                shape.block, corpus.name
            );
            return Err(BadInput::new(what, format!("give --block at most {}, or a longer text", split - 1)));
        }
        let part = corpus.train.len() / self.ranks;
        if self.sampling == Sampling::Partition && shape.block >= part {
            let what = format!(
                "{} ranks leave each a part of {part} tokens, no longer than --block {}",
                self.ranks, shape.block
            );
            return Err(BadInput::new(what, "give fewer ranks, a smaller --block, or --sampler seeds"));
        }
        Ok(())
    }
}
