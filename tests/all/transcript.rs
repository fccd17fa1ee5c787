//! Files that show commands and what they print, as a terminal does: screens and refusals.
//!
//! A case begins with `$ ` and its command, and the next one stands after an empty line. Marks are
//! for what differs from run to run and from machine to machine:
//!
//! | mark | what it stands for |
//! |---|---|
//! | `[..]` | anything within a line |
//! | `[...]`, alone in a line | any lines, or none |
//! | `[1.5 to 1.7]` | a number in these bounds |
//!
//! Processors add in different orders, and so a number with a point may be off by one in its last
//! digit. All else is as it stands.

use std::path::Path;
use std::sync::Mutex;

/// Checks all, such as files, as many at a time as there are cores: a lab that waits for another's
/// ranks draws other times.
pub fn each<T: Send>(all: Vec<T>, check: impl Fn(T) + Sync) {
    let all = Mutex::new(all.into_iter());
    let next = || all.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..shardlab::launch::cores() {
            scope.spawn(|| {
                while let Some(one) = next() {
                    check(one);
                }
            });
        }
    });
}

/// The commands of a file's cases.
pub fn commands(text: &str) -> Vec<&str> {
    let first_lines = cases_of(text).into_iter().filter_map(|case| case.lines().next());
    first_lines
        .map(|line| line.strip_prefix("$ ").expect("a case begins with its command"))
        .collect()
}

/// Runs all cases of a file, and compares; with `overwrites`, writes what does not fit anew.
///
/// `run` runs a command, and returns what it printed. It is called twice for a case that is written
/// anew, the second time with `true`, for a run that may differ: what then differs gets a mark.
#[track_caller]
pub fn check(file: &Path, overwrites: bool, run: impl Fn(&str, bool) -> String) {
    let expected = std::fs::read_to_string(file).unwrap();
    let mut cases = Vec::new();
    for (expected, command) in cases_of(&expected).into_iter().zip(commands(&expected)) {
        let printed = |other| format!("$ {command}\n{}", run(command, other).trim_end());
        let case = printed(false);
        if fits(expected, &case) {
            cases.push(expected.to_owned());
            continue;
        }
        assert!(
            overwrites,
            "{}\n{}\n--- now:\n{case}\n",
            file.display(),
            first_difference(expected, &case)
        );
        cases.push(written(expected, &case, &printed(true)));
    }
    if overwrites {
        std::fs::write(file, cases.join("\n\n") + "\n").unwrap();
    }
}

/// The cases of a file, without the empty lines between them.
fn cases_of(text: &str) -> Vec<&str> {
    let starts = text.match_indices("\n\n$ ").map(|(at, _)| at + 2);
    let starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
    let ends = starts[1..].iter().copied().chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| text[start..end].trim_end())
        .collect()
}

/// Whether a case is what was expected.
pub fn fits(expected: &str, case: &str) -> bool {
    let expected: Vec<&str> = expected.lines().collect();
    lines_fit(&expected, &case.lines().collect::<Vec<_>>())
}

fn lines_fit(expected: &[&str], case: &[&str]) -> bool {
    match expected.split_first() {
        None => case.is_empty(),
        Some((&"[...]", rest)) => (0..=case.len()).any(|at| lines_fit(rest, &case[at..])),
        Some((first, rest)) => {
            case.first().is_some_and(|line| line_fits(first, line)) && lines_fit(rest, &case[1..])
        }
    }
}

/// The first line that does not fit, where no mark for lines stands before it.
fn first_difference(expected: &str, case: &str) -> String {
    let mut case = case.lines();
    for line in expected.lines().take_while(|&line| line != "[...]") {
        let is = case.next().unwrap_or("(no line)");
        if !line_fits(line, is) {
            return format!("expected: {line}\n     got: {is}");
        }
    }
    "other lines than expected".into()
}

fn line_fits(expected: &str, line: &str) -> bool {
    let (mut expected, mut line) = (expected, line);
    // Digits that follow a letter or a digit are no number: a hash, a name.
    let mut in_a_word = false;
    loop {
        if let Some(rest) = expected.strip_prefix("[..]") {
            let mut ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            return ends.any(|at| line_fits(rest, &line[at..]));
        }
        if let Some((bounds, rest)) = bounds(expected) {
            let Some((number, _, after)) = number(line) else {
                return false;
            };
            if !bounds.contains(&number) {
                return false;
            }
            (expected, line) = (rest, after);
            continue;
        }
        if !in_a_word
            && let (Some((one, ones, rest)), Some((other, others, after))) =
                (number(expected), number(line))
        {
            let off = (one - other).abs() * 10f64.powi(ones as i32);
            if ones != others || off > if ones > 0 { 1.001 } else { 0.0 } {
                return false;
            }
            (expected, line, in_a_word) = (rest, after, true);
            continue;
        }
        let (Some(one), Some(other)) = (expected.chars().next(), line.chars().next()) else {
            return expected.is_empty() && line.is_empty();
        };
        if one != other {
            return false;
        }
        in_a_word = one.is_alphanumeric() || one == '_';
        (expected, line) = (&expected[one.len_utf8()..], &line[one.len_utf8()..]);
    }
}

/// The bounds that a text begins with, and the rest.
fn bounds(text: &str) -> Option<(std::ops::RangeInclusive<f64>, &str)> {
    let (inside, rest) = text.strip_prefix('[')?.split_once(']')?;
    let (low, high) = inside.split_once(" to ")?;
    Some((low.parse().ok()?..=high.parse().ok()?, rest))
}

