//! The check of lab03-batches: sequences lie within the text, can be drawn again, and belong to one
//! rank and step.

use exercise::{Run, starts};
use kit::check::{Evidence, run};
use shardlab::Result;
use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;

/// The text is so long that no two different draws have the same three offsets.
const RUN: Run = Run { seed: 1337, ranks: 4, batch: 3, block: 64, tokens: 1_000_000 };

fn main() -> ExitCode {
    run(&[
        ("a batch has as many sequences as it should", count),
        ("sequences and their targets lie within the text", within),
        ("drawn again, a batch is the same", again),
        ("every step draws its own sequences", steps),
        ("every rank draws its own sequences", ranks),
        ("no batch repeats at a different rank, step or seed", addresses),
        ("every offset in the text is drawn", offsets),
    ])
}

/// The offsets that the reader's code draws.
fn draw(evidence: &Evidence, run: &Run, rank: usize, step: usize) -> Vec<usize> {
    let Run { seed, ranks, batch, block, tokens } = run;
    evidence.given(format!(
        "rank {rank}, step {step} and seed {seed}, ranks {ranks}, batch {batch}, block {block}, tokens {tokens}"
    ));
    starts(run, rank, step)
}

fn count(evidence: &mut Evidence) -> Result<()> {
    for batch in [1, 3, 12] {
        let drawn = draw(evidence, &Run { batch, ..RUN }, 0, 0);
        let long_enough = evidence.same(format!("batch: {batch}"), batch, drawn.len());
        let different = drawn.into_iter().collect::<BTreeSet<_>>().len();
        let all_different =
            evidence.same(format!("batch: {batch}, different offsets"), batch, different);
        evidence.means_if(
            long_enough && !all_different,
            "A batch that repeats one sequence learns from one sequence. `below(offsets, i)` is a different number for every i.",
        );
    }
    evidence.means("`batch` is the number of sequences of one rank at one step.");
    Ok(())
}

fn within(evidence: &mut Evidence) -> Result<()> {
    let run = Run { block: 7, tokens: 40, batch: 1000, ..RUN };
    for rank in 0..run.ranks {
        let last = draw(evidence, &run, rank, 0).into_iter().max().unwrap_or(0);
        evidence.row(last <= 32, format!("rank {rank}: largest start"), "at most 32", last);
    }
    evidence.means(
        "The text has 40 tokens, and a sequence has 7. A sequence that starts at token 32 ends at token 38. It should then \
         predict token 39, the last one.",
    );
    Ok(())
}

fn again(evidence: &mut Evidence) -> Result<()> {
    for (rank, step) in [(0, 0), (3, 7)] {
        let [first, second] = [0, 1].map(|_| draw(evidence, &RUN, rank, step));
        evidence.same(format!("rank {rank}, step {step}: the second time"), first, second);
    }
    evidence
        .means("A run that is resumed at this step would not train on the same sequences as a run without a pause.");
    Ok(())
}

const SOME_AGAIN: &str = "Some of these sequences come twice: numbers are drawn from one stream, and two batches overlap in it, \
     as with `below(offsets, step + i)`. A branch for each rank and step has numbers of its own.";

/// Whether two batches have no sequence in common.
fn differ(batch: &[usize], other: &[usize]) -> bool {
    batch.iter().all(|start| !other.contains(start))
}

fn steps(evidence: &mut Evidence) -> Result<()> {
    let first = draw(evidence, &RUN, 0, 0);
    let mut whole = false;
    for step in 1..4 {
        let got = draw(evidence, &RUN, 0, step);
        whole |= got == first;
        evidence.row(
            differ(&got, &first),
            format!("rank 0, step {step}"),
            format!("none of {first:?}, as at step 0"),
            format!("{got:?}"),
        );
    }
    evidence.means_if(!whole, SOME_AGAIN);
    evidence.means("The model would see the same few sequences at every step, and memorize them.");
    Ok(())
}

