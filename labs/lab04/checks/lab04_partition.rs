//! The check of lab04-partition: DeepSpeed's own cases, from a group without padding to ranks that
//! hold only padding.

use exercise::{Slice, slice};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shardlab::Result;
use shardlab::parallel::partition::Flat;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("8 numbers on 2 ranks: equal slices, in order", |evidence| {
            slices(evidence, &[3, 5], 2)
        }),
        ("13 numbers on 3 ranks: a little padding", |evidence| {
            slices(evidence, &[4, 1, 8], 3)
        }),
        ("10 numbers on 4 ranks", |evidence| slices(evidence, &[6, 4], 4)),
        ("5 numbers on 4 ranks", |evidence| slices(evidence, &[5], 4)),
        ("9 numbers on 4 ranks", |evidence| slices(evidence, &[2, 3, 4], 4)),
        ("13 numbers on 3 ranks, the last 8 a bias", |evidence| {
            group(evidence, &[4, 1, 8], 3, 8)
        }),
        ("24,960 numbers on 8 ranks: nothing to pad", |evidence| {
            slices(evidence, &[24_576, 384], 8)
        }),
        ("16 numbers on 1,024 ranks", |evidence| slices(evidence, &[16], 1024)),
        ("65 layer norms on 768 ranks, as in the real run", |evidence| {
            slices(evidence, &[4096; 65], 768)
        }),
    ])
}

/// If there are many ranks, the check looks at so many first and last ones, and at those around the
/// first padding.
const ENDS: usize = 4;

fn slices(evidence: &mut Evidence, tensors: &[usize], ranks: usize) -> Result<()> {
    group(evidence, tensors, ranks, 0)
}

