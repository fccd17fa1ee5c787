//! The parts of files that follow from `labs/labs.toml`.
//!
//! To have one more list of labs somewhere, write a function of the course here and its line in
//! [`BLOCKS`]; a test finds an invented lab in each of them.

use super::read;
use kit::{Course, Exercise, Lab, TwoDays, capitalized};
use shardlab::error::BadInput;
use std::path::Path;

/// A part of a file that follows from `labs/labs.toml`.
pub struct Block {
    /// From the checkout's root.
    pub file: &'static str,
    /// What stands before it, one after the other, and what ends it.
    after: &'static [&'static str],
    until: &'static str,
    text: fn(&Given) -> Result<String, BadInput>,
}

/// What a block may depend on.
struct Given<'a> {
    course: &'a Course,
    root: &'a Path,
    /// The block as it is.
    is: &'a str,
}

/// All of them.
pub const BLOCKS: &[Block] = &[
    Block {
        file: "README.md",
        after: &["## The labs\n", "|---|---|---|---|---|\n"],
        until: "\n\n",
        text: readme,
    },
    Block {
        file: "book/src/SUMMARY.md",
        after: &["# The labs\n\n"],
        until: "\n\n# ",
        text: summary,
    },
    Block {
        file: "book/src/exercises.md",
        after: &["<div class=\"exercises\">\n\n"],
        until: "\n\n</div>",
        text: exercises,
    },
    Block {
        file: "book/src/teach/sheets.md",
        after: &["<!-- labs: written by workbook dev update -->\n\n"],
        until: "\n\n<!-- end of labs -->",
        text: sheets,
    },
    Block {
        file: "book/src/how-to-use.md",
        after: &["\n### Two days", "|---:|---|---|\n"],
        until: "\n\n",
        text: path,
    },
    Block {
        file: "book/src/teach/timetables.md",
        after: &["\n### Two days", "|---:|---:|---|---|\n"],
        until: "\n\n",
        text: timetable,
    },
    Block {
        file: "CITATION.cff",
        after: &["A workbook in Rust: "],
        until: " labs,",
        text: number,
    },
    Block {
        file: "CHANGELOG.md",
        after: &["### Added\n\n- "],
        until: " labs, each",
        text: |given| Ok(capitalized(&number(given)?)),
    },
    Block {
        file: "Cargo.toml",
        after: &["# labs: written by workbook dev update\n"],
        until: "\n# end of labs",
        text: |given| Ok(lines(given, |lab| format!("{0} = {{ path = \"labs/{0}\" }}", lab.name))),
    },
    Block {
        file: "labs/all/Cargo.toml",
        after: &["# labs: written by workbook dev update\n"],
        until: "\n# end of labs",
        text: |given| Ok(lines(given, |lab| format!("{}.workspace = true", lab.name))),
    },
    Block {
        file: "labs/all/lib.rs",
        after: &["    // labs: written by workbook dev update\n"],
        until: "\n    // end of labs",
        text: |given| Ok(lines(given, |lab| format!("    {},", lab.name))),
    },
    Block {
        file: "tests/all/main.rs",
        after: &["// labs: written by workbook dev update\n"],
        until: "\n// end of labs",
        text: modules,
    },
];

impl Block {
    /// The block as it is in the file's text.
    ///
    /// # Errors
    /// If what marks it is not there.
    pub fn is<'a>(&self, file: &'a str) -> Result<&'a str, BadInput> {
        let lost = |mark: &str| {
            let what = format!("{} has lost {mark:?}, which marks its labs", self.file);
            BadInput::new(what, "restore it with git")
        };
        let mut rest = file;
        for mark in self.after {
            rest = rest.split_once(mark).ok_or_else(|| lost(mark))?.1;
        }
        Ok(rest.split_once(self.until).ok_or_else(|| lost(self.until))?.0)
    }

    /// The block as it should be.
    ///
    /// # Errors
    /// If what it is made of cannot be read.
    pub fn should(&self, root: &Path, course: &Course, is: &str) -> Result<String, BadInput> {
        (self.text)(&Given { course, root, is })
    }

    /// The file's text with the block as it should be.
    pub(super) fn put(&self, root: &Path, course: &Course, file: &str) -> Result<String, BadInput> {
        let is = self.is(file)?;
        let begins = is.as_ptr() as usize - file.as_ptr() as usize;
        let (before, after) = (&file[..begins], &file[begins + is.len()..]);
        Ok(format!("{before}{}{after}", self.should(root, course, is)?))
    }
}

