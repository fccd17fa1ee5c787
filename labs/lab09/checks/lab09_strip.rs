//! The check of lab09-strip: the source's control and its failure, then records that are wrong and
//! records that are right.

use exercise::{Converted, Shard, convert};
use kit::check::{Evidence, run};
use kit::show::thousands;
use lab09::Recorded;
use shardlab::Result;
use shardlab::parallel::partition::Flat;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("12,288 numbers on 48 ranks, nothing to strip", |evidence| {
            whole(evidence, &CONTROL)
        }),
        ("11 numbers on 5 ranks, and the real 768: no error", |evidence| {
            converts(evidence, &ELEVEN)?;
            converts(evidence, &REAL)
        }),
        ("11 numbers on 5 ranks: parameters, paddings", |evidence| {
            whole(evidence, &ELEVEN)
        }),
        ("9 numbers, the last of them zeros", |evidence| {
            whole(evidence, &Case { zeros: 3, ..case(&[2, 3, 4], 4) })
        }),
        ("65 layer norms on 768 ranks", |evidence| whole(evidence, &REAL)),
        ("16 numbers on 1,024 ranks", |evidence| whole(evidence, &case(&[16], 1024))),
        ("13 numbers on 3 ranks: the record is right", |evidence| {
            whole(evidence, &case(&[4, 1, 8], 3))
        }),
        ("files that a first repair has changed", |evidence| {
            whole(evidence, &Case { cut: true, ..ELEVEN })
        }),
        ("files with each rank's own padding", |evidence| {
            whole(evidence, &Case { rule: Recorded::OnEach, ..ELEVEN })?;
            whole(evidence, &Case { rule: Recorded::OnEach, ..REAL })
        }),
    ])
}

/// A group, the ranks that saved it, and how they recorded the padding.
struct Case {
    sizes: &'static [usize],
    ranks: usize,
    rule: Recorded,
    /// So many numbers at the end of the last parameter are 0.
    zeros: usize,
    /// No record is longer than a slice any more: a program has cut it.
    cut: bool,
}

const fn case(sizes: &'static [usize], ranks: usize) -> Case {
    Case {
        sizes,
        ranks,
        rule: Recorded::OnTheLast,
        zeros: 0,
        cut: false,
    }
}

const CONTROL: Case = case(&[4096; 3], 48);
const ELEVEN: Case = case(&[6, 5], 5);
const REAL: Case = case(&[4096; 65], 768);

impl Case {
    fn flat(&self) -> Flat {
        Flat { numel: self.sizes.iter().sum(), ranks: self.ranks }
    }

    /// Each number is its offset in the group, counted from 1.
    fn number(&self, offset: usize) -> f32 {
        if offset + self.zeros < self.flat().numel {
            (offset + 1) as f32
        } else {
            0.0
        }
    }

    fn shards(&self) -> Vec<Shard> {
        let flat = self.flat();
        let shard = |rank| {
            let mut numbers: Vec<f32> =
                flat.range(rank).map(|offset| self.number(offset)).collect();
            numbers.resize(flat.shard_numel(), 0.0);
            let recorded = self.rule.on(flat, rank);
            let most = if self.cut { numbers.len() } else { recorded };
            Shard { numbers, padding: recorded.min(most) }
        };
        (0..self.ranks).map(shard).collect()
    }

    fn parameters(&self) -> Vec<Vec<f32>> {
        let mut begin = 0;
        let parameter = |size: &usize| {
            begin += size;
            (begin - size..begin).map(|offset| self.number(offset)).collect()
        };
        self.sizes.iter().map(parameter).collect()
    }
}

/// Calls the reader's code, and shows an error as evidence.
fn converted(evidence: &mut Evidence, case: &Case) -> Option<Converted> {
    let flat = case.flat();
    let ranks = case.ranks;
    let input = format!("{} numbers on {ranks} ranks", thousands(flat.numel as u64));
    evidence.given(match case.zeros {
        0 => input.clone(),
        zeros => format!(
            "{input}, and the last {zeros} of them are 0. A parameter may be 0, so a 0 is not always padding"
        ),
    });
    let error = match convert(&case.shards(), case.sizes) {
        Ok(converted) => return Some(converted),
        Err(error) => error,
    };
    evidence.row(false, input, "converted", &error);
    let part = flat.shard_numel();
    let all = flat.padded() - flat.numel;
    evidence.means_if(
        error.contains("non-negative"),
        format!(
            "A slice has {} numbers, and the file of rank {} records {} of padding. This is the padding of all ranks together: \
             the program that saved has recorded all of it on the last rank. It does not fit there, so the slices before it \
             have some of it, too. Believe what the group's length says, and not the record.",
            thousands(part as u64),
            ranks - 1,
            thousands(all as u64)
        ),
    );
    evidence.means(
        "Your code refuses the files. The records are wrong, but all numbers of the model are there. `sizes` says where the \
         last parameter ends.",
    );
    None
}

fn converts(evidence: &mut Evidence, case: &Case) -> Result<()> {
    if converted(evidence, case).is_some() {
        evidence.row(true, format!("{} ranks", case.ranks), "converted", "converted");
    }
    Ok(())
}

