//! Who gets how much, over the training.

use super::Taken;
use kit::show::{Heat, Panel, percent};

/// The steps at the end over which loads are summed.
pub const LAST: usize = 20;

/// The difference as a part of what is expected.
pub fn relative(found: f64, expected: f64) -> f64 {
    (found - expected).abs() / expected.abs().max(f64::MIN_POSITIVE)
}

/// Copies for each expert beside an even load, step by step: of the first layer with experts, which
/// is layer `first` of the model, and of the last.
pub fn heat(steps: &[Taken], ranks: usize, first: usize) -> Heat<'static> {
    let layers = steps.first().map_or(0, |step| step.copies.len());
    let number = steps.first().map_or(0, |step| step.copies[0].len());
    let panel = |layer: usize| {
        let mut cells = vec![Vec::new(); number];
        for step in steps {
            let copies = &step.copies[layer];
            for (of_expert, share) in cells.iter_mut().zip(shares(copies)) {
                of_expert.push(share);
            }
        }
        Panel { title: format!("layer {}", first + layer), cells }
    };
    let shown = if layers > 1 { vec![0, layers - 1] } else { vec![0] };
    let rank = |expert: usize| expert * ranks / number;
    Heat {
        title: "Copies for each expert".to_string(),
        rows: (0..number)
            .map(|expert| (format!("rank {} expert {expert}", rank(expert)), rank(expert)))
            .collect(),
        panels: shown.into_iter().map(panel).collect(),
        axis: "step",
    }
}

/// How many copies capacities dropped in the beginning and at the end.
pub fn dropped(steps: &[Taken]) -> String {
    let few = steps.len().min(20);
    let part = |steps: &[Taken]| {
        let sum = |of: fn(&Taken) -> u64| steps.iter().map(of).sum::<u64>() as f64;
        percent(sum(|step| step.dropped[0]) / sum(|step| step.counted[1]))
    };
    let [first, last] = [&steps[..few], &steps[steps.len() - few..]].map(part);
    format!("{first} of the copies in the first {few} steps, {last} in the last {few}")
}

/// Each expert's copies as a multiple of the mean.
pub fn shares(copies: &[u64]) -> Vec<f64> {
    let mean = copies.iter().sum::<u64>() as f64 / copies.len() as f64;
    copies
        .iter()
        .map(|&copies| copies as f64 / mean.max(f64::MIN_POSITIVE))
        .collect()
}

/// The largest share of an expert, and of a rank that holds its part of them: in the layer where
/// it is largest.
pub fn largest_share(copies: &[Vec<u64>], parts: usize) -> f64 {
    let most = |of_layer: &Vec<u64>| {
        let each = of_layer.len() / parts;
        let sums: Vec<u64> = of_layer.chunks(each).map(|part| part.iter().sum()).collect();
        shares(&sums).into_iter().fold(0.0, f64::max)
    };
    copies.iter().map(most).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_beside_the_mean() {
        assert_eq!(shares(&[4, 0, 2, 2]), [2.0, 0.0, 1.0, 1.0]);
        let layers = [vec![2, 2, 2, 2], vec![4, 0, 3, 1]];
        assert_eq!(largest_share(&layers, 4), 2.0);
        assert_eq!(largest_share(&layers, 2), 1.0);
    }
}
