//! The source's two figures, from the counts of its own benchmark.
//!
//! Its repository has them, aws-samples/sample-smml-cookbook at commit f9e546e:
//! `theoretical_tflops` in src/utils/model_utils.py, lines 365 to 417. The program that printed
//! the notebook's lines is in none of its commits. Its figures follow from these counts.

use super::lines::{PRICE_PER_HOUR, Timed, cost_per_million};
use kit::show::{Screen, thousands};

/// Parameters of Llama-3.2-1B, of its token table, and its width.
const PARAMETERS: f64 = 1_235_814_400.0;
const TOKEN_TABLE: f64 = 262_668_288.0;
const WIDTH: f64 = 2048.0;

/// Both runs have 32 tokens: 4 sequences of 8, or 1 of 32.
const TOKENS: f64 = 32.0;

/// FLOPs and bytes of a backward pass and of an update, in those of a forward pass and of a read
/// and a write of all weights.
const BACKWARD: f64 = 2.0;
const UPDATE: f64 = 2.0;

/// What the TFLOPs are multiplied by, and the intensity is not: `error_factor`, to "account for
/// what isn't being calculated".
const ERROR_FACTOR: f64 = 2.0;

/// The source's FLOPs of a step: 10 per parameter and token.
fn flops(parameters: f64) -> f64 {
    let forward = 2.0 * parameters * TOKENS;
    forward * (1.0 + BACKWARD + UPDATE)
}

/// The source's bytes of a step with weights of 2 bytes: 14 per parameter, and some for
/// activations.
fn bytes(parameters: f64) -> f64 {
    let weights = 2.0 * parameters;
    let keys_values_outputs = 3.0 * 2.0 * TOKENS * WIDTH;
    let forward = weights + keys_values_outputs;
    forward + BACKWARD * forward + UPDATE * 2.0 * weights
}

/// A line of the source: its TFLOPs have the factor.
fn line(batch: usize, seconds: f64, parameters: f64) -> String {
    let seq = TOKENS as usize / batch;
    let tflops = ERROR_FACTOR * flops(parameters) / seconds / 1e12;
    let intensity = flops(parameters) / bytes(parameters);
    format!("Batch={batch}|Seq={seq} Elapsed={seconds:.4}s TFLOPs={tflops:.1} AI={intensity:.2}")
}

/// Seconds of the two benchmarks that ended, the first before rounding.
const ONE_GPU: f64 = 0.518954;
const TWO_GPUS: f64 = 1.5907;

/// The first benchmark, if a training step is 6 FLOPs per parameter and token, and each bf16
/// weight is read twice, its gradient written once.
fn counted() -> Timed {
    Timed {
        batch: 4,
        seq: 8,
        seconds: ONE_GPU,
        flops: 6.0 * PARAMETERS * TOKENS,
        bytes: 3.0 * 2.0 * PARAMETERS,
    }
}