fn ranks(evidence: &mut Evidence) -> Result<()> {
    let first = draw(evidence, &RUN, 0, 0);
    let mut whole = false;
    for rank in 1..RUN.ranks {
        let got = draw(evidence, &RUN, rank, 0);
        whole |= got == first;
        let expected = format!("none of {first:?}, as on rank 0");
        let differs = differ(&got, &first);
        evidence.row(differs, format!("rank {rank}, step 0"), expected, format!("{got:?}"));
    }
    evidence.means_if(!whole, SOME_AGAIN);
    evidence.means(
        "The same random numbers on every rank: all ranks draw the same sequences and compute the same gradients. Their mean is \
         the gradient of one rank, so 4 ranks cost 4 times as much and learn what 1 rank learns. The loss falls, all \
         ranks hold the same model, and you see no error.",
    );
    Ok(())
}

fn addresses(evidence: &mut Evidence) -> Result<()> {
    let mut seen: HashMap<Vec<usize>, (usize, usize, u64)> = HashMap::new();
    let mut twice = None;
    // Long runs, too: rank * 1000 + step has no collision for a thousand steps.
    let steps: Vec<usize> = (0..30)
        .chain((5..=20).map(|k| 1 << k))
        .chain((2..=6).map(|k| 10_usize.pow(k)))
        .collect();
    let steps = &steps;
    let each =
        |seed| (0..4).flat_map(move |rank| steps.iter().map(move |&step| (seed, rank, step)));
    for (seed, rank, step) in (0..3).flat_map(each) {
        let batch = draw(evidence, &Run { seed: RUN.seed + seed, ..RUN }, rank, step);
        let at = (rank, step, RUN.seed + seed);
        if let Some(earlier) = seen.insert(batch, at) {
            twice = twice.or(Some((earlier, at)));
        }
    }
    match twice {
        None => {
            let what = format!("different batches of 4 ranks, {} steps, 3 seeds", steps.len());
            evidence.same(what, 4 * 3 * steps.len(), seen.len());
        }
        Some((earlier, at)) => {
            let named = |(rank, step, seed)| format!("rank {rank}, step {step}, seed {seed}");
            evidence.row(
                false,
                named(at),
                "its own batch",
                format!("the batch of {}", named(earlier)),
            );
            evidence.means_if(
                (earlier.0, earlier.1) == (at.0, at.1),
                "Your batches do not depend on the seed: a run with a different seed trains on the same sequences in the same \
                 order. Runs are repeated with several seeds to see how much of a result is chance, and these runs would \
                 hide what the choice of the data does.",
            );
            evidence.means_if(
                earlier.2 == at.2,
                "A rank trains on a batch that a different rank has used some steps before. A sum such as rank + step, or \
                 rank * 1000 + step in a long run, has the same value for many pairs. Branches for rank and step never \
                 meet.",
            );
        }
    }
    evidence.means(
        "A run with a different seed repeats this run's batches, on a different rank or at a different step: adding numbers to a \
         seed makes seeds collide. Branches do not collide.",
    );
    Ok(())
}

fn offsets(evidence: &mut Evidence) -> Result<()> {
    let run = Run { block: 7, tokens: 80, ..RUN };
    let each = (0..500).flat_map(|step| (0..run.ranks).map(move |rank| (rank, step)));
    let drawn: BTreeSet<usize> =
        each.flat_map(|(rank, step)| draw(evidence, &run, rank, step)).collect();
    evidence.same("first offset that is drawn", Some(0), drawn.first().copied());
    evidence.same("last offset that is drawn", Some(72), drawn.last().copied());
    // Ranks that divide the text into parts never draw an offset from which a sequence runs into
    // the next part.
    let least = 73 - 7 * (run.ranks - 1);
    evidence.row(
        drawn.len() >= least,
        "offsets drawn in 500 steps",
        format!("at least {least} of 73"),
        drawn.len(),
    );
    evidence.means("The model never learns from a part of the text.");
    Ok(())
}