/// A group whose last `zeros` numbers are 0.
fn group(evidence: &mut Evidence, tensors: &[usize], ranks: usize, zeros: usize) -> Result<()> {
    let numel: usize = tensors.iter().sum();
    let flat = Flat { numel, ranks };
    // Each number is its offset, counted from 1, because 0 is padding. All are exact in f32.
    let number = |offset: usize| {
        if offset + zeros < numel {
            (offset + 1) as f32
        } else {
            0.0
        }
    };
    let mut next = 0;
    let group: Vec<Vec<f32>> = tensors
        .iter()
        .map(|&len| {
            next += len;
            (next - len..next).map(number).collect()
        })
        .collect();
    let edge = numel / flat.shard_numel();
    let looked_at = |rank: &usize| *rank < ENDS || ranks - rank <= ENDS || rank.abs_diff(edge) <= 1;
    let input = match tensors {
        [first, _, _, _, ..] => {
            format!("{} tensors of {} numbers", tensors.len(), thousands(*first as u64))
        }
        few => format!("tensors of {few:?} numbers"),
    };
    let found = |rank| {
        evidence.given(format!("rank {rank} of {ranks}, and {input}"));
        (rank, slice(&group, ranks, rank))
    };
    let found: Vec<(usize, Slice)> = (0..ranks).filter(looked_at).map(found).collect();
    for (rank, got) in &found {
        let held = flat.range(*rank);
        let numbers = held
            .map(number)
            .chain(std::iter::repeat(0.0))
            .take(flat.shard_numel())
            .collect();
        let expected = Slice { numbers, padding: flat.padding(*rank) };
        evidence.row(*got == expected, format!("rank {rank}"), said(&expected), said(got));
    }
    if evidence.agrees() {
        return Ok(());
    }

    let all =
        |sign: &dyn Fn(usize, &Slice) -> bool| found.iter().all(|(rank, slice)| sign(*rank, slice));
    let lengths =
        |length: &dyn Fn(usize) -> usize| all(&|rank, slice| slice.numbers.len() == length(rank));
    let total = flat.padded() - numel;
    let ceil = numel.div_ceil(ranks);
    let equal = lengths(&|_| flat.shard_numel());
    evidence.means_if(
        !equal && lengths(&|rank| flat.range(rank).len()),
        "The slices hold the right numbers, but without padding their lengths differ. A collective needs equal lengths.",
    );
    evidence.means_if(
        !equal && lengths(&|rank| numel / ranks + usize::from(rank < numel % ranks)),
        "The remainder goes to the first ranks. This wastes nothing, but the slices have different lengths. A collective \
         needs equal lengths.",
    );
    evidence.means_if(
        !equal && lengths(&|rank| numel.saturating_sub(rank * ceil).min(ceil)),
        format!(
            "Each rank takes {ceil} numbers, and the last ranks take the rest. Stage 3 cuts single tensors in this way. Here, \
             first pad the group. Then all slices have the same length."
        ),
    );
    evidence.means_if(
        !equal && lengths(&|_| ceil),
        format!(
            "Padded to a multiple of {ranks}, the number of ranks: the slices are equal, but differ from DeepSpeed's. It pads to \
             a multiple of 2 x {ranks}, and its checkpoints have slices of {}.",
            flat.shard_numel()
        ),
    );
    evidence.means_if(
        !equal && lengths(&|_| numel / ranks),
        format!(
            "The last {} of {numel} numbers are on no rank, so no rank would train them.",
            numel % ranks
        ),
    );
    let each = |multiple: usize| {
        let padded = |len: &usize| len.next_multiple_of(multiple);
        tensors.iter().map(padded).sum::<usize>() / ranks
    };
    let has_gaps = !all(&|rank, slice| {
        let offsets = rank * slice.numbers.len()..;
        offsets.zip(&slice.numbers).all(|(i, &x)| i >= numel || x == number(i))
    });
    evidence.means_if(
        !equal
            && has_gaps
            && [ranks, 2 * ranks]
                .iter()
                .any(|&multiple| lengths(&|_| each(multiple))),
        "Each tensor is padded here, and only the end of the group should be. A model has many small tensors, such as biases and \
         norms: on many ranks the slices would be mostly padding.",
    );
    evidence.means_if(
        !equal,
        format!(
            "{numel} numbers become {}, a multiple of 2 x {ranks}: {} on every rank.",
            flat.padded(),
            flat.shard_numel()
        ),
    );

    let is_right = |rank: usize, slice: &Slice| {
        let offsets = rank * flat.shard_numel()..;
        offsets.zip(&slice.numbers).all(|(i, &x)| x == number(i))
    };
    evidence.means_if(
        !has_gaps && !all(&is_right),
        "The slices have their numbers, but the padding is no zeros. It is trained with the rest, and a norm over the slices counts it.",
    );
    evidence.means_if(
        !all(&is_right),
        "The slices have the right length, but hold the wrong numbers. Slice r begins at r times the length of a slice, \
         counted through all tensors, and the padding is at the very end.",
    );
    let paddings =
        |padding: &dyn Fn(usize) -> usize| all(&|rank, slice| slice.padding == padding(rank));
    evidence.means_if(
        zeros > 0,
        "Zeros are counted as padding. But parameters can be 0, too: biases begin so. On a different number of ranks these \
         would be left out. A number is padding because of its offset, not because of its value.",
    );
    evidence.means_if(
        paddings(&|_| 0),
        "The numbers are right, but no rank records that some are padding. On a different number of ranks, these zeros \
         would be read as parameters.",
    );
    evidence.means_if(
        paddings(&|rank| if rank + 1 == ranks { total } else { 0 }),
        format!(
            "All padding is recorded on the last rank: {total} of its {} numbers. A slice cannot contain more padding than \
             numbers, and the rest is on the ranks before it. Because of this mistake the run on 768 ranks could not be \
             converted.",
            flat.shard_numel()
        ),
    );
    evidence.means_if(
        paddings(&|rank| ((rank + 1) * flat.shard_numel()).saturating_sub(numel)),
        format!(
            "A rank cannot have more padding than numbers, and every rank has {} numbers.",
            flat.shard_numel()
        ),
    );
    evidence.means_if(
        paddings(&|_| total),
        format!("{total} is the padding of all ranks. Each rank records its own."),
    );
    evidence.means(
        "The numbers are right, but the padding is wrong. How many of a rank's numbers come after the end of the last \
         tensor?",
    );
    Ok(())
}

/// A slice in one line: all its numbers, or how many there are and the first one.
fn said(slice: &Slice) -> String {
    let numbers = &slice.numbers;
    let shown = match (numbers.len(), numbers.first()) {
        (0, _) => "nothing".into(),
        (1..=6, _) => numbers.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(" "),
        (many, Some(0.0)) => format!("{} zeros", thousands(many as u64)),
        (many, first) => {
            format!(
                "{} from {}",
                thousands(many as u64),
                thousands(first.copied().unwrap_or_default() as u64)
            )
        }
    };
    format!("{shown}, {} padding", slice.padding)
}
