//! A model's life: the FLOPs of each stage as areas, to one scale.

use crate::draw::{Anchor, Coat, Ink, Sketch};
use anyhow::Result;
use kit::show::general;
use labs::lab10::stages;

const MODEL: &str = "llama-3.2-1b";

/// Tokens in words: 24,700,000,000 is 24.7 billion.
fn tokens(number: f64) -> String {
    let (unit, words) = if number >= 1e9 {
        (1e9, "billion")
    } else {
        (1e6, "million")
    };
    format!("{} {words} tokens", general(number / unit, 3))
}

/// The stages of a model's life.
pub(super) fn picture() -> Result<String> {
    const SIDE: f64 = 150.0;
    const BASE: f64 = 176.0;
    let all = stages(&shapes::llamas::named(MODEL)?).map(|(_, _, tokens, each)| [tokens, each]);
    let most = all[1][0] * all[1][1];
    let each = all[3][1];
    // As many tokens as take the FLOPs of pre-training.
    let long = [most / each, each];
    let columns = [
        (0.0, "pre-training", all[1], Coat::Full),
        (170.0, "fine-tuning", all[2], Coat::Full),
        (330.0, "deployment", all[3], Coat::Full),
        (448.0, "as much deployment", long, Coat::Dashes),
    ];
    let mut sketch = Sketch::wide(600.0);
    for (left, name, [number, each], coat) in columns {
        let side = SIDE * (number * each / most).sqrt();
        sketch.words((left, 14.0), Anchor::Start, name);
        let ink = if coat == Coat::Full { Ink::Kind(0) } else { Ink::Page };
        sketch.boxed((left, BASE - side), (side, side), ink, coat, "");
        sketch.words((left, BASE + 20.0), Anchor::Start, tokens(number));
        let flops = format!("{:.1e} FLOPs", number * each);
        sketch.words((left, BASE + 38.0), Anchor::Start, flops);
    }
    let title = "FLOPs of a model's life as areas: pre-training dwarfs fine-tuning and a billion deployed tokens, until 74 billion";
    Ok(sketch.svg(title, BASE + 46.0))
}
