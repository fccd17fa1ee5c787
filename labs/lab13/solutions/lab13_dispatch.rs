//! lab13-dispatch · There and back again

use shardlab::comm::{Comm, Result};

/// One of a token's experts, and the weight of what it makes of the token.
#[derive(Clone, Copy)]
pub struct Choice {
    pub expert: usize,
    pub weight: f64,
}

/// All ranks' experts. Each rank holds as many as any other, in rank order.
pub struct Experts<'a> {
    pub number: usize,
    /// The numbers of a token, and of what an expert makes of it.
    pub width: usize,
    /// What an expert of this rank makes of a token. It has its number among all experts.
    pub compute: &'a dyn Fn(usize, &[f64]) -> Vec<f64>,
}

/// For each of this rank's `tokens`: what its experts make of it, each times its weight, added up.
pub fn mixture(
    comm: &Comm,
    tokens: &[Vec<f64>],
    choices: &[Vec<Choice>],
    experts: &Experts,
) -> Result<Vec<Vec<f64>>> {
    let here = experts.number / comm.size();
    let width = experts.width;

    // Copies in the order of their experts, and so of their ranks.
    let mut copies = Vec::new();
    for (token, chosen) in choices.iter().enumerate() {
        copies.extend(chosen.iter().map(|&choice| (token, choice)));
    }
    copies.sort_by_key(|(_, choice)| choice.expert);
    let send: Vec<f64> = copies.iter().flat_map(|(token, _)| tokens[*token].clone()).collect();

    // How many go to each expert, and how many come for mine from each rank.
    let mut counts = vec![0u64; experts.number];
    for (_, choice) in &copies {
        counts[choice.expert] += 1;
    }
    let mut arriving = vec![0u64; experts.number];
    comm.all_to_all(&counts, &mut arriving)?;
    let numbers = |of_rank: &[u64]| of_rank.iter().sum::<u64>() as usize * width;
    let sends: Vec<usize> = counts.chunks(here).map(numbers).collect();
    let expects: Vec<usize> = arriving.chunks(here).map(numbers).collect();

    let mut arrived = vec![0.0; expects.iter().sum()];
    comm.all_to_all_v(&send, &sends, &mut arrived, &expects)?;

    // What came from one rank lies in the order of my experts.
    let mut rows = arrived.chunks(width);
    let mut results = Vec::new();
    for of_rank in arriving.chunks(here) {
        for (i, &count) in of_rank.iter().enumerate() {
            for row in rows.by_ref().take(count as usize) {
                results.extend((experts.compute)(comm.rank() * here + i, row));
            }
        }
    }

    let mut back = vec![0.0; send.len()];
    comm.all_to_all_v(&results, &expects, &mut back, &sends)?;
    let mut sums = vec![vec![0.0; width]; tokens.len()];
    for ((token, choice), result) in copies.iter().zip(back.chunks(width)) {
        for (sum, x) in sums[*token].iter_mut().zip(result) {
            *sum += choice.weight * x;
        }
    }
    Ok(sums)
}
