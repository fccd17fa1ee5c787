//! A run's settings as JSON, by the names of the source's `wordplay`.

use crate::flags::Args;
use kit::flags::EvalConfig;
use kit::show::Screen;
use serde_json::{Value, json};
use shardlab::data::Corpus;
use shardlab::train::Config;

/// Everything that defines the run, and a word on its `dtype`. Names of the source that have no
/// meaning here are left out: its port, its compiler and its project at Weights & Biases.
pub fn settings(
    screen: &Screen,
    args: &Args,
    config: &Config,
    eval: &EvalConfig,
    corpus: &Corpus,
) -> String {
    let init_from = args.train.model.init_from.as_ref();
    let init_from = init_from.map_or("scratch".into(), |folder| folder.display().to_string());
    let train = [
        ("framework", json!("candle")),
        ("backend", json!("DDP")),
        ("device", json!("cpu")),
        ("seed", json!(config.seed)),
        ("ngpus", json!(config.ranks)),
        ("eval_interval", json!(eval.due.interval)),
        ("log_interval", json!(args.log.interval(config.steps))),
        ("eval_iters", json!(eval.batches)),
        ("eval_only", json!(args.eval_only)),
        ("always_save_checkpoint", json!(false)),
        ("init_from", json!(init_from)),
        ("max_iters", json!(config.steps)),
        ("warmup_iters", json!(config.schedule.warmup)),
        ("dtype", json!("float32")),
    ];
    let model = [
        ("n_layer", json!(config.shape.layers)),
        ("n_head", json!(config.shape.heads)),
        ("n_embd", json!(config.shape.embd)),
        ("batch_size", json!(config.batch)),
        ("block_size", json!(config.shape.block)),
        ("activation", json!("gelu")),
        ("dropout", json!(config.dropout)),
        ("bias", json!(false)),
        ("vocab_size", json!(config.shape.vocabulary)),
    ];
    let data = [
        ("dataset", json!(corpus.name.trim_matches('"'))),
        ("out_dir", json!(args.run.folder("lab03").display().to_string())),
    ];
    let schedule = &config.schedule;
    let optimizer = [
        ("gas", json!(config.grad_accum)),
        ("name", json!("AdamW")),
        ("learning_rate", json!(schedule.lr)),
        ("weight_decay", json!(config.adamw.weight_decay)),
        ("beta1", json!(config.adamw.beta1)),
        ("beta2", json!(config.adamw.beta2)),
        ("grad_clip", json!(config.clip)),
        ("decay_lr", json!(schedule.min_lr < schedule.lr)),
        ("lr_decay_iters", json!(schedule.decay_steps)),
        ("min_lr", json!(schedule.min_lr)),
    ];
    let parts = [
        part("train", &train),
        part("model", &model),
        part("data", &data),
        part("optimizer", &optimizer),
    ];
    let dtype = "float32 is what runs here. The source asks for bf16, and its log then says torch.float16 and builds a \
                 GradScaler, which only float16 needs: read what ran, not what was asked for.";
    format!("{{\n{}\n}}\n{}", parts.join(",\n"), screen.row("dtype", dtype))
}

/// One part of the settings, in the source's order.
fn part(name: &str, settings: &[(&str, Value)]) -> String {
    let line = |(name, value): &(&str, Value)| format!("    \"{name}\": {value}");
    let lines: Vec<String> = settings.iter().map(line).collect();
    format!("  \"{name}\": {{\n{}\n  }}", lines.join(",\n"))
}
