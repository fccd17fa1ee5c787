//! The check of lab09-overlap: the slices of new ranks, fewer and more than old ones, from files
//! with and without padding, and a real group; then the elements and the files that were read.

use exercise::{Files, load};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shardlab::Result;
use shardlab::parallel::partition::Flat;
use std::ops::Range;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("from 3 ranks to 1: whole parameters", |evidence| all(evidence, &SMALL, 1)),
        ("from 3 ranks to 2: a slice of each parameter", |evidence| {
            all(evidence, &SMALL, 2)
        }),
        ("from 3 ranks to 4: some slices are empty", |evidence| all(evidence, &SMALL, 4)),
        ("slices that end where a file ends", |evidence| all(evidence, &EVEN, 2)),
        ("a slice that lies on five files", |evidence| all(evidence, &WIDE, 2)),
        ("files with padding, and one with nothing else", |evidence| {
            all(evidence, &TEN, 3)
        }),
        ("65 layer norms, from 768 ranks to 512", real),
    ])
}

/// The parameters that were saved, and the old ranks.
struct Case {
    sizes: &'static [usize],
    ranks: usize,
}

/// 22 elements in files of 8.
const SMALL: Case = Case { sizes: &[5, 6, 3, 2, 6], ranks: 3 };
/// 24 elements in files of 6.
const EVEN: Case = Case { sizes: &[12, 12], ranks: 4 };
/// 96 elements in files of 8.
const WIDE: Case = Case { sizes: &[6, 68, 22], ranks: 12 };
/// 10 elements in files of 4, two of them padding on rank 2, and four on rank 3.
const TEN: Case = Case { sizes: &[6, 4], ranks: 4 };
/// The group whose conversion failed: files of 348, and 1,024 elements of padding in the last
/// three.
const REAL: Case = Case { sizes: &[4096; 65], ranks: 768 };

/// Files in memory, and what was read of them. Each element is its place in the line, counted from
/// 1, and padding is 0.
struct Memory {
    flat: Flat,
    reads: Vec<(usize, Range<usize>)>,
}

impl Memory {
    fn of(case: &Case) -> Memory {
        Memory {
            flat: Flat { numel: case.sizes.iter().sum(), ranks: case.ranks },
            reads: Vec::new(),
        }
    }

    /// A file ends: what is beyond its end is left out.
    fn elements(&self, rank: usize, range: Range<usize>) -> Vec<f32> {
        let part = self.flat.shard_numel();
        let held = self.flat.range(rank.min(self.flat.ranks));
        let elements = range.start.min(part)..range.end.min(part);
        elements
            .map(|i| {
                if i < held.len() {
                    (held.start + i + 1) as f32
                } else {
                    0.0
                }
            })
            .collect()
    }
}

impl Files for Memory {
    fn ranks(&self) -> usize {
        self.flat.ranks
    }

    fn numel(&self) -> usize {
        self.flat.shard_numel()
    }

    fn read(&mut self, rank: usize, range: Range<usize>) -> Vec<f32> {
        self.reads.push((rank, range.clone()));
        self.elements(rank, range)
    }
}

/// A new rank of a new job, and where its elements are in the line of a case.
struct New<'a> {
    case: &'a Case,
    rank: usize,
    ranks: usize,
}

impl New<'_> {
    /// Where a parameter is in the line.
    fn parameter(&self, which: usize) -> Range<usize> {
        let start = self.case.sizes[..which].iter().sum::<usize>();
        start..start + self.case.sizes[which]
    }

    /// Where this rank's slice of a parameter is in the line.
    fn slice(&self, which: usize) -> Range<usize> {
        let Range { start, end } = self.parameter(which);
        let length = (end - start).div_ceil(self.ranks);
        end.min(start + self.rank * length)..end.min(start + (self.rank + 1) * length)
    }

    fn slices(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.case.sizes.len()).map(|which| self.slice(which))
    }

    /// The files that have something of a range of the line.
    fn holders(&self, range: &Range<usize>, part: usize) -> Vec<usize> {
        let holds = |old: &usize| range.start.max(old * part) < range.end.min((old + 1) * part);
        (0..self.case.ranks).filter(holds).collect()
    }
}

fn numbers(elements: Range<usize>) -> Vec<f32> {
    elements.map(|i| (i + 1) as f32).collect()
}

/// Checks every new rank, up to the first that is wrong.
fn all(evidence: &mut Evidence, case: &Case, ranks: usize) -> Result<()> {
    for rank in 0..ranks {
        one(evidence, &New { case, rank, ranks })?;
        if !evidence.agrees() {
            break;
        }
    }
    Ok(())
}

