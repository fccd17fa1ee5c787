//! A run's settings as JSON, by the names of the source's `wordplay`.

use crate::show::Screen;
use serde::Serialize;
use shardlab::train::{Config, EvalConfig};
use std::path::Path;

/// Everything that defines a data-parallel run. Names of the source that have no meaning here are
/// left out: its port, its compiler and its project at Weights & Biases.
#[derive(Serialize)]
pub struct Settings {
    train: Train,
    model: Model,
    data: Data,
    optimizer: Optimizer,
}

#[derive(Serialize)]
struct Train {
    framework: &'static str,
    backend: &'static str,
    device: &'static str,
    seed: u64,
    ngpus: usize,
    eval_interval: usize,
    log_interval: usize,
    eval_iters: usize,
    eval_only: bool,
    always_save_checkpoint: bool,
    init_from: String,
    max_iters: usize,
    warmup_iters: usize,
    dtype: &'static str,
}

#[derive(Serialize)]
struct Model {
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
    batch_size: usize,
    block_size: usize,
    activation: &'static str,
    dropout: f64,
    bias: bool,
    vocab_size: usize,
}

#[derive(Serialize)]
struct Data {
    dataset: String,
    out_dir: String,
}

#[derive(Serialize)]
struct Optimizer {
    gas: usize,
    name: &'static str,
    learning_rate: f64,
    weight_decay: f64,
    beta1: f64,
    beta2: f64,
    grad_clip: f64,
    decay_lr: bool,
    lr_decay_iters: usize,
    min_lr: f64,
}

/// The parts of a run that [`Config`] does not have.
pub struct Around<'a> {
    pub eval: &'a EvalConfig,
    pub eval_only: bool,
    pub log_interval: usize,
    /// The folder of the initial weights; without it they are random.
    pub init_from: Option<&'a Path>,
    /// The text's name.
    pub dataset: &'a str,
    pub out: &'a Path,
}

impl Settings {
    /// The JSON, and a word on its `dtype`.
    pub fn show(&self, screen: &Screen) -> String {
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        let dtype = "float32 is what runs here. The source asks for bf16, and its log then says torch.float16 and builds a \
                     GradScaler, which only float16 needs: read what ran, not what was asked for.";
        format!("{json}\n{}", screen.row("dtype", dtype))
    }

    pub fn of(config: &Config, around: &Around) -> Settings {
        let shape = &config.shape;
        let schedule = &config.schedule;
        Settings {
            train: Train {
                framework: "candle",
                backend: "DDP",
                device: "cpu",
                seed: config.seed,
                ngpus: config.ranks,
                eval_interval: around.eval.due.interval,
                log_interval: around.log_interval,
                eval_iters: around.eval.batches,
                eval_only: around.eval_only,
                always_save_checkpoint: false,
                init_from: around
                    .init_from
                    .map_or("scratch".into(), |folder| folder.display().to_string()),
                max_iters: config.steps,
                warmup_iters: schedule.warmup,
                dtype: "float32",
            },
            model: Model {
                n_layer: shape.layers,
                n_head: shape.heads,
                n_embd: shape.embd,
                batch_size: config.batch,
                block_size: shape.block,
                activation: "gelu",
                dropout: config.dropout,
                bias: false,
                vocab_size: shape.vocabulary,
            },
            data: Data {
                dataset: around.dataset.trim_matches('"').to_string(),
                out_dir: around.out.display().to_string(),
            },
            optimizer: Optimizer {
                gas: config.grad_accum,
                name: "AdamW",
                learning_rate: schedule.lr,
                weight_decay: config.adamw.weight_decay,
                beta1: config.adamw.beta1,
                beta2: config.adamw.beta2,
                grad_clip: config.clip,
                decay_lr: schedule.min_lr < schedule.lr,
                lr_decay_iters: schedule.decay_steps,
                min_lr: schedule.min_lr,
            },
        }
    }
}
