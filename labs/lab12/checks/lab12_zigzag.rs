//! The check of lab12-zigzag: the positions that the library gives the rank.

use exercise::chunks_of_rank_2;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::parallel::context::Slicing;
use std::process::ExitCode;

const LENGTH: usize = 1600;
const RANKS: usize = 8;
const RANK: usize = 2;

pub fn main() -> ExitCode {
    run(&[("the chunks of rank 2", chunks)])
}

fn chunks(evidence: &mut Evidence) -> Result<()> {
    let slices = Slicing::ZigZag.slices(LENGTH, RANKS, RANK);
    let right: Vec<usize> =
        slices.runs(0..slices.rows()).map(|(_, positions)| positions.start).collect();
    let got = chunks_of_rank_2();
    let words = |starts: &[usize]| format!("{} and {}", starts[0], starts[1]);
    evidence.answer("they begin at", words(&right), words(&got));
    let chunk = LENGTH / (2 * RANKS);
    let [early, late] = got;
    evidence.means_if(
        [late, early] == right[..],
        "These are the chunks, but the later one comes first.",
    );
    evidence.means_if(
        got == [2 * RANK * chunk, (2 * RANK + 1) * chunk],
        "These are two neighbouring chunks: the contiguous order, in which the last rank has most work.",
    );
    evidence.means_if(
        early == right[0] && late == (2 * RANKS - RANK) * chunk,
        "The first chunk is right. The other one is counted from the end, and the end counts from 0, too: rank 0 has the last chunk, number 15.",
    );
    evidence.means_if(
        got == [RANK, 2 * RANKS - 1 - RANK],
        "These are the numbers of its chunks. A chunk has 100 positions: where do these two begin?",
    );
    evidence.means_if(
        early == right[0] && late == (RANK + RANKS) * chunk,
        "The second chunk is half a sequence later. Every rank would then have a late one, but the last rank's would be latest.",
    );
    evidence.means_if(
        got == [2 * RANK * chunk, 2 * (RANK + 1) * chunk],
        "A chunk has 100 positions, not 200: eight ranks have two each. And zig-zag chunks are not neighbours.",
    );
    evidence.means_if(
        early == right[0],
        "The first chunk is right. The other one is as far from the end as this one from the beginning.",
    );
    evidence.means_if(
        late == right[1],
        "The later chunk is right. Which one is as far from the beginning? Rank 0 has chunk 0.",
    );
    evidence.means_if(
        got == [(RANK - 1) * chunk, (2 * RANKS - RANK) * chunk],
        "These are rank 1's: ranks and chunks count from 0.",
    );
    evidence.means(
        "There are 16 chunks of 100 positions. Rank 0 has the first and the last of them. Which two are left for rank 1, and \
         then for rank 2?",
    );
    Ok(())
}
