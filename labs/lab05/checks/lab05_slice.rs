//! The check of lab05-slice: the shapes of the cuts, and the bytes that eight ranks really send for Z.

use exercise::{Answers, answers};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shardlab::comm::Reduce;
use shardlab::{Result, launch};
use std::process::ExitCode;

const RANKS: u64 = 8;
const TOKENS: u64 = 1000;
const WIDTH: u64 = 4096;
const HIDDEN: u64 = 16384;

fn main() -> ExitCode {
    run(&[
        ("the slice of A", slice_of_a),
        ("the slice of B", slice_of_b),
        ("the bytes that leave a rank", bytes),
    ])
}

fn shape(shape: [u64; 2]) -> String {
    format!("{} x {}", shape[0], shape[1])
}

fn slice_of_a(evidence: &mut Evidence) -> Result<()> {
    let got = answers().a;
    let right = [WIDTH, HIDDEN / RANKS];
    if evidence.row(got == right, "A on one rank", shape(right), shape(got)) {
        return Ok(());
    }
    evidence.means_if(
        got == [WIDTH, HIDDEN],
        "This is the whole matrix, and not one rank's share: with it each rank would compute, and hold, the MLP eight times over.",
    );
    evidence.means_if(
        got == [WIDTH / RANKS, HIDDEN],
        "These are rows of A. A rank with rows of A gets one summand of X A, and GELU needs complete sums: the ranks would have to \
         communicate before it.",
    );
    evidence.means_if(
        got == [right[1], right[0]],
        "Rows and columns are exchanged. The library and PyTorch store a weight transposed, but the question is about the A of X A.",
    );
    evidence.means_if(
        got == [WIDTH / RANKS, HIDDEN / RANKS],
        "Rows and columns are both cut: eight such pieces are an eighth of A. One cut is enough for 8 ranks.",
    );
    evidence.means_if(
        got == [WIDTH, WIDTH / RANKS],
        "This is an eighth of a matrix of 4096 columns. The hidden layer is four times as wide.",
    );
    evidence.means(
        "A rank has an eighth of A, cut so that it can apply GELU without any other rank. Look at the page's first two figures.",
    );
    Ok(())
}

fn slice_of_b(evidence: &mut Evidence) -> Result<()> {
    let got = answers().b;
    let right = [HIDDEN / RANKS, WIDTH];
    if evidence.row(got == right, "B on one rank", shape(right), shape(got)) {
        return Ok(());
    }
    evidence.means_if(
        got == [HIDDEN, WIDTH],
        "This is the whole matrix, and not one rank's share.",
    );
    evidence.means_if(
        got == [HIDDEN, WIDTH / RANKS],
        "These are columns of B. They need all columns of gelu(X A), and a rank has an eighth of those: the ranks would have to \
         gather them first, four times as many numbers as Z has.",
    );
    evidence.means_if(
        got == [right[1], right[0]],
        "Rows and columns are exchanged: B's rows meet the columns that the rank has of gelu(X A).",
    );
    evidence.means_if(
        got == [WIDTH / RANKS, WIDTH],
        "This is an eighth of a matrix of 4096 rows. The hidden layer is four times as wide.",
    );
    evidence.means(
        "A rank has 2048 columns of gelu(X A). Which part of B do they need, if nothing is sent between the two matrices?",
    );
    Ok(())
}

fn bytes(evidence: &mut Evidence) -> Result<()> {
    // Behind B each rank has one summand of all of Z.
    let sent = launch::run(RANKS as usize, |comm| {
        let mut z = vec![0f32; (TOKENS * WIDTH) as usize];
        let before = comm.traffic();
        comm.all_reduce(&mut z, Reduce::Sum)?;
        Ok((comm.traffic() - before).bytes)
    })?;
    let right = sent[0];
    let got = answers().bytes;
    let at = "bytes that a rank sends";
    if evidence.row(got == right, at, thousands(right), thousands(got)) {
        return Ok(());
    }
    let z = TOKENS * WIDTH * 4;
    let hidden = TOKENS * HIDDEN * 4;
    let of = |bytes: u64| 2 * (RANKS - 1) * (bytes / RANKS);
    evidence.means_if(
        got == z,
        "These are the bytes of Z itself. A ring sends each of its eighths seven times to add it up, and seven times to hand it out.",
    );
    evidence.means_if(
        got == of(z) / 2,
        "This is half of it: one half of an all-reduce, which leaves each rank an eighth of the sum. Here every rank needs all of Z. \
         (That half alone comes with sequence parallelism.)",
    );
    evidence.means_if(got == of(z) / 4, "These are numbers, and each has 4 bytes.");
    evidence.means_if(
        got == 2 * z,
        "This is twice Z, the limit for very many ranks. With 8, a rank does not send its own eighth to itself: 7/8 of it.",
    );
    evidence.means_if(
        got == 2 * of(z),
        "This is twice as much: two all-reduces. The MLP has one in the forward pass, behind B. Its other one is in the backward \
         pass.",
    );
    evidence.means_if(
        got == of(hidden) || got == of(z + hidden),
        "Two ways lead to this number. The hidden layer's numbers never leave their rank: its columns of gelu(X A) meet its own rows of \
         B. And Z does not go whole to each of seven others: a ring adds up on the way.",
    );
    evidence.means_if(
        got == RANKS * of(z),
        "This is what all eight ranks send together.",
    );
    evidence.means_if(
        got == 0,
        "Behind B a rank has one of eight summands of Z. Nothing comes of that without the others.",
    );
    evidence.means(
        "One all-reduce adds up the ranks' summands of Z, and Z has 1000 x 4096 numbers of 4 bytes. On a ring of n ranks, each sends \
         2 (n-1)/n of that.",
    );
    Ok(())
}
