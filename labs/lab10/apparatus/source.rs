//! The source's own benchmark, worked backwards: which counts give its two figures.

use super::lines::Timed;
use kit::show::Screen;

/// Parameters of Llama-3.2-1B.
const PARAMETERS: f64 = 1_235_814_400.0;

/// FLOPs per parameter and token, and bytes per parameter, that give the source's TFLOPs and AI.
const FLOPS_EACH: f64 = 20.0;
const BYTES_EACH: f64 = 28.0;

/// The source's first benchmark: 4 sequences of 8 tokens, in 0.5190 s.
fn source() -> Timed {
    let batch = 4;
    let seq = 8;
    let flops = FLOPS_EACH * PARAMETERS * (batch * seq) as f64;
    Timed {
        batch,
        seq,
        seconds: 0.518954,
        flops,
        bytes: BYTES_EACH * PARAMETERS,
    }
}

/// A forward pass counted as this lab counts: 2 FLOPs per parameter and token, and each bf16 weight
/// read once.
fn counted() -> Timed {
    let source = source();
    Timed {
        flops: 2.0 * PARAMETERS * source.tokens() as f64,
        bytes: 2.0 * PARAMETERS,
        ..source
    }
}

/// The source's figures, rebuilt, beside those of a forward pass.
pub fn note(screen: &Screen) -> String {
    let source = source();
    let counted = counted();
    let lines = [
        format!("  {}", source.line()),
        "  --- Breakdown ---".to_string(),
        format!("  {}", source.breakdown()),
        String::new(),
        screen.wrap(
            "The source's figures, rebuilt with N = 1,235,814,400 parameters: 20 N FLOPs per token and 28 N bytes. TFLOPs = \
             20 N x 32 / 0.519 s, and AI = 20 x 32 / 28 for any N. The source does not say what it counts.",
            2,
        ),
        String::new(),
        format!("  {}", counted.line()),
        screen.wrap(
            "The same run, if a forward pass is 2 N FLOPs per token and each bf16 weight is read once. The source's 1.5 TFLOPs are \
             ten times the forward pass. If it counted a training step (6 N), it would still be three times too many.",
            2,
        ),
    ];
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_over_twenty_eight() {
        assert_eq!(PARAMETERS, kit::llamas::named("llama-3.2-1b").unwrap().parameters() as f64);
        assert_eq!(source().line(), "Batch=4|Seq=8 Elapsed=0.5190s TFLOPs=1.5 AI=22.86");
        assert_eq!(source().breakdown(), "Tokens: 32, Time: 0.519s, Cost/1M: $5.45082");
        assert_eq!(counted().line(), "Batch=4|Seq=8 Elapsed=0.5190s TFLOPs=0.15 AI=32.00");
    }
}
