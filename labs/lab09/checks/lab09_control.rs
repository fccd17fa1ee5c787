//! The check of lab09-control: the answer's padding and slice, by the library's cut.

use exercise::smallest;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::parallel::partition::Flat;
use std::process::ExitCode;

const NUMEL: usize = 40;
/// More than anyone tries by hand.
const MOST: usize = 1000;

pub fn main() -> ExitCode {
    run(&[("the smallest number of ranks that fails", fails_first)])
}

/// The padding and the slice on `ranks` ranks.
fn cut(ranks: usize) -> (usize, usize) {
    let flat = Flat { numel: NUMEL, ranks };
    (flat.padded() - NUMEL, flat.shard_numel())
}

fn fails(ranks: usize) -> bool {
    let (padding, slice) = cut(ranks);
    padding > slice
}

/// The first number of ranks that fails if a group were padded to a multiple of n, not of 2n.
fn without_the_two() -> usize {
    let fails = |n: &usize| NUMEL.next_multiple_of(*n) - NUMEL > NUMEL.div_ceil(*n);
    (1..=MOST).find(fails).unwrap_or_default()
}

fn shown(ranks: usize) -> String {
    if ranks == 0 || ranks > MOST {
        return format!("{ranks} ranks");
    }
    let (padding, slice) = cut(ranks);
    format!("{ranks} ranks: padding {padding}, slice {slice}")
}

fn fails_first(evidence: &mut Evidence) -> Result<()> {
    let got = smallest();
    let first = (1..=MOST).find(|&ranks| fails(ranks)).unwrap_or_default();
    if evidence.answer("fails first", shown(first), shown(got)) {
        return Ok(());
    }
    if got == 0 || got > MOST {
        evidence.means("A group of 40 elements is cut among a few ranks. Try them from 1 on.");
        return Ok(());
    }
    let (padding, slice) = cut(got);
    evidence.means_if(
        padding == slice,
        "The padding is as long as the slice, so nothing is left of it. A length of 0 is no error; a negative one is.",
    );
    evidence.means_if(
        fails(got) && got == without_the_two(),
        "It fails here, and first it fails elsewhere: the group is padded to a multiple of 2n, not of n.",
    );
    evidence.means_if(fails(got), "It fails here, but with fewer ranks, too.");
    // The bound that the page derives: necessary, not sufficient.
    let root = ((NUMEL / 2) as f64).sqrt();
    evidence.means_if(
        got == root.ceil() as usize || got == root.floor() as usize,
        format!(
            "Near the root of half the elements padding can become longer than a slice. It need not: here it is {padding} beside \
             {slice}. Try the next numbers."
        ),
    );
    evidence.means(format!(
        "With {got} ranks the padding, {padding}, fits into the slice, {slice}: the old rule is right."
    ));
    Ok(())
}
