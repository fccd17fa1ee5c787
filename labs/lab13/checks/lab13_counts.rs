//! The check of lab13-counts: the experts that the library gives each rank, and what they get.

use exercise::copies;
use kit::check::{Evidence, run};
use shardlab::parallel::ExpertParallel;
use shardlab::{Result, launch};
use std::process::ExitCode;

const RANKS: usize = 4;
const EXPERTS: usize = 8;
/// The experts of rank 1's tokens.
const CHOSEN: [[usize; 2]; 6] = [[2, 5], [3, 2], [6, 7], [0, 2], [1, 6], [3, 4]];

pub fn main() -> ExitCode {
    run(&[("what rank 1 sends", sent)])
}

/// Copies to each rank, if an expert is on the rank that `of` names.
fn copies_if(of: impl Fn(usize) -> usize) -> [usize; RANKS] {
    let mut copies = [0; RANKS];
    CHOSEN
        .iter()
        .flatten()
        .for_each(|&expert| copies[of(expert).min(RANKS - 1)] += 1);
    copies
}

fn sent(evidence: &mut Evidence) -> Result<()> {
    let shares = launch::run(RANKS, |comm| Ok(ExpertParallel::new(comm).share(EXPERTS)))?;
    let holder =
        |expert: usize| shares.iter().position(|share| share.contains(&expert)).unwrap_or(RANKS);
    let right = copies_if(holder);
    let got = copies();
    let words = |copies: &[usize; RANKS]| copies.map(|count| count.to_string()).join(", ");
    evidence.answer("copies to ranks 0 to 3", words(&right), words(&got));
    let mut without_own = right;
    without_own[1] = 0;
    evidence.means_if(
        got == without_own,
        "Rank 1's own experts are missing. Its copies for them need no network, and in the all-to-all they are its part for itself.",
    );
    let mut once = [0; RANKS];
    for chosen in CHOSEN {
        for (rank, share) in shares.iter().enumerate() {
            once[rank] += usize::from(chosen.iter().any(|expert| share.contains(expert)));
        }
    }
    evidence.means_if(
        got == once,
        "This is one copy for each token and rank, as DeepEP sends them. Here a token whose two experts are on one rank goes there twice.",
    );
    evidence.means_if(
        got == copies_if(|expert| expert % RANKS),
        "Experts are dealt like cards here, 0 and 4 to rank 0. In rank order, a rank's experts are neighbours: 0 and 1 are on rank 0.",
    );
    evidence.means_if(
        got == copies_if(|expert| expert.saturating_sub(1) / 2),
        "Experts are counted from 1 here, and they begin with 0: experts 0 and 1 are on rank 0.",
    );
    let mut firsts = [0; RANKS];
    CHOSEN.iter().for_each(|chosen| firsts[holder(chosen[0])] += 1);
    evidence.means_if(
        got == firsts,
        "Only each token's first expert counts here. Both of them compute, so each gets a copy.",
    );
    let all = CHOSEN.as_flattened().len();
    evidence.means_if(
        got == [all / RANKS; RANKS],
        "This is the mean, as on an even load. The router has chosen otherwise: count.",
    );
    let sum: usize = got.iter().sum();
    evidence.means_if(
        sum != all,
        format!("These are {sum} copies. Six tokens with two experts each make {all}, whatever the ranks."),
    );
    evidence.means(
        "The sum is right. Rank 0 holds experts 0 and 1, rank 1 holds 2 and 3, and so on: how often does each pair of numbers occur?",
    );
    Ok(())
}