fn real(evidence: &mut Evidence) -> Result<()> {
    let ranks = 512;
    let mut most = 0;
    for rank in [0, 1, 300, ranks - 1] {
        let new = New { case: &REAL, rank, ranks };
        most = most.max(one(evidence, &new)?);
        if !evidence.agrees() {
            return Ok(());
        }
    }
    let best = New { case: &REAL, rank: 0, ranks };
    let best = best.slices().map(|slice| slice.len()).sum::<usize>();
    evidence.figure("elements that a new rank reads, of 266,240", most as u64, best as u64);
    Ok(())
}

const EMPTY: &str = "Nothing superfluous is read, but you read an empty range of a file that has nothing of the slice. Its file \
         is opened for that: with 768 files, for each parameter.";

/// Checks one new rank. Returns how many elements it has read.
fn one(evidence: &mut Evidence, new: &New) -> Result<usize> {
    let sizes = new.case.sizes;
    let mut files = Memory::of(new.case);
    let part = files.numel();
    let rank = format!("new rank {} of {}", new.rank, new.ranks);
    evidence.given(format!(
        "{rank}, {} files of {part} elements, and {} parameters: {:?}",
        new.case.ranks,
        sizes.len(),
        &sizes[..sizes.len().min(6)]
    ));
    let got = load(&mut files, sizes, new.rank, new.ranks);
    evidence.same(format!("{rank}: slices"), sizes.len(), got.len());
    for (which, (slice, got)) in new.slices().zip(&got).enumerate() {
        let expected = numbers(slice);
        evidence.row(
            expected == *got,
            format!("{rank}: parameter {which}"),
            said(&expected),
            said(got),
        );
    }
    let beyond = files
        .reads
        .iter()
        .find(|(old, range)| *old >= new.case.ranks || range.end > part);
    if let Some((old, range)) = beyond {
        beyond_a_file(evidence, new, *old, range, part);
        return Ok(0);
    }
    why_wrong(evidence, new, &got, &files);
    if !evidence.agrees() {
        return Ok(0);
    }

    let reads = &files.reads;
    let read: usize = reads.iter().map(|(_, range)| range.len()).sum();
    let wanted: usize = new.slices().map(|slice| slice.len()).sum();
    let mut holders: Vec<usize> =
        new.slices().flat_map(|slice| new.holders(&slice, part)).collect();
    let mut opened: Vec<usize> = reads.iter().map(|read| read.0).collect();
    for list in [&mut holders, &mut opened] {
        list.sort_unstable();
        list.dedup();
    }
    evidence.same(format!("{rank}: elements read"), wanted, read);
    evidence.same(format!("{rank}: files read from"), holders.len(), opened.len());
    let empty = reads.iter().any(|(_, range)| range.is_empty());
    evidence.row(
        !empty,
        format!("{rank}: empty ranges read"),
        "none",
        if empty { "some" } else { "none" },
    );
    if evidence.agrees() {
        return Ok(read);
    }
    let numel = files.flat.numel;
    let whole_parameters: usize = (0..sizes.len())
        .filter(|&which| !new.slice(which).is_empty())
        .map(|which| sizes[which])
        .sum();
    let every_time = sizes.len() * part * new.case.ranks;
    evidence.means_if(
        read >= every_time,
        format!(
            "The numbers are right, but you read all files for each of the {} parameters: {} elements for {}.",
            sizes.len(),
            thousands(read as u64),
            wanted
        ),
    );
    evidence.means_if(
        new.ranks > 1 && (read == numel || read == whole_parameters),
        format!(
            "The numbers are right, but you read whole parameters, and then take your slices: {read} elements for {wanted}. If \
             all {} new ranks do so, they read everything {} times. Which elements are yours follows from sizes: find out \
             before you read.",
            new.ranks, new.ranks
        ),
    );
    evidence.means_if(
        read == part * new.case.ranks,
        format!("The numbers are right, but you read all files, with their padding: {read} elements for {wanted}."),
    );
    evidence.means_if(empty, EMPTY);
    let all_reads = |are: &dyn Fn(&Range<usize>) -> bool| {
        opened == holders && reads.iter().all(|(_, range)| are(range))
    };
    evidence.means_if(
        all_reads(&|range| range.len() == part),
        "You read from the right files, but whole files. Work out which elements of a file are yours, and read these.",
    );
    evidence.means_if(
        all_reads(&|range| range.start == 0),
        "You read from the right files, but each from its beginning on. Begin where the slice begins.",
    );
    evidence.means_if(
        all_reads(&|range| range.end == part),
        "You read from the right files, but each to its end. End where the slice ends.",
    );
    let twice = reads.iter().enumerate().any(|(i, (old, range))| {
        reads[..i].iter().any(|(other, before)| {
            old == other && range.start < before.end && before.start < range.end
        })
    });
    evidence.means_if(twice, "You read some elements twice.");
    evidence.means(
        "The numbers are right. Read each element of the new rank's slices once, and nothing else.",
    );
    Ok(read)
}

