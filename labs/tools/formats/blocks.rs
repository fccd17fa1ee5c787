//! What one scale for many numbers costs: fp8 with a scale per tensor, per row and per block.
//!
//! An emulation: the numbers are those that fp8 has, and the arithmetic is f32's.

use crate::seen::{Matrix, Step};
use kit::number_format::NumberFormat;
use kit::show::{Screen, percent, table as of_rows, thousands};

/// How many numbers have a scale together.
type Group = fn(&Matrix) -> usize;

const GROUPS: [(&str, Group); 4] = [
    ("tensor", |x| x.numbers.len()),
    ("row", |x| x.cols),
    ("128", |x| x.cols.min(128)),
    ("32", |x| x.cols.min(32)),
];

/// How much larger than the median some activations of language models are: Sun et al., *Massive
/// Activations in Large Language Models* (arXiv 2402.17762).
const OUTLIER: f32 = 1e5;

/// The error of a step's tensors under each scale. Then the activations with one outlier: the
/// numbers that share its scale, and their error.
pub fn table(screen: &Screen, step: &Step) -> String {
    let mut rows = Vec::new();
    for (name, x) in &step.matrices {
        let errors = GROUPS.map(|(_, group)| percent(error(&x.numbers, x.cols, group(x))));
        rows.push([vec![name.to_string()], errors.to_vec()].concat());
    }
    if let Some((_, x)) = step.matrices.iter().find(|(name, _)| *name == "activations") {
        let [count, errors] = beside_an_outlier(x);
        rows.push([vec!["numbers beside an outlier".to_string()], count].concat());
        rows.push([vec!["  their error".to_string()], errors].concat());
    }
    let mut head = vec!["error in fp8 e4m3, a scale per"];
    head.extend(GROUPS.map(|(name, _)| name));
    of_rows(screen, &head, &rows) + "\n"
}

/// The numbers that share a scale with the outlier, and their error.
fn beside_an_outlier(x: &Matrix) -> [Vec<String>; 2] {
    let mut sizes: Vec<f32> = x.numbers.iter().map(|x| x.abs()).collect();
    sizes.sort_by(f32::total_cmp);
    let median = sizes[sizes.len() / 2];
    let at = x.numbers.len() / 2;
    let both = GROUPS.into_iter().map(|(_, group)| {
        let group = group(x);
        let first = at / group * group;
        let mut beside = x.numbers[first..first + group].to_vec();
        beside[at - first] = OUTLIER * median;
        let stored = stored(&beside, group, group);
        let rest = |numbers: &[f32]| [&numbers[..at - first], &numbers[at - first + 1..]].concat();
        let error = apart(&rest(&beside), &rest(&stored));
        (thousands(group as u64 - 1), percent(error))
    });
    let (counts, errors) = both.unzip();
    [counts, errors]
}

/// The error of rows of `cols` numbers, of which each `group` has a scale: a share of their norm.
fn error(numbers: &[f32], cols: usize, group: usize) -> f64 {
    apart(numbers, &stored(numbers, cols, group))
}

fn apart(x: &[f32], y: &[f32]) -> f64 {
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut x.iter().zip(y).map(|(x, y)| f64::from(x - y)));
    difference / norm(&mut x.iter().map(|&x| f64::from(x)))
}

/// What comes back from e4m3 if each `group` has a scale, with which its largest number is the
/// format's.
fn stored(numbers: &[f32], cols: usize, group: usize) -> Vec<f32> {
    let format = NumberFormat::E4M3;
    let mut all = Vec::new();
    for row in numbers.chunks(cols.max(group)) {
        for group in row.chunks(group) {
            let largest = group.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            let scale = f64::from(largest) / format.largest;
            let back = |&x: &f32| match largest {
                0.0 => 0.0,
                _ => (format.round(f64::from(x) / scale) * scale) as f32,
            };
            all.extend(group.iter().map(back));
        }
    }
    all
}
