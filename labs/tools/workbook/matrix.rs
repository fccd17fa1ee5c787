//! A room at one look, in a window of any size: a character for each participant and exercise, who
//! needs help first, where many are stuck, and what was predicted.

use super::document::{Document, Entry, harmless};
use super::report::{Readers, ago, name};
use kit::reader::now;
use kit::show::{Screen, counted};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The columns of a name, at most and at least.
const NAME: [usize; 2] = [12, 4];
/// Tries, or seconds since the last check, after which someone may need help. One wrong try is a
/// part of the work.
const TRIES: usize = 2;
const LONG: u64 = 600;

/// The room in at most `height` lines of the screen's width.
pub fn matrix(screen: &Screen, readers: &Readers, height: usize) -> String {
    let mut people: Vec<(&String, &Document)> = readers.documents.iter().collect();
    people.sort_by_key(|(_, document)| Reverse(trouble(document)));
    let begun = |entry: &Entry| entry.begun || entry.solved || entry.record.when > 0;
    let columns = readers.with(begun);
    let solved: usize = people.iter().map(|(_, document)| document.solved()).sum();
    let of_files = |files: &[String], says: &str| match files.len() {
        0 => String::new(),
        many => format!("{}{} {says}", screen.separator(), counted(many, "file", "files")),
    };
    let refused = of_files(&readers.refused, "not read");
    let unknown = of_files(&readers.unknown, "with unknown entries");
    let helped = people.iter().filter(|(_, document)| trouble(document).is_some()).count();
    let mut lines = vec![screen.bold(format!(
        "{}{dot}{} solved{dot}{} help{refused}{unknown}",
        counted(people.len(), "person", "people"),
        counted(solved, "exercise", "exercises"),
        counted(helped, "needs", "need"),
        dot = screen.separator(),
    ))];
    // Above, numbers and letters of columns are written downwards.
    let codes: Vec<(String, char)> = columns.iter().map(|name| readers.code(name)).collect();
    lines.extend(grid(screen, &people, &columns, &codes, height));
    // What is left of the window, in the order of how urgent it is.
    let mut left = height.saturating_sub(lines.len());
    let numbered = codes.iter().find(|(lab, _)| lab.parse::<u8>().is_ok());
    if let Some((lab, letter)) = numbered.filter(|_| left > 0) {
        let legend = format!(
            "columns, read downwards: {} {letter} is lab{lab}'s exercise {letter}   {}",
            lab.split("").collect::<Vec<_>>().join(" ").trim(),
            screen.either("✓ solved ✗ wrong ▸ begun", "+ solved x wrong > begun"),
        );
        lines.push(screen.dim(cut(&legend, screen.width)));
        left -= 1;
    }
    for (title, rows, most) in [
        ("help first", helps(screen, &people), 5),
        ("stuck at", stuck(readers), 3),
        ("predicted", predicted(&people), 3),
    ] {
        let shown = rows.len().min(left.saturating_sub(1)).min(most);
        if shown > 0 {
            lines.push(screen.dim(title));
            lines.extend(rows.into_iter().take(shown).map(|row| cut(&row, screen.width)));
            left -= shown + 1;
        }
    }
    lines.join("\n")
}

/// How much someone needs help: the tries at the current exercise, and for how long. None if not.
fn trouble(document: &Document) -> Option<(usize, u64)> {
    let at = document.at()?;
    let since = now().saturating_sub(at.record.when);
    let is_stuck = at.record.when > 0 && (at.record.tries >= TRIES || since >= LONG);
    is_stuck.then_some((at.record.tries, since))
}

