//! Lists of numbers: are they alike, where are they, how are they said?

use std::fmt::Display;

/// Where `list` begins in `whole`.
pub(super) fn locate(
    list: &[f32],
    whole: &[f32],
    same: impl Fn(f32, f32) -> bool,
) -> Option<usize> {
    if list.is_empty() {
        return None;
    }
    let mut windows = whole.windows(list.len());
    windows.position(|window| list.iter().zip(window).all(|(x, y)| same(*x, *y)))
}

pub(super) fn near(got: &[f32], expected: &[f32], bound: f32) -> bool {
    let size = (norm(expected) / (expected.len().max(1) as f64).sqrt()) as f32;
    let mut pairs = got.iter().zip(expected);
    got.len() == expected.len() && pairs.all(|(x, y)| (x - y).abs() <= bound * (y.abs() + size))
}

/// Whether two lists differ by no more than such a share of their length.
pub(super) fn rounded(got: &[f32], expected: &[f32], share: f64) -> bool {
    let pairs = got.iter().zip(expected);
    let differences: Vec<f32> = pairs.map(|(x, y)| x - y).collect();
    got.len() == expected.len() && norm(&differences) <= share * norm(expected)
}

pub(super) fn norm(numbers: &[f32]) -> f64 {
    let squares = numbers.iter().map(|x| f64::from(*x).powi(2));
    squares.sum::<f64>().sqrt()
}

pub(super) fn digits(x: f64) -> String {
    kit::show::general(x, 4)
}

/// `0, 1 and 2`
pub(super) fn listed(numbers: &[impl Display]) -> String {
    match numbers {
        [] => String::new(),
        [number] => number.to_string(),
        [numbers @ .., last] => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!("{} and {last}", numbers.join(", "))
        }
    }
}
