//! The check of lab09-gather: parameters on one rank, on two and on many, the last one before the padding, and a real group.

use exercise::{Slices, gather};
use kit::check::{Evidence, run};
use kit::show::thousands;
use shardlab::Result;
use shardlab::parallel::partition::Flat;
use std::ops::Range;
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("3 ranks: parameters that one rank holds", |evidence| {
            all(evidence, &SMALL, &[0, 3])
        }),
        ("a parameter that two ranks share", |evidence| {
            all(evidence, &SMALL, &[1])
        }),
        ("one that begins and ends with a slice", |evidence| {
            all(evidence, &EVEN, &[1])
        }),
        ("the last one, with padding behind it", |evidence| {
            all(evidence, &SMALL, &[4])
        }),
        ("one on five ranks", |evidence| all(evidence, &WIDE, &[1])),
        ("10 elements, and a rank with only padding", |evidence| {
            all(evidence, &TEN, &[0, 1])
        }),
        ("65 layer norms on 768 ranks", |evidence| {
            all(evidence, &REAL, &[0, 40, 64])
        }),
    ])
}

/// The parameters of a group, and the ranks that share it.
struct Case {
    sizes: &'static [usize],
    ranks: usize,
}

/// 22 elements in slices of 8.
const SMALL: Case = Case {
    sizes: &[5, 6, 3, 2, 6],
    ranks: 3,
};
/// 18 elements in slices of 6.
const EVEN: Case = Case {
    sizes: &[6, 6, 4, 2],
    ranks: 3,
};
/// 40 elements in slices of 8.
const WIDE: Case = Case {
    sizes: &[3, 34, 3],
    ranks: 5,
};
/// 10 elements in slices of 4, two of them padding on rank 2, and four on rank 3.
const TEN: Case = Case {
    sizes: &[6, 4],
    ranks: 4,
};
/// The group whose conversion failed: slices of 348, and 1,024 elements of padding on the last three ranks.
const REAL: Case = Case {
    sizes: &[4096; 65],
    ranks: 768,
};

/// Files in memory, and what was read of them. Each element is its offset in the group, counted from 1, and padding is 0.
struct Files {
    flat: Flat,
    reads: Vec<(usize, Range<usize>)>,
}

