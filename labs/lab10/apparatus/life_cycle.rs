//! The life of a large model in four stages, and what each costs in FLOPs.

use kit::show::{Screen, explained, significant, thousands};
use shardlab::plan::ModelShape;

/// Training tokens per parameter of a compute-optimal model (Hoffmann et al., arXiv 2203.15556).
const TOKENS_PER_PARAMETER: f64 = 20.0;

/// Examples of a supervised fine-tuning, tokens of each, and passes over all of them.
const EXAMPLES: [f64; 3] = [10_000.0, 500.0, 3.0];

/// Tokens of prompts and answers that a deployed model computes.
const SERVED: f64 = 1e9;

/// A stage, the tokens that the model computes in it, and FLOPs per token.
pub fn stages(shape: &ModelShape) -> [(&'static str, String, f64, f64); 4] {
    let n = shape.parameters() as f64;
    let [examples, each, passes] = EXAMPLES;
    let words = |tokens: f64| significant(tokens, 3);
    let [forward, training] =
        [shape.forward_flops_per_token() as f64, shape.training_flops_per_token() as f64];
    let pretraining = TOKENS_PER_PARAMETER * n;
    let tuned = examples * each * passes;
    let data = "text is collected, cleaned, and cut into tokens".to_string();
    let learned = format!("20 tokens per parameter: {}", words(pretraining));
    let examples = format!("10,000 examples x 500 tokens x 3: {}", words(tuned));
    let answers = format!("a billion tokens: {}", words(SERVED));
    [
        ("1 data", data, 0.0, 0.0),
        ("2 pre-training", learned, pretraining, training),
        ("3 fine-tuning", examples, tuned, training),
        ("4 deployment", answers, SERVED, forward),
    ]
}

/// The four stages of a model's life, in FLOPs.
pub fn life_cycle(screen: &Screen, name: &str, shape: &ModelShape) -> String {
    let all = stages(shape);
    let whole: f64 = all.iter().map(|(_, _, tokens, each)| tokens * each).sum();
    let row = |(stage, what, tokens, each): &(&str, String, f64, f64)| {
        let flops = tokens * each;
        let mut cells = vec![stage.to_string(), what.clone()];
        if flops > 0.0 {
            cells.push(format!("{} N", each / shape.parameters() as f64));
            cells.push(format!("{flops:.1e}"));
            cells.push(format!("{}%", significant(100.0 * flops / whole, 2)));
        } else {
            cells.extend(["-"; 3].map(String::from));
        }
        cells
    };
    let words = format!(
        "{name}, N = {} parameters. Data costs work that is not the model's. Not tried here: emergent abilities, which need \
         models a thousand times this lab's, and alignment, which needs people's judgements of answers.",
        thousands(shape.parameters())
    );
    let head = ["stage", "what", "per token", "FLOPs", "share"];
    explained(screen, &head, all.iter().map(row), &words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretraining_is_120_n_squared() {
        let shape = shapes::llamas::named("llama-3.2-1b").unwrap();
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