/// The source's figures, rebuilt digit by digit, beside those of a training step.
pub fn note(screen: &Screen) -> String {
    let whole = |count: f64| thousands(count as u64);
    let flops_of_all = flops(PARAMETERS);
    let bytes_of_all = bytes(PARAMETERS);
    let words = |text: &str| screen.wrap(text, 2);
    let first = format!("Tokens: 32, Time: {ONE_GPU:.3}s");
    let cost = cost_per_million(TOKENS as usize, ONE_GPU, PRICE_PER_HOUR);
    let lines = [
        format!("  {}", line(4, ONE_GPU, PARAMETERS)),
        "  --- Breakdown ---".to_string(),
        format!("  {first}, Cost/1M: ${cost:.5}"),
        String::new(),
        words("Rebuilt from the source's own counts, for N = 1,235,814,400 parameters:"),
        String::new(),
        "           forward    backward   update     together".to_string(),
        format!(
            "  FLOPs    2 N x 32   4 N x 32   4 N x 32   10 N x 32 = {}",
            whole(flops_of_all)
        ),
        format!(
            "  bytes    2 N + a    4 N + 2a   8 N        14 N + 3a = {}",
            whole(bytes_of_all)
        ),
        format!(
            "  TFLOPs   2 x {} / {ONE_GPU} s = {:.4}e12",
            whole(flops_of_all),
            ERROR_FACTOR * flops_of_all / ONE_GPU / 1e12
        ),
        format!(
            "  AI       {} / {} = {:.4}",
            whole(flops_of_all),
            whole(bytes_of_all),
            flops_of_all / bytes_of_all
        ),
        String::new(),
        words(&format!(
            "a: {} bytes of keys, values and outputs. The 2 of TFLOPs is the source's `error_factor`, for \"what isn't being \
             calculated\"; AI does without it.",
            whole(3.0 * 2.0 * TOKENS * WIDTH)
        )),
        String::new(),
        format!("  {}", counted().line()),
        words(
            "The same run, if a training step is 6 N FLOPs per token, and each bf16 weight is read twice and its gradient written \
             once. So the source's 1.5 TFLOPs are 3.3 times too many.",
        ),
        String::new(),
        format!("  {}", line(1, TWO_GPUS, TOKEN_TABLE)),
        words(&format!(
            "ZeRO-3 on two devices. With all N it would be TFLOPs={:.1} AI=22.86. A sharded parameter counts as 0 until it is \
             gathered. Any N from 159 to 372 million gives both figures; the token table alone has {}. A guess, not a known cause.",
            ERROR_FACTOR * flops_of_all / TWO_GPUS / 1e12,
            whole(TOKEN_TABLE)
        )),
    ];
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_and_fourteen_and_a_factor() {
        let shape = shapes::llamas::named("llama-3.2-1b").unwrap();
        assert_eq!(PARAMETERS, shape.parameters() as f64);
        assert_eq!(WIDTH, shape.embd as f64);
        assert_eq!(TOKEN_TABLE, (shape.vocabulary * shape.embd) as f64);
        assert_eq!(flops(1.0), 10.0 * TOKENS);
        assert_eq!(bytes(1.0) - bytes(0.0), 14.0);
        assert_eq!(
            line(4, ONE_GPU, PARAMETERS),
            "Batch=4|Seq=8 Elapsed=0.5190s TFLOPs=1.5 AI=22.86"
        );
        assert_eq!(
            line(1, TWO_GPUS, TOKEN_TABLE),
            "Batch=1|Seq=32 Elapsed=1.5907s TFLOPs=0.1 AI=22.85"
        );
        assert_eq!(counted().line(), "Batch=4|Seq=8 Elapsed=0.5190s TFLOPs=0.46 AI=32.00");
    }

    /// The numbers of parameters that give both figures of the second line.
    #[test]
    fn from_159_to_372_million_parameters_give_the_second_line() {
        let printed = "Batch=1|Seq=32 Elapsed=1.5907s TFLOPs=0.1 AI=22.85";
        let millions: Vec<usize> =
            (1..1300).filter(|&n| line(1, TWO_GPUS, n as f64 * 1e6) == printed).collect();
        assert_eq!((millions[0], millions[millions.len() - 1]), (159, 372));
        assert_ne!(line(1, TWO_GPUS, PARAMETERS), printed);
    }

    #[test]
    fn the_screen_has_every_digit_and_fits() {
        let note = note(&Screen::plain());
        for words in [
            "Tokens: 32, Time: 0.519s, Cost/1M: $5.45082",
            "10 N x 32 = 395,460,608,000",
            "14 N + 3a = 17,302,581,248",
            "= 1.5241e12",
            "= 22.8556",
        ] {
            assert!(note.contains(words), "{words}\n{note}");
        }
        assert!(note.lines().all(|line| line.chars().count() <= 80), "{note}");
        assert!(note.lines().count() <= 45, "{note}");
    }
}