impl Files {
    fn of(case: &Case) -> Files {
        Files {
            flat: Flat {
                numel: case.sizes.iter().sum(),
                ranks: case.ranks,
            },
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

impl Slices for Files {
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

fn all(evidence: &mut Evidence, case: &Case, wanted: &[usize]) -> Result<()> {
    for &wanted in wanted {
        parameter(evidence, case, wanted)?;
        if !evidence.agrees() {
            break;
        }
    }
    Ok(())
}

fn numbers(elements: Range<usize>) -> Vec<f32> {
    elements.map(|i| (i + 1) as f32).collect()
}

const EMPTY: &str = "Nothing superfluous is read, but you read an empty range of a file that has nothing of this parameter. Its file is \
         opened for that: with 768 ranks, for each parameter.";

fn parameter(evidence: &mut Evidence, case: &Case, wanted: usize) -> Result<()> {
    let Case { sizes, ranks } = *case;
    let mut files = Files::of(case);
    let start = sizes[..wanted].iter().sum::<usize>();
    let end = start + sizes[wanted];
    let part = files.numel();
    let input = format!(
        "parameter {wanted} of {}, {ranks} slices of {part} elements",
        sizes.len()
    );
    evidence.given(&input);
    let got = gather(&mut files, sizes, wanted);
    let expected = numbers(start..end);
    let reads = &files.reads;
    let read: usize = reads.iter().map(|(_, range)| range.len()).sum();
    let holders = start / part..(end - 1) / part + 1;
    evidence.row(got == expected, &input, said(&expected), said(&got));
    if let Some((rank, range)) = reads
        .iter()
        .find(|(rank, range)| *rank >= ranks || range.end > part)
    {
        let read = format!("{range:?} of rank {rank}");
        evidence.row(
            false,
            format!("{input}: a read"),
            format!("within 0..{part} of ranks 0 to {}", ranks - 1),
            &read,
        );
        evidence.means_if(range.is_empty(), EMPTY);
        evidence.means_if(
            *rank >= ranks,
            format!(
                "You read from rank {rank}, and there are ranks 0 to {}.",
                ranks - 1
            ),
        );
        evidence.means_if(
            !holders.contains(rank),
            format!(
                "You read {read}, but its slice has nothing of this parameter. Compare both ends of the two ranges."
            ),
        );
        evidence.means_if(
            range.start >= rank * part && *rank > 0,
            format!(
                "You read {read}: these are offsets in the group. `read` counts from the beginning of a slice, and rank \
                 {rank}'s begins at {}.",
                rank * part
            ),
        );
        evidence.means(format!(
            "You read {read}, and a slice has {part} elements. The rest of the parameter is on the next rank."
        ));
        return Ok(());
    }
    why_wrong(evidence, case, wanted, &got, &files);
    if !evidence.agrees() {
        return Ok(());
    }
    let mut opened: Vec<usize> = reads.iter().map(|read| read.0).collect();
    opened.sort_unstable();
    opened.dedup();
    evidence.same(format!("{input}: elements read"), sizes[wanted], read);
    evidence.same(
        format!("{input}: files read from"),
        holders.len(),
        opened.len(),
    );
    if evidence.agrees() {
        return Ok(());
    }
    let total = part * ranks;
    evidence.means_if(
        read >= files.flat.numel && ranks > holders.len(),
        format!(
            "The numbers are right, but you read all {} elements for a parameter of {}. With 768 ranks and 32 layers such a \
             converter reads the whole checkpoint once for each of 195 parameters.",
            thousands(total as u64),
            thousands(sizes[wanted] as u64)
        ),
    );
    evidence.means_if(reads.iter().any(|(_, range)| range.is_empty()), EMPTY);
    evidence.means_if(
        read == holders.len() * part,
        "You read from the right files, but whole slices of them. Work out which elements of a slice you need, and read these.",
    );
    evidence.means_if(
        read > sizes[wanted] && opened.len() == holders.len(),
        "You read from the right files, but more than the elements of this parameter.",
    );
    evidence
        .means("The numbers are right. Read each element of the parameter once, and nothing else.");
    Ok(())
}

/// Explains numbers that are not those of the parameter.
fn why_wrong(evidence: &mut Evidence, case: &Case, wanted: usize, got: &[f32], files: &Files) {
    let Case { sizes, ranks } = *case;
    let start: usize = sizes[..wanted].iter().sum();
    let end = start + sizes[wanted];
    let part = files.numel();
    let numel = files.flat.numel;
    let expected = numbers(start..end);
    if got == expected {
        return;
    }
    // The elements that slices of a different length would have.
    let cut = |other: usize| -> Vec<f32> {
        let of = |rank: usize| {
            let from = start.max(rank * other);
            let to = end.min((rank + 1) * other);
            if from < to {
                files.elements(rank, from - rank * other..to - rank * other)
            } else {
                Vec::new()
            }
        };
        (0..ranks).flat_map(of).collect()
    };
    let lengths = [numel / ranks, numel.div_ceil(ranks)];
    let other = lengths
        .into_iter()
        .find(|other| *other > 0 && *other != part && got == cut(*other));
    evidence.means_if(
        other.is_some(),
        format!(
            "You take slices of {} elements. They have {part}, because the group is padded before it is cut: ask `numel`.",
            other.unwrap_or(0)
        ),
    );
    let begin = |at: &usize| sizes[..*at].iter().sum::<usize>();
    let mistaken =
        (0..sizes.len()).find(|at| *at != wanted && got.first() == Some(&((begin(at) + 1) as f32)));
    evidence.means_if(
        mistaken.is_some(),
        format!(
            "These elements begin with parameter {}. Parameter {wanted} begins behind all parameters before it: at element \
             {start}, counted from 0.",
            mistaken.unwrap_or(0)
        ),
    );
    evidence.means_if(
        got.starts_with(&expected) && got[expected.len()..].iter().all(|number| *number == 0.0),
        "The parameter is followed by zeros: they are padding. A parameter ends after its own elements, also if it is the last.",
    );
    evidence.means_if(
        got.starts_with(&expected),
        "The parameter is followed by elements of the next one. It ends after its own elements.",
    );
    // The parts of each slice.
    let held = |rank: usize| start.max(rank * part)..end.min((rank + 1) * part);
    let holders = start / part..(end - 1) / part + 1;
    let first = holders.start;
    let last = holders.end - 1;
    let joined = |ranks: &[usize]| {
        ranks
            .iter()
            .flat_map(|&rank| numbers(held(rank)))
            .collect::<Vec<f32>>()
    };
    evidence.means_if(
        first < last && got == joined(&[first]),
        format!(
            "These are the elements that rank {first} holds. The parameter goes on where the next slice begins, on rank {}.",
            first + 1
        ),
    );
    evidence.means_if(
        first + 1 < last && got == joined(&[first, first + 1]),
        format!(
            "The parameter is on ranks {first} to {last}, and you have read two of them. It can be longer than a slice."
        ),
    );
    evidence.means_if(
        first + 1 < last && got == joined(&[first, last]),
        "You have read the first and the last slice that have some of the parameter. Those between them belong to it entirely.",
    );
    let backwards: Vec<usize> = holders.clone().rev().collect();
    evidence.means_if(
        got == joined(&backwards),
        "All elements are there, but the slices are in the wrong order: rank 0's elements come first.",
    );
    evidence.means_if(
        got.is_empty() && files.reads.is_empty(),
        "Nothing was read. Which elements do a slice and the parameter have in common?",
    );
    evidence.means_if(
        got.len() < expected.len(),
        format!(
            "The parameter has {} elements, and you return {}.",
            sizes[wanted],
            got.len()
        ),
    );
    evidence.means(
        "Compare the offsets: the parameter is elements `start` to `end` of the group, and slice r is elements r x length to \
         (r + 1) x length. They have the elements from the larger beginning to the smaller end.",
    );
}

/// Numbers in one line: all of them, or how many there are and the first and last one.
fn said(numbers: &[f32]) -> String {
    match numbers {
        [] => "nothing".into(),
        [first, .., last] if numbers.len() > 8 => {
            format!(
                "{} from {} to {}",
                thousands(numbers.len() as u64),
                first,
                last
            )
        }
        few => few
            .iter()
            .map(|x| x.to_string())
            .collect::<Vec<_>>()
            .join(" "),
    }
}