/// A row for each participant, in as many blocks beside each other as the window needs, below the
/// numbers of labs and the letters of their exercises.
fn grid(
    screen: &Screen,
    people: &[(&String, &Document)],
    columns: &[&String],
    codes: &[(String, char)],
    height: usize,
) -> Vec<String> {
    const GAP: usize = 2;
    let [most, least] = NAME;
    let blocks = |blocks: usize| {
        let width = (screen.width - GAP * (blocks - 1)) / blocks;
        let names = width.saturating_sub(columns.len() + 1).min(most);
        (names >= least).then_some((blocks, names, people.len().div_ceil(blocks)))
    };
    let all: Vec<_> = (1..=6).filter_map(blocks).collect();
    // Half of the window is for the rest.
    let fits = all.iter().find(|(_, _, rows)| rows + 5 <= height / 2 + 6);
    let Some(&(blocks, names, rows)) = fits.or(all.last()) else {
        return vec![screen.dim("this window is too narrow for all exercises that are begun")];
    };
    let labels: Vec<[char; 3]> = codes
        .iter()
        .enumerate()
        .map(|(i, (lab, letter))| {
            let is_first = i == 0 || codes[i - 1].0 != *lab;
            let mut digits = lab.chars().rev();
            let [units, tens] = [digits.next(), digits.next()]
                .map(|digit| digit.filter(|_| is_first).unwrap_or(' '));
            [tens, units, *letter]
        })
        .collect();
    let mut lines: Vec<String> = (0..3)
        .map(|row| {
            let label: String = labels.iter().map(|label| label[row]).collect();
            let block = format!("{:names$} {label}", "");
            screen.dim(vec![block; blocks.min(people.len().max(1))].join(&" ".repeat(GAP)))
        })
        .collect();
    for row in 0..rows {
        let cells = (0..blocks).filter_map(|block| people.get(block * rows + row));
        let cells: Vec<String> = cells
            .map(|(who, document)| {
                let who: String = name(who).chars().take(names).collect();
                let marks: String =
                    columns.iter().map(|column| mark(screen, document, column)).collect();
                format!("{who:names$} {marks}")
            })
            .collect();
        lines.push(cells.join(&" ".repeat(GAP)));
    }
    lines
}

/// Solved, checked and wrong, begun, or nothing.
fn mark(screen: &Screen, document: &Document, name: &str) -> String {
    let Some(entry) = document.exercises.iter().find(|entry| entry.name == name) else {
        return " ".into();
    };
    match entry {
        Entry { solved: true, .. } => screen.good(screen.either("✓", "+")),
        Entry { record, .. } if record.when > 0 => screen.bad(screen.either("✗", "x")),
        Entry { begun: true, .. } => screen.either("▸", ">").into(),
        _ => screen.dim(screen.either("·", ".")),
    }
}

/// Whom to go to first.
fn helps(screen: &Screen, people: &[(&String, &Document)]) -> Vec<String> {
    let row = |(who, document): &(&String, &Document)| {
        let (tries, since) = trouble(document)?;
        let at = document.at()?;
        Some(format!(
            "  {:12}  {:20} {}{dot}{}{dot}{}",
            name(who),
            harmless(&at.name),
            harmless(&at.stuck_at()),
            counted(tries, "try", "tries"),
            ago(since),
            dot = screen.separator(),
        ))
    };
    people.iter().filter_map(row).collect()
}

/// Where many are stuck, and at what.
fn stuck(readers: &Readers) -> Vec<String> {
    let row = |((exercise, at), count): ((String, String), usize)| {
        let (lab, letter) = readers.code(&exercise);
        let exercise = format!("{lab}{letter} {}", harmless(&exercise));
        format!("  {count:>3}  {exercise:24} {}", harmless(&at))
    };
    readers.stuck().into_iter().map(row).collect()
}

/// How many predicted each lab's run, and the answer that most of those gave who were wrong.
fn predicted(people: &[(&String, &Document)]) -> Vec<String> {
    let mut labs: BTreeMap<&str, (usize, BTreeMap<&str, usize>)> = BTreeMap::new();
    for (_, document) in people {
        for (lab, one) in &document.predictions {
            let (right, wrong) = labs.entry(lab).or_default();
            match one.right {
                true => *right += 1,
                false => *wrong.entry(&one.said).or_default() += 1,
            }
        }
    }
    labs.iter()
        .map(|(lab, (right, wrong))| {
            let all = right + wrong.values().sum::<usize>();
            let most = wrong.iter().max_by_key(|(_, people)| **people);
            let most = most.map_or(String::new(), |(said, people)| {
                format!("; {people} said: {}", harmless(said))
            });
            format!("  {}  {right} of {all} right{most}", harmless(lab))
        })
        .collect()
}

/// A line that does not go on in the next one.
fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_string();
    }
    line.chars().take(width - 1).chain(['…']).collect()
}
