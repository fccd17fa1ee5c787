//! A mistake that explains the source's four errors: each rank walks its own sequences as if they
//! were the global batch.
//!
//! It is a likely cause and not a known one: no commit of the source's repository has the program
//! that ran. With 16 sequences each of 4 ranks has 4 of them, and the micro-batches of a batch of
//! 16 in 4 parts begin at sequence 0, 4, 8 and 12. So the first has all sequences of the rank, and
//! three are empty, on every rank.

use super::benchmark::on_ranks;
use super::config::share;
use anyhow::Result;
use kit::Checks;
use kit::show::{Screen, table};
use shardlab::comm::Options;
use shardlab::launch;
use std::ops::Range;

/// The sequences of each micro-batch among a rank's own `own`, if micro-batches are as long as
/// those of a batch of `sequences`.
fn walked(own: usize, sequences: usize, micro_batches: usize) -> Vec<Range<usize>> {
    let each = sequences / micro_batches;
    (0..micro_batches)
        .map(|micro| (micro * each).min(own)..((micro + 1) * each).min(own))
        .collect()
}

/// Lets `ranks` data ranks cut their parts of a batch into micro-batches, with the mistake.
/// Returns what the check found wrong.
///
/// # Errors
/// If the batch cannot be divided evenly, or ranks cannot reach each other.
pub fn local_as_global(
    screen: &Screen,
    options: &Options,
    ranks: usize,
    sequences: usize,
    micro_batches: usize,
) -> Result<Vec<String>> {
    let right = share(sequences, ranks, micro_batches)?;
    let lengths = on_ranks(ranks, options, |comm| {
        let walked = walked(sequences / comm.size(), sequences, micro_batches);
        let mine: Vec<u64> = walked.iter().map(|micro| micro.len() as u64).collect();
        Ok(comm.gathered(&mine)?)
    })?;
    if !launch::is_first_process() {
        return Ok(Vec::new());
    }
    let own = sequences / ranks;
    let each = vec![right.to_string(); micro_batches].join(" ");
    let of_ranks: Vec<&[u64]> = lengths.chunks_exact(micro_batches).collect();
    let rows = of_ranks.iter().enumerate().map(|(rank, lengths)| {
        let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
        [rank.to_string(), own.to_string(), each.clone(), lengths.join(" ")]
    });
    let head = ["rank", "sequences", "micro-batches of", "walked as the global batch"];
    screen.say(table(screen, &head, rows));
    screen.say("");
    let empty: Vec<usize> = of_ranks
        .iter()
        .map(|of| of.iter().filter(|&&length| length == 0).count())
        .collect();
    let with_an_empty_one = empty.iter().filter(|&&count| count > 0).count();
    let mut checks = Checks::new(screen);
    checks.check(
        with_an_empty_one == 0,
        "every micro-batch has sequences",
        &format!("{with_an_empty_one} of {ranks} ranks have empty ones"),
        &format!(
            "{} of {micro_batches} micro-batches are empty on each rank: a rank took its own sequences for the global batch",
            empty.iter().max().unwrap_or(&0)
        ),
    );
    Ok(checks.failed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source's case, and a rank that walks its own sequences alone.
    #[test]
    fn sixteen_sequences_on_four_ranks_leave_three_empty_micro_batches_on_each() {
        assert_eq!(walked(4, 16, 4), [0..4, 4..4, 4..4, 4..4]);
        assert_eq!(walked(16, 16, 4), [0..4, 4..8, 8..12, 12..16]);
        let failed = |ranks, sequences, micro_batches| {
            let screen = Screen::plain();
            local_as_global(&screen, &Options::default(), ranks, sequences, micro_batches)
                .unwrap()
                .len()
        };
        assert_eq!(failed(4, 16, 4), 1);
        // One rank's own sequences are the global batch, and one micro-batch is never too short.
        assert_eq!([failed(1, 16, 4), failed(4, 16, 1)], [0, 0]);
        assert!(local_as_global(&Screen::plain(), &Options::default(), 4, 6, 2).is_err());
    }
}
