//! The life of a large model in four stages, and what each costs in FLOPs.

use super::config::DsConfig;
use super::finetune::{self, FineTuned};
use super::model::Model;
use super::strategies::Candidate;
use anyhow::Result;
use kit::Checks;
use kit::show::{Screen, significant, table};
use shardlab::comm::{Comm, Options};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::plan::ModelShape;
use shardlab::tensor::Precision;
use shardlab::train::Setup;

/// Training tokens per parameter of a compute-optimal model (Hoffmann et al., arXiv 2203.15556).
const TOKENS_PER_PARAMETER: f64 = 20.0;

/// Examples of a supervised fine-tuning, tokens of each, and passes over all of them.
const EXAMPLES: [f64; 3] = [10_000.0, 500.0, 3.0];

/// Tokens of prompts and answers that a deployed model computes.
const SERVED: f64 = 1e9;

/// Steps of the fine-tuning.
const FINE_TUNING: usize = 40;

/// A stage, the tokens that the model computes in it, and FLOPs per token.
pub fn stages(shape: &ModelShape) -> [(&'static str, String, f64, f64); 4] {
    let n = shape.parameters() as f64;
    let [examples, each, passes] = EXAMPLES;
    let words = |tokens: f64| significant(tokens, 3);
    let [forward, training] =
        [shape.forward_flops_per_token() as f64, shape.training_flops_per_token() as f64];
    let pretraining = TOKENS_PER_PARAMETER * n;
    let tuned = examples * each * passes;
    [
        (
            "1 data",
            "text is collected, cleaned, and cut into tokens".to_string(),
            0.0,
            0.0,
        ),
        (
            "2 pre-training",
            format!("20 tokens per parameter: {}", words(pretraining)),
            pretraining,
            training,
        ),
        (
            "3 fine-tuning",
            format!("10,000 examples x 500 tokens x 3: {}", words(tuned)),
            tuned,
            training,
        ),
        ("4 deployment", format!("a billion tokens: {}", words(SERVED)), SERVED, forward),
    ]
}

/// The four stages of a model's life, in FLOPs.
pub fn life_cycle(screen: &Screen, name: &str, shape: &ModelShape) -> String {
    let all = stages(shape);
    let whole: f64 = all.iter().map(|(_, _, tokens, each)| tokens * each).sum();
    let row = |(stage, what, tokens, each): &(&str, String, f64, f64)| {
        let flops = tokens * each;
        let per_token = match each / shape.parameters() as f64 {
            0.0 => "-".to_string(),
            each => format!("{each} N"),
        };
        let share = if flops > 0.0 {
            format!("{}%", significant(100.0 * flops / whole, 2))
        } else {
            "-".to_string()
        };
        let flops = if flops > 0.0 {
            format!("{flops:.1e}")
        } else {
            "-".to_string()
        };
        vec![stage.to_string(), what.clone(), per_token, flops, share]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let words = format!(
        "{name}, N = {} parameters. Data costs work that is not the model's. Not tried here: emergent abilities, which need \
         models a thousand times this lab's, and alignment, which needs people's judgements of answers.",
        kit::show::thousands(shape.parameters())
    );
    let head = ["stage", "what", "per token", "FLOPs", "share"];
    format!("{}\n{}", table(screen, &head, &rows), screen.wrap(&words, 2))
}

/// Shows what the stages of a model's life cost, and fine-tunes the model if it has weights.
///
/// # Errors
/// If the strategy does not divide the model, or the loss did not fall.
pub fn show_life_cycle(
    screen: &Screen,
    options: &Options,
    model: &Model,
    strategy: &Candidate,
    dtype: Precision,
) -> Result<()> {
    let first = launch::is_first_process();
    if first {
        screen.say(life_cycle(screen, &model.name, &model.shape));
    }
    if model.weights.is_none() {
        if first {
            screen.say("  With --model FOLDER, the lab also fine-tunes a model.");
        }
        return Ok(());
    }
    let tuned = launch::run_with(strategy.ranks, options, |comm| {
        fine_tune(&comm, model, &strategy.config, dtype, FINE_TUNING)
    })?;
    let mut checks = Checks::new(screen);
    if first {
        let [before, after] = [tuned[0].before, tuned[0].after];
        checks.check(
            after < before,
            &format!("{FINE_TUNING} steps on 6 answers: the loss fell"),
            &format!("{before:.3} to {after:.3}"),
            "the loss did not fall",
        );
    }
    kit::ensure_passed(&checks.failed())
}

// ANCHOR: fine_tune
/// Fine-tunes a pretrained model on a few sentences, on the rank that is `comm`'s.
pub fn fine_tune(
    comm: &Comm,
    model: &Model,
    config: &DsConfig,
    dtype: Precision,
    steps: usize,
) -> Result<FineTuned> {
    let weights = model.pretrained("fine-tuning")?;
    if config.stages() > 1 {
        return Err(BadInput::new(
            "the fine-tuning has no pipeline",
            "leave --pp out: --tp and --zero divide it",
        )
        .into());
    }
    let text = weights.text()?;
    let examples = finetune::examples(&text, &weights.ends)?;
    let strategy = Strategy { micro_batches: Some(1), ..config.strategy(comm.size())? };
    let settings = DsConfig { accumulation: 1, clip: 1.0, ..config.clone() };
    let settings = settings.training(model.shape, &strategy, 1);
    let zero = ZeroConfig::new(config.zero_stage, dtype, config.adamw);
    let mut training = model.train(Setup::new(&settings, &strategy).zero(zero), comm)?;
    finetune::fine_tune(&mut training, &examples, steps)
}
// ANCHOR_END: fine_tune

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretraining_is_120_n_squared() {
        let shape = ModelShape::preset("llama-3.2-1b").unwrap();
        let n = shape.parameters() as f64;
        let [data, pretraining, tuning, serving] =
            stages(&shape).map(|(_, _, tokens, each)| tokens * each);
        assert_eq!(
            [data, pretraining, tuning, serving],
            [0.0, 120.0 * n * n, 6.0 * n * 15e6, 2.0 * n * 1e9]
        );
        let text = life_cycle(&Screen::plain(), "llama-3.2-1b", &shape);
        assert!(text.contains("1.8e20") && text.contains("emergent"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
