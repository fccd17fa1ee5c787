//! The check of lab04-owners: a GPT's blocks, lists on which one rule loses to the other, and a
//! rank that could get too many.

use exercise::{MOST, owners};
use kit::check::{Evidence, run};
use kit::show::significant;
use shardlab::Result;
use std::cmp::Reverse;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("a block of a GPT on 2 ranks", |evidence| fullest(evidence, &[3, 1, 4, 4], 2, 7)),
        ("four blocks of a GPT on 4 ranks", |evidence| {
            fullest(evidence, &[3, 1, 4, 4].repeat(4), 4, 12)
        }),
        ("9 2 6 5 4 12 8 4 on 2 ranks", |evidence| {
            fullest(evidence, &[9, 2, 6, 5, 4, 12, 8, 4], 2, 25)
        }),
        ("5 1 1 1 1 1 on 2 ranks", |evidence| {
            fullest(evidence, &[5, 1, 1, 1, 1, 1], 2, 5)
        }),
        ("one large and nine small on 2 ranks", |evidence| {
            fullest(evidence, &[20, 1, 1, 1, 1, 1, 1, 1, 1, 1], 2, 24)
        }),
        ("3 matrices on 4 ranks", |evidence| fullest(evidence, &[7, 6, 7], 4, 7)),
    ])
}

/// What the fullest rank of these owners holds. `None` if a rank does not exist.
fn most(owners: &[usize], sizes: &[usize], ranks: usize) -> Option<usize> {
    let mut held = vec![0; ranks];
    for (&rank, size) in owners.iter().zip(sizes) {
        *held.get_mut(rank)? += size;
    }
    held.into_iter().max()
}

/// The fullest rank may hold `allowed` numbers.
fn fullest(evidence: &mut Evidence, sizes: &[usize], ranks: usize, allowed: usize) -> Result<()> {
    evidence.given(format!("{sizes:?} on {ranks} ranks"));
    let got = owners(sizes, ranks);
    evidence.row(got.len() == sizes.len(), "matrices with an owner", sizes.len(), got.len());
    let strangers = got.iter().filter(|&&rank| rank >= ranks).count();
    evidence.row(strangers == 0, "owners that do not exist", 0, strangers);
    if !evidence.agrees() {
        evidence.means(format!(
            "The answer has one owner for each matrix, in the order of the list: a rank from 0 to {}.",
            ranks - 1
        ));
        return Ok(());
    }
    let count = |rank| got.iter().filter(|&&owner| owner == rank).count();
    let crowd = (0..ranks).map(count).max().unwrap_or(0);
    evidence.row(crowd <= MOST, "most matrices of a rank", format!("{MOST} or less"), crowd);
    let held = most(&got, sizes, ranks).unwrap_or(0);
    evidence.row(held <= allowed, "the fullest rank", format!("{allowed} or less"), held);
    if evidence.agrees() {
        return Ok(());
    }

    let total: usize = sizes.iter().sum();
    let padding = significant(100.0 * (ranks * held - total) as f64 / total as f64, 2);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let in_order: Vec<usize> = order.iter().map(|turn| turn % ranks).collect();
    let in_runs: Vec<usize> = order.iter().map(|turn| turn * ranks / sizes.len()).collect();
    order.sort_by_key(|&matrix| Reverse(sizes[matrix]));
    let dealt = |deal: &dyn Fn(usize, &[usize]) -> usize| {
        let mut held = vec![0; ranks];
        let mut owners = vec![0; sizes.len()];
        for (turn, &matrix) in order.iter().enumerate() {
            owners[matrix] = deal(turn, &held);
            held[owners[matrix]] += sizes[matrix];
        }
        owners
    };
    let emptiest = dealt(&|_, held| (0..ranks).min_by_key(|&rank| held[rank]).unwrap_or_default());
    let back_and_forth =
        dealt(&|turn, _| (turn % (2 * ranks)).min(2 * ranks - 1 - turn % (2 * ranks)));
    evidence.means_if(
        crowd > MOST,
        format!(
            "A rank has {crowd} matrices. Even if they are small: give them to ranks that have fewer than {MOST}, and of \
             those to the emptiest."
        ),
    );
    evidence.means_if(
        got == in_order || got == in_runs,
        format!(
            "The matrices are dealt in the order of the list. Sizes decide here: the fullest rank has {held} of {total} \
             numbers, and padding adds {padding}% to what is gathered."
        ),
    );
    evidence.means_if(
        got == emptiest,
        format!(
            "The largest first, each to the emptiest rank: mostly good, and never above 4/3 of the best. Here its fullest \
             rank has {held}, and dealt back and forth (0 1 1 0 on two ranks) it would have {allowed}. Try both, and keep \
             the better one."
        ),
    );
    evidence.means_if(
        got == back_and_forth,
        format!(
            "Dealt back and forth, the largest first: good if sizes are alike. Here the fullest rank has {held}. Given each \
             to the emptiest rank, it would have {allowed}. Try both, and keep the better one."
        ),
    );
    evidence.means(format!(
        "The fullest rank has {held} of {total} numbers on {ranks} ranks. All others wait for it, and padding adds {padding}% to \
         what is gathered."
    ));
    Ok(())
}