/// Explains a read that is not inside a file.
fn beyond_a_file(
    evidence: &mut Evidence,
    new: &New,
    old: usize,
    range: &Range<usize>,
    part: usize,
) {
    let last = new.case.ranks - 1;
    let read = format!("{range:?} of file {old}");
    evidence.row(false, "a read", format!("within 0..{part} of files 0 to {last}"), &read);
    evidence.means_if(range.is_empty(), EMPTY);
    evidence.means_if(
        old > last,
        format!("You read from file {old}, and there are files 0 to {last}."),
    );
    evidence.means_if(
        range.start >= old * part && old > 0,
        format!(
            "You read {read}: these are places in the line. `read` counts from the beginning of a file, and file {old} begins \
             at element {}.",
            old * part
        ),
    );
    evidence.means(format!(
        "You read {read}, and a file has {part} elements. The rest of the slice is in the next file."
    ));
}

/// Explains slices that are not the new rank's.
fn why_wrong(evidence: &mut Evidence, new: &New, got: &[Vec<f32>], files: &Memory) {
    let sizes = new.case.sizes;
    let part = files.numel();
    let numel = files.flat.numel;
    let follows = |rule: &dyn Fn(usize) -> Vec<f32>| {
        got.len() == sizes.len() && got.iter().enumerate().all(|(which, got)| *got == rule(which))
    };
    if follows(&|which| numbers(new.slice(which))) {
        return;
    }
    evidence.means_if(
        files.reads.is_empty() && got.iter().all(|got| got.is_empty()),
        "Nothing was read. For each parameter: where is the new rank's slice in the line, and which files have some of it?",
    );
    // The line cut as the old job cut it, for the new ranks: with padding and without.
    let line = Flat { numel, ranks: new.ranks };
    let even = numel.div_ceil(new.ranks);
    let even = numel.min(new.rank * even)..numel.min((new.rank + 1) * even);
    for mine in [line.range(new.rank), even] {
        let part_of = |which: usize| {
            let Range { start, end } = new.parameter(which);
            let from = start.max(mine.start);
            numbers(from..end.min(mine.end).max(from))
        };
        evidence.means_if(
            new.ranks > 1 && (follows(&part_of) || got.concat() == numbers(mine.clone()) && got.len() != sizes.len()),
            "The whole line is cut for the new ranks. ZeRO-3 cuts each parameter by itself: the new rank has a slice of every \
             one.",
        );
    }
    evidence.means_if(
        got.len() != sizes.len(),
        format!(
            "You return {} slice{}, and there are {} parameters. A parameter of which the new rank has nothing still has a slice: \
             an empty one.",
            got.len(),
            if got.len() == 1 { "" } else { "s" },
            sizes.len()
        ),
    );
    evidence.means_if(
        new.ranks > 1 && follows(&|which| numbers(new.parameter(which))),
        "These are whole parameters. The new rank has a slice of each.",
    );
    let at = |rank: usize| New { case: new.case, rank, ranks: new.ranks };
    evidence.means_if(
        (0..new.ranks)
            .any(|other| other != new.rank && follows(&|which| numbers(at(other).slice(which)))),
        "These are the slices of another new rank.",
    );
    let rounded_down = |which: usize| {
        let Range { start, end } = new.parameter(which);
        let length = (end - start) / new.ranks;
        numbers(start + new.rank * length..start + (new.rank + 1) * length)
    };
    evidence.means_if(
        follows(&rounded_down),
        format!(
            "Slices of `size / {}` elements leave some elements on no rank at all. Round up: `size.div_ceil({})`.",
            new.ranks, new.ranks
        ),
    );
    let in_turn = |which: usize| {
        numbers(new.parameter(which))
            .into_iter()
            .skip(new.rank)
            .step_by(new.ranks)
            .collect()
    };
    evidence.means_if(
        new.ranks > 1 && follows(&in_turn),
        "The new ranks take elements in turn. A slice is in one piece: the first elements belong to rank 0.",
    );
    // The line, if files had a different length.
    let cut = |which: usize, other: usize| -> Vec<f32> {
        let Range { start, end } = new.slice(which);
        let of = |old: usize| {
            let begin = old * other;
            let from = start.max(begin);
            let to = end.min(begin + other);
            if from < to {
                files.elements(old, from - begin..to - begin)
            } else {
                Vec::new()
            }
        };
        (0..new.case.ranks).flat_map(of).collect()
    };
    let lengths = [numel / new.case.ranks, numel.div_ceil(new.case.ranks)];
    for other in lengths.into_iter().filter(|other| *other > 0 && *other != part) {
        evidence.means_if(
            follows(&|which| cut(which, other)),
            format!("You take files of {other} elements. They have {part}, because the line is padded before it is cut: ask `numel`."),
        );
    }
    let Some(which) = (0..got.len()).find(|&which| got[which] != numbers(new.slice(which))) else {
        return;
    };
    let slice = new.slice(which);
    let expected = numbers(slice.clone());
    let got = &got[which];
    let parameter = new.parameter(which);
    let zeros = |numbers: &[f32]| numbers.iter().all(|x| *x == 0.0);
    evidence.means_if(
        got.len() > expected.len() && got.starts_with(&expected) && zeros(&got[expected.len()..]),
        format!(
            "Zeros follow the slice of parameter {which}. A slice ends where its parameter ends, and the new rank holds no \
             padding."
        ),
    );
    let next = numbers(slice.start..slice.start + got.len());
    evidence.means_if(
        got.len() > expected.len() && *got == next && slice.start + got.len() > parameter.end,
        format!(
            "The slice of parameter {which} goes on into the next parameter. It ends where its parameter ends: the last slices \
             can be shorter, or empty."
        ),
    );
    // One piece of the line, but from a different place on.
    let from = got.first().map_or(0, |first| (*first as usize).saturating_sub(1));
    evidence.means_if(
        !expected.is_empty() && from != slice.start && *got == numbers(from..from + expected.len()),
        format!(
            "These are elements {from} to {} of the line, the end not included. Parameter {which} begins after all parameters \
             before it, at element {}, and new rank {}'s slice of it at element {}.",
            from + expected.len(),
            parameter.start,
            new.rank,
            slice.start
        ),
    );
    if expected.is_empty() {
        evidence.means(format!(
            "New rank {} has nothing of parameter {which}: its {} elements are all on ranks before it.",
            new.rank,
            parameter.len()
        ));
        return;
    }
    // The parts of each file.
    let holders = new.holders(&slice, part);
    let of_files = |olds: &[usize]| -> Vec<f32> {
        let held =
            |&old: &usize| numbers(slice.start.max(old * part)..slice.end.min((old + 1) * part));
        olds.iter().flat_map(held).collect()
    };
    let several = holders.len() > 1;
    evidence.means_if(
        several && *got == of_files(&holders[..1]),
        format!(
            "These are the elements of file {}. The slice of parameter {which} goes on where the next file begins.",
            holders[0]
        ),
    );
    evidence.means_if(
        holders.len() > 2 && *got == of_files(&holders[..2]),
        format!(
            "The slice of parameter {which} is in {} files, and you have read two of them. It can be longer than a file.",
            holders.len()
        ),
    );
    evidence.means_if(
        holders.len() > 2 && *got == of_files(&[holders[0], holders[holders.len() - 1]]),
        "You have read the first and the last file that have some of the slice. Those between them belong to it entirely.",
    );
    let backwards: Vec<usize> = holders.iter().rev().copied().collect();
    evidence.means_if(
        several && *got == of_files(&backwards),
        "All elements are there, but the files are in the wrong order: rank 0's elements come first.",
    );
    evidence.means_if(
        got.len() < expected.len(),
        format!(
            "The slice of parameter {which} has {} elements, and you return {}.",
            expected.len(),
            got.len()
        ),
    );
    evidence.means(format!(
        "The slice of parameter {which} is elements {} to {} of the line, the end not included, and file r has elements r x \
         {part} to (r + 1) x {part}. They have in common what lies between the larger beginning and the smaller end.",
        slice.start, slice.end
    ));
}

/// Numbers in one line: all of them, or how many there are and the first and last one.
fn said(numbers: &[f32]) -> String {
    match numbers {
        [] => "nothing".into(),
        [first, .., last] if numbers.len() > 8 => {
            format!("{} from {} to {}", thousands(numbers.len() as u64), first, last)
        }
        few => few.iter().map(|x| x.to_string()).collect::<Vec<_>>().join(" "),
    }
}