/// The number that a text begins with, `1,234.5`, with its decimals, and the rest.
fn number(text: &str) -> Option<(f64, usize, &str)> {
    let is_digit = |c: char| c.is_ascii_digit();
    if !text.starts_with(is_digit) {
        return None;
    }
    let whole = text.find(|c: char| !is_digit(c) && c != ',').unwrap_or(text.len());
    // A comma or a point at the end is the sentence's.
    let whole = text[..whole].trim_end_matches(',').len();
    let decimals = match text[whole..].strip_prefix('.') {
        Some(rest) => rest.find(|c: char| !is_digit(c)).unwrap_or(rest.len()),
        None => 0,
    };
    let end = if decimals > 0 { whole + 1 + decimals } else { whole };
    Some((text[..end].replace(',', "").parse().ok()?, decimals, &text[end..]))
}

/// A case written anew: lines that an old one fits keep its marks, and what two runs print
/// differently gets marks.
fn written(old: &str, one: &str, other: &str) -> String {
    let lines: Vec<(&str, &str)> = one.lines().zip(other.lines()).collect();
    let same = one.lines().count() == other.lines().count();
    let line = |(one, other): &(&str, &str)| match old
        .lines()
        .find(|old| line_fits(old, one) && line_fits(old, other))
    {
        Some(old) => old.to_owned(),
        None => marked(one, other),
    };
    if same {
        return lines.iter().map(line).collect::<Vec<_>>().join("\n");
    }
    // A drawing of measured times has other lines each time: somebody must mark it.
    one.to_owned()
}

/// A line in which a mark replaces each word that differs, with the spaces that may.
fn marked(one: &str, other: &str) -> String {
    let words = |line| str::split_whitespace(line).count();
    if line_fits(one, other) {
        return one.to_owned();
    }
    if words(one) != words(other) {
        let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        return same.map(|(c, _)| c).collect::<String>() + "[..]";
    }
    let mut marked = String::new();
    let mut rest = one;
    for (word, other) in one.split_whitespace().zip(other.split_whitespace()) {
        let at = rest.find(word).expect("a word of this line");
        let spaces = &rest[..at];
        let after_mark = marked.ends_with("[..]");
        rest = &rest[at + word.len()..];
        if line_fits(word, other) {
            // A wider number leaves fewer spaces.
            marked += if after_mark && spaces.len() > 1 { " " } else { spaces };
            marked += word;
        } else if after_mark {
            continue;
        } else {
            marked += if spaces.len() > 1 && !marked.is_empty() {
                " "
            } else {
                spaces
            };
            marked += "[..]";
        }
    }
    marked
}

#[test]
fn another_text_does_not_fit() {
    let expected = "$ lab\nerror: takes 7 TB, and [..] are free\nhelp: less\n";
    let case = |line: &str| format!("$ lab\n{line}\nhelp: less\n");
    assert!(fits(expected, &case("error: takes 7 TB, and 2 GB are free")));
    assert!(!fits(expected, &case("error: takes 8 TB, and 2 GB are free")));
    assert!(!fits(expected, &format!("{expected}more\n")));
}

#[test]
fn marks_and_last_digits_are_all_that_may_differ() {
    for (expected, line, is_same) in [
        ("loss 1.547, and [..] s", "loss 1.548, and 0.3 s", true),
        ("loss 1.547", "loss 1.549", false),
        ("loss 1.547", "loss 1.5470", false),
        ("1,234 parameters", "1,235 parameters", false),
        ("1,234.5 bytes.", "1,234.4 bytes.", true),
        ("gain [1.5 to 2] at rank 0", "gain 1.73 at rank 0", true),
        ("gain [1.5 to 2] at rank 0", "gain 2.01 at rank 0", false),
        ("gain [1.5 to 2] at rank 0", "gain 1.73 at rank 1", false),
        ("b403..7283", "b403..7284", false),
        ("a [..] b [..] c", "a 1 b 2 c 3 c", true),
        ("a [..] b", "a 1 c", false),
    ] {
        assert_eq!(line_fits(expected, line), is_same, "{expected} / {line}");
    }
    assert!(fits("a\n[...]\nb\n", "a\nb\n") && fits("a\n[...]\nb\n", "a\n1\n2\nb\n"));
    assert!(!fits("a\n[...]\nb\n", "a\n1\n2\n"));
}

#[test]
fn what_two_runs_print_differently_gets_a_mark() {
    for (one, other, expected) in [
        ("a 1.5 s  done", "a 2.9 s  done", "a [..] s  done"),
        ("a     12.5  7", "a      9.1  7", "a [..] 7"),
        ("loss 1.547", "loss 1.546", "loss 1.547"),
        ("a b", "a b c", "a b[..]"),
    ] {
        assert_eq!(marked(one, other), expected);
    }
    // A mark that somebody set stays.
    assert_eq!(written("x [1 to 3] s\ny", "x 1.2 s\nz", "x 2.2 s\nz"), "x [1 to 3] s\nz");
}

#[test]
fn a_case_may_have_empty_lines() {
    assert_eq!(cases_of("$ a\n1\n\n2\n\n$ b\n3\n"), ["$ a\n1\n\n2", "$ b\n3"]);
}