fn whole(evidence: &mut Evidence, case: &Case) -> Result<()> {
    let Some(got) = converted(evidence, case) else {
        return Ok(());
    };
    let expected = case.parameters();
    let differs = (0..expected.len().max(got.parameters.len()))
        .find(|&i| expected.get(i) != got.parameters.get(i));
    let at = differs.unwrap_or(expected.len() - 1);
    let shown = |all: &[Vec<f32>]| all.get(at).map_or("none".into(), |numbers| said(numbers));
    evidence.row(
        differs.is_none(),
        format!("parameter {at}"),
        shown(&expected),
        shown(&got.parameters),
    );
    let fewer = got.parameters.len() != expected.len();
    evidence.means_if(
        fewer && differs.is_some(),
        format!(
            "The group has {} parameters, and you return {}.",
            expected.len(),
            got.parameters.len()
        ),
    );
    let length = |all: &[Vec<f32>]| all.get(at).map(Vec::len);
    let short = differs.is_some() && length(&got.parameters) < length(&expected);
    evidence.means_if(
        short && case.zeros > 0,
        "Zeros at the end of the last parameter are missing. They are not padding: a number is padding because of its offset, \
         not because of its value.",
    );
    evidence.means_if(
        differs.is_some(),
        "A parameter has the wrong numbers. Padding comes after the last parameter only, so nothing may be cut off before it.",
    );
    if !evidence.agrees() {
        return Ok(());
    }
    paddings(evidence, case, &got.paddings);
    Ok(())
}

/// The paddings of a conversion whose parameters are right.
fn paddings(evidence: &mut Evidence, case: &Case, got: &[usize]) {
    let flat = case.flat();
    let ranks = case.ranks;
    let part = flat.shard_numel();
    let all = flat.padded() - flat.numel;
    if !evidence.same("paddings that are returned", ranks, got.len()) {
        return evidence.means("There is one padding for each rank, in their order.");
    }
    // The last ranks, and those where something is wrong.
    let wrong = (0..ranks).find(|&rank| got[rank] != flat.padding(rank));
    let shown = |rank: &usize| {
        rank + 4 >= ranks || wrong.is_some_and(|wrong| (wrong..wrong + 2).contains(rank))
    };
    for rank in (0..ranks).filter(shown) {
        evidence.same(format!("padding of rank {rank}, of {part}"), flat.padding(rank), got[rank]);
    }
    if evidence.agrees() {
        return;
    }
    let is = |padding: &dyn Fn(usize) -> usize| (0..ranks).all(|rank| got[rank] == padding(rank));
    let last = ranks - 1;
    evidence.means_if(
        case.rule == Recorded::OnEach,
        "These records are right, and you change them. Compute the paddings from the sizes, whatever the record says.",
    );
    let recorded: usize = case.shards().iter().map(|shard| shard.padding).sum();
    evidence.means_if(
        case.cut && is(&|rank| (recorded + (rank + 1) * part).saturating_sub(flat.padded()).min(part)),
        format!(
            "You divide the sum of the records, {recorded}, but the padding has {all} numbers. A first repair has cut the record of \
             rank {last} to the length of its slice, so even the sum is wrong. Compute the paddings from the sizes, whatever the \
             record says."
        ),
    );
    evidence.means_if(
        is(&|rank| if rank == last { all } else { 0 }),
        format!(
            "The parameters are right: \"do not strip\" needs no more, and neither does a length of at least 0. But you pass the \
             wrong records on: rank {last} has {part} numbers, and its record says {all}. The next program that subtracts them \
             fails in the same way, or it cuts off numbers without an error."
        ),
    );
    evidence.means_if(
        is(&|rank| if rank == last { all.min(part) } else { 0 }),
        format!(
            "Rank {last}'s record no longer exceeds its slice, but {} numbers of padding are now recorded on no rank. A program that reads them takes them for parameters.",
            all - part.min(all)
        ),
    );
    evidence.means_if(
        is(&|rank| flat.range(rank).len()),
        "You return how many numbers of each slice belong to parameters. Padding is the rest of the slice. The first version of \
         DeepSpeed's own repair had this mistake.",
    );
    evidence.means_if(
        is(&|rank| ((rank + 1) * part).saturating_sub(flat.numel)),
        format!("A slice cannot have more padding than numbers, and each slice has {part}."),
    );
    evidence.means_if(
        case.zeros > 0,
        "You count zeros at the end of a slice. But parameters can end with zeros, too: a number is padding because of its \
         offset, not because of its value.",
    );
    evidence.means_if(
        is(&|_| all),
        format!("{all} is the padding of all ranks together. Each rank has its own part of it."),
    );
    evidence.means_if(
        is(&|_| 0),
        "No rank has padding now. But the slices in the files do: a program that joins them would read zeros as parameters.",
    );
    evidence
        .means("How many numbers of each rank's slice come after the end of the last parameter?");
}

/// Numbers in one line: all of them, or how many there are and the first and last one.
fn said(numbers: &[f32]) -> String {
    match numbers {
        [first, .., last] if numbers.len() > 8 => {
            format!("{} from {first} to {last}", thousands(numbers.len() as u64))
        }
        [] => "nothing".into(),
        few => few.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(" "),
    }
}
