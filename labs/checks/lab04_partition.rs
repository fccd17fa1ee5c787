//! The check of lab04-partition: DeepSpeed's own cases, from a group that needs no padding to ranks that hold nothing else.

use exercise::{Share, share};
use shardlab::Result;
use shardlab::parallel::partition::Flat;
use shardlab::show::thousands;
use shardlab::workbook::check::{Evidence, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("8 numbers on 2 ranks: equal parts, in order", |evidence| shares(evidence, &[3, 5], 2)),
        ("13 numbers on 3 ranks: a little padding", |evidence| shares(evidence, &[4, 1, 8], 3)),
        ("10 numbers on 4 ranks: padding on two of them", |evidence| shares(evidence, &[6, 4], 4)),
        ("5 numbers on 4 ranks", |evidence| shares(evidence, &[5], 4)),
        ("9 numbers on 4 ranks", |evidence| shares(evidence, &[2, 3, 4], 4)),
        ("24,960 numbers on 8 ranks: nothing to pad", |evidence| shares(evidence, &[24_576, 384], 8)),
        ("16 numbers on 1,024 ranks: most hold only padding", |evidence| shares(evidence, &[16], 1024)),
        ("65 layer norms on 768 ranks, as in that run", |evidence| shares(evidence, &[4096; 65], 768)),
    ])
}

/// Ranks that are looked at, of many: the first and the last few, and those around the first padding.
const ENDS: usize = 4;

fn shares(evidence: &mut Evidence, tensors: &[usize], ranks: usize) -> Result<()> {
    let numel: usize = tensors.iter().sum();
    let flat = Flat { numel, ranks };
    // Each number says where it stands, from 1 on: 0 is padding. All are exact in f32.
    let mut next = 0;
    let group: Vec<Vec<f32>> = tensors
        .iter()
        .map(|&len| {
            next += len;
            (next - len..next).map(|i| (i + 1) as f32).collect()
        })
        .collect();
    let edge = numel / flat.part();
    let looked_at = |rank: &usize| *rank < ENDS || ranks - rank <= ENDS || rank.abs_diff(edge) <= 1;
    let input = match tensors {
        [first, _, _, _, ..] => format!("{} tensors of {} numbers", tensors.len(), thousands(*first as u64)),
        few => format!("tensors of {few:?} numbers"),
    };
    let found = |rank| {
        evidence.given(format!("rank {rank} of {ranks}, and {input}"));
        (rank, share(&group, ranks, rank))
    };
    let found: Vec<(usize, Share)> = (0..ranks).filter(looked_at).map(found).collect();
    for (rank, got) in &found {
        let held = flat.range(*rank);
        let numbers = held.map(|i| (i + 1) as f32).chain(std::iter::repeat(0.0)).take(flat.part()).collect();
        let expected = Share { numbers, padding: flat.padding(*rank) };
        evidence.row(*got == expected, format!("rank {rank}"), said(&expected), said(got));
    }
    if evidence.agrees() {
        return Ok(());
    }

    let all = |sign: &dyn Fn(usize, &Share) -> bool| found.iter().all(|(rank, share)| sign(*rank, share));
    let lengths = |length: &dyn Fn(usize) -> usize| all(&|rank, share| share.numbers.len() == length(rank));
    let (total, ceil) = (flat.padded() - numel, numel.div_ceil(ranks));
    let equal = lengths(&|_| flat.part());
    evidence.means_if(
        !equal && lengths(&|rank| flat.range(rank).len()),
        "The parts hold what they should, but without padding they are not equally long, and a collective wants that.",
    );
    evidence.means_if(
        !equal && lengths(&|rank| numel / ranks + usize::from(rank < numel % ranks)),
        "The remainder is dealt to the first ranks. That wastes nothing, but parts are not equally long, and a collective \
         wants that.",
    );
    evidence.means_if(
        !equal && lengths(&|rank| numel.saturating_sub(rank * ceil).min(ceil)),
        format!(
            "Each rank takes {ceil}, the last ones what is left: so stage 3 cuts single tensors. Here a group is padded \
             first, and all parts are equally long."
        ),
    );
    evidence.means_if(
        !equal && lengths(&|_| ceil),
        format!(
            "Padded to a multiple of {ranks}, the ranks: equal parts, but not DeepSpeed's. It pads to a multiple of 2 x \
             {ranks}, and its checkpoints have parts of {}.",
            flat.part()
        ),
    );
    evidence.means_if(
        !equal && lengths(&|_| numel / ranks),
        format!("The last {} of {numel} numbers are on no rank: they would never be trained again.", numel % ranks),
    );
    evidence.means_if(
        !equal,
        format!("{numel} numbers become {}, a multiple of 2 x {ranks}: {} on every rank.", flat.padded(), flat.part()),
    );

    let is_right = |rank: usize, share: &Share| {
        let places = rank * flat.part()..;
        places.zip(&share.numbers).all(|(i, &x)| x == if i < numel { (i + 1) as f32 } else { 0.0 })
    };
    evidence.means_if(
        !all(&is_right),
        "The parts are as long as they should be, but hold others' numbers: part r begins at r times a part's length, \
         counted through all tensors, and the padding comes at the very end.",
    );
    let paddings = |padding: &dyn Fn(usize) -> usize| all(&|rank, share| share.padding == padding(rank));
    evidence.means_if(
        paddings(&|_| 0),
        "The numbers are right, but nobody has written down that some are padding. Read on another number of ranks, these \
         zeros become parameters.",
    );
    evidence.means_if(
        paddings(&|rank| if rank + 1 == ranks { total } else { 0 }),
        format!(
            "All padding is booked on the last rank: {total} of its {} numbers. What is more than a part lies on the ranks \
             before it. That is the mistake of which the run on 768 ranks could not be converted.",
            flat.part()
        ),
    );
    evidence.means_if(
        paddings(&|rank| ((rank + 1) * flat.part()).saturating_sub(numel)),
        format!("A rank cannot have more padding than numbers, and every rank has {} of these.", flat.part()),
    );
    evidence.means_if(paddings(&|_| total), format!("{total} is the padding of all ranks; each writes down its own."));
    evidence.means(
        "The numbers are right, the padding is not: of its own numbers, how many lie behind the last tensor's last one?",
    );
    Ok(())
}

/// A share in a line: all its numbers, or how many and which.
fn said(share: &Share) -> String {
    let numbers = &share.numbers;
    let shown = match (numbers.len(), numbers.first()) {
        (0, _) => "nothing".into(),
        (1..=6, _) => numbers.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(" "),
        (many, Some(0.0)) => format!("{} zeros", thousands(many as u64)),
        (many, first) => {
            format!("{} from {}", thousands(many as u64), thousands(first.copied().unwrap_or_default() as u64))
        }
    };
    format!("{shown}, {} padding", share.padding)
}