fn lines(given: &Given, line: impl Fn(&Lab) -> String) -> String {
    given.course.labs.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn readme(given: &Given) -> Result<String, BadInput> {
    Ok(lines(given, |lab| {
        let Lab { name, title, question, takes, ranks, .. } = lab;
        format!("| `{name}` | {title} | {question} | {takes} | {ranks} |")
    }))
}

/// Each lab's page, and those that follow it, with their first headings.
fn summary(given: &Given) -> Result<String, BadInput> {
    let mut lines = Vec::new();
    for Lab { name, title, beside, .. } in &given.course.labs {
        lines.push(format!("- [{name} · {title}]({name}.md)"));
        for page in beside {
            let file = format!("book/src/{page}.md");
            let text = read(given.root, &file)?;
            let heading = text.lines().next().and_then(|line| line.strip_prefix("# "));
            let Some(heading) = heading else {
                let what = format!("{file} begins with no heading, `# …`");
                return Err(BadInput::new(what, "its title in the book is that heading"));
            };
            lines.push(format!("- [{heading}]({page}.md)"));
        }
    }
    Ok(lines.join("\n"))
}

fn exercises(given: &Given) -> Result<String, BadInput> {
    let section = |heading: String, exercises: &[Exercise]| {
        let mut text = format!("## {heading}\n\n| exercise | title | minutes |\n|---|---|---:|");
        for Exercise { name, title, minutes, .. } in exercises {
            text += &format!("\n| `{name}` | {title} | {minutes} |");
        }
        text
    };
    let of_lab =
        |lab: &Lab| section(format!("[{0} · {1}]({0}.md)", lab.name, lab.title), &lab.exercises);
    let mut sections: Vec<String> = given.course.labs.iter().map(of_lab).collect();
    let ladder = &given.course.ladder;
    sections.push(section(format!("[{}](ladder.md)", ladder.title), &ladder.exercises));
    Ok(sections.join("\n\n"))
}

/// A sheet of paper for each lab.
fn sheets(given: &Given) -> Result<String, BadInput> {
    let sheet = |lab: &Lab| {
        let Lab { name, title, question, picture, .. } = lab;
        let mut commands = format!("cargo run --bin {name} -- --predict");
        for flags in &lab.sheet {
            let flags = if flags.is_empty() {
                String::new()
            } else {
                format!(" -- {flags}")
            };
            commands += &format!("\ncargo run --bin {name}{flags}");
        }
        let to_write: Vec<String> =
            lab.to_write().map(|exercise| format!("`{}`", exercise.name)).collect();
        let to_write = to_write.join(", ");
        let takeaway = capitalized(&lab.takeaway);
        format!(
            "<section class=\"sheet\">\n\n## {name} · {title}\n\n*{question}*\n\n\
             <figure>\n{{{{#include ../../outputs/{picture}.svg}}}}\n</figure>\n\n\
             ```sh\n{commands}\n```\n\n\
             <p class=\"line\">I predicted:</p>\n<p class=\"line\">I saw:</p>\n\n\
             To write: {to_write}. The page: [{name}](../{name}.md)\n\n{takeaway}\n\n</section>"
        )
    };
    Ok(given.course.labs.iter().map(sheet).collect::<Vec<_>>().join("\n\n"))
}

/// The rows of the path of two days. `book minutes` counts a row's minutes.
fn path(given: &Given) -> Result<String, BadInput> {
    Ok(with_labs(given, is_on_path, |lab, day, is| {
        let minutes = first_cell(is).unwrap_or("0");
        format!("| {minutes} | [{0}]({0}.md){1} | {2} |", lab.name, with(day), day.ends)
    }))
}

fn is_on_path(row: &str, lab: &Lab) -> bool {
    row.contains(&format!("({}.md)", lab.name))
}

/// The same rows of the timetable: their minutes are the path's, and `book minutes` sets the clock.
fn timetable(given: &Given) -> Result<String, BadInput> {
    let paths = read(given.root, "book/src/how-to-use.md")?;
    let days = paths.split("\n### Two days").nth(1).unwrap_or_default();
    let is_of = |row: &str, lab: &Lab| {
        row.split(" | ").nth(3).is_some_and(|what| what.starts_with(&lab.name))
    };
    Ok(with_labs(given, is_of, |lab, day, is| {
        let clock = first_cell(is).unwrap_or("9:00");
        let minutes = days.lines().find(|row| is_on_path(row, lab)).and_then(first_cell);
        let minutes = minutes.unwrap_or("0");
        format!("| {clock} | {minutes} | all | {}{}: {} |", lab.name, with(day), day.room)
    }))
}

fn first_cell(row: &str) -> Option<&str> {
    row.strip_prefix("| ")?.split(" | ").next()
}

/// The exercise that belongs to a lab's row.
fn with(day: &TwoDays) -> String {
    day.with
        .as_ref()
        .map_or(String::new(), |exercise| format!(", with `{exercise}`"))
}

/// A table's rows, with the row of each lab that has one on the second of two days: in its place,
/// or behind the row of the lab before it. `row` is given the row as it is, or nothing.
fn with_labs(
    given: &Given,
    is_of: impl Fn(&str, &Lab) -> bool,
    row: impl Fn(&Lab, &TwoDays, &str) -> String,
) -> String {
    let mut rows: Vec<String> = given.is.lines().map(String::from).collect();
    let mut behind = rows.len();
    for lab in &given.course.labs {
        let Some(day) = &lab.two_days else { continue };
        match rows.iter().position(|row| is_of(row, lab)) {
            Some(at) => {
                rows[at] = row(lab, day, &rows[at]);
                behind = at + 1;
            }
            None => {
                rows.insert(behind, row(lab, day, ""));
                behind += 1;
            }
        }
    }
    rows.join("\n")
}

fn number(given: &Given) -> Result<String, BadInput> {
    Ok(in_words(given.course.labs.len()))
}

/// The test programs of all labs: `lab08.rs`, and `lab08_scaling.rs` beside it.
fn modules(given: &Given) -> Result<String, BadInput> {
    let mut names: Vec<String> = given.course.labs.iter().map(|lab| lab.name.clone()).collect();
    for lab in &given.course.labs {
        for entry in std::fs::read_dir(given.root.join("tests/all")).into_iter().flatten().flatten()
        {
            let file = entry.file_name().to_string_lossy().into_owned();
            if file.starts_with(&format!("{}_", lab.name)) && file.ends_with(".rs") {
                names.push(file.trim_end_matches(".rs").into());
            }
        }
    }
    names.sort();
    Ok(names.iter().map(|name| format!("mod {name};")).collect::<Vec<_>>().join("\n"))
}

/// A number as a word: `thirteen`.
pub fn in_words(number: usize) -> String {
    const WORDS: [&str; 20] = [
        "no",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    match (number, number % 10) {
        (0..20, _) => WORDS[number].into(),
        (20, _) => "twenty".into(),
        (21..30, unit) => format!("twenty-{}", WORDS[unit]),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_number_is_a_word() {
        let words = [12, 20, 23, 30].map(in_words);
        assert_eq!(words, ["twelve", "twenty", "twenty-three", "30"]);
        assert_eq!(capitalized(&words[0]), "Twelve");
    }

    #[test]
    fn a_block_lies_between_its_marks_and_needs_them() {
        let block = Block {
            file: "f",
            after: &["# A", "|\n"],
            until: "\n\n",
            text: number,
        };
        let file = "|\nno\n\n# A\n\n|\nold\nrows\n\nend\n";
        assert_eq!(block.is(file).unwrap(), "old\nrows");
        let course = Course::parse("lab = []").unwrap();
        let put = block.put(Path::new("."), &course, file).unwrap();
        assert_eq!(put, "|\nno\n\n# A\n\n|\nno\n\nend\n");
        let lost = block.is("# A\n|\nrows").unwrap_err();
        assert_eq!(lost.what, "f has lost \"\\n\\n\", which marks its labs");
    }

    #[test]
    fn a_new_lab_gets_a_row_behind_the_lab_before_it() {
        let mut course = Course::read().unwrap();
        course.labs.drain(..11);
        course.labs.truncate(2);
        let [lab11, lab12] = &mut course.labs[..] else {
            panic!("two labs are left")
        };
        let day = |ends: &str| TwoDays { with: None, ends: ends.into(), room: "run".into() };
        lab11.two_days = Some(TwoDays { with: Some("lab11-a".into()), ..day("a plan") });
        lab12.two_days = Some(day("a sequence"));
        let is = "| 5 | a page | x |\n| 50 | [lab11](lab11.md) | old |\n| 7 | [b](b.md) | y |";
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
        assert_eq!(
            path(&Given { course: &course, root, is }).unwrap(),
            "| 5 | a page | x |\n| 50 | [lab11](lab11.md), with `lab11-a` | a plan |\n\
             | 0 | [lab12](lab12.md) | a sequence |\n| 7 | [b](b.md) | y |"
        );
        let is = "| 9:00 | 50 | all | lab11: old |\n| 9:50 | 5 | you | a page |";
        let is = timetable(&Given { course: &course, root, is }).unwrap();
        let rows: Vec<&str> = is.lines().collect();
        assert!(rows[0].ends_with(" | all | lab11, with `lab11-a`: run |"), "{is}");
        assert!(rows[1].starts_with("| 9:00 | ") && rows[1].ends_with(" | lab12: run |"), "{is}");
        assert!(!rows[1].contains("| 0 |") && rows.len() == 3, "{is}");
        assert_eq!(timetable(&Given { course: &course, root, is: &is }).unwrap(), is);
    }
}
