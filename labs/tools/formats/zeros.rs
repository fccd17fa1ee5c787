//! What small gradients lose: with a loss scale and without.

use crate::seen::{EXPONENTS, Magnitudes, Step};
use kit::number_format::{NumberFormat, exponent};
use kit::show::{Screen, percent, table as of_rows};

/// The scales: none, DeepSpeed's first one and Megatron-LM's, as powers of two.
const SCALES: [i32; 3] = [0, 16, 32];

/// The gradients of activations that become 0, and those that are too large, in each format.
pub fn table(screen: &Screen, step: &Step) -> String {
    let seen = &step.activation_gradients;
    let rows: Vec<Vec<String>> = NumberFormat::ALL[1..]
        .iter()
        .map(|format| {
            let shares = SCALES.iter().map(|&scale| {
                let [zero, beyond] = lost(format, seen, scale);
                match beyond {
                    0.0 => percent(zero),
                    _ => format!("{}, {} inf", percent(zero), percent(beyond)),
                }
            });
            std::iter::once(format.name.to_string()).chain(shares).collect()
        })
        .collect();
    let head = ["gradients become 0", "as they are", "times 2^16", "times 2^32"];
    of_rows(screen, &head, &rows) + "\n"
}

/// The shares of numbers that become 0 and that are too large, if all are multiplied by 2^`scale`.
/// Half of the smallest number becomes 0: numbers between are counted by their exponent.
fn lost(format: &NumberFormat, seen: &Magnitudes, scale: i32) -> [f64; 2] {
    let all = seen.count().max(1) as f64;
    let zero = seen.within(EXPONENTS.start..format.least() - 1 - scale);
    let beyond = seen.within(exponent(format.largest) + 1 - scale..EXPONENTS.end);
    [zero, beyond].map(|count| count as f64 / all)
}
