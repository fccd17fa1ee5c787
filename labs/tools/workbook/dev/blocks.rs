//! The parts of files that follow from `labs/labs.toml`.
//!
//! To have one more list of labs somewhere, write a function of the course here and its line in
//! [`BLOCKS`]; a test finds an invented lab in each of them.

use super::{in_checkout, read};
use kit::{Course, Exercise, Lab, TwoDays, capitalized};
use shardlab::error::BadInput;
use std::path::Path;

/// A part of a file that follows from `labs/labs.toml`, or from other files of the checkout. It
/// lies between two marks, which name it, and nothing else of the file tells where it is.
pub struct Block {
    /// From the checkout's root.
    pub file: &'static str,
    name: &'static str,
    marks: Marks,
    text: fn(&Given) -> Result<String, BadInput>,
    /// Whether each lab is in it.
    pub lists_labs: bool,
}

/// How a file writes a comment.
enum Marks {
    Html,
    Hash,
    /// In Rust, after so many spaces.
    Slashes(usize),
}

/// What a block may depend on.
struct Given<'a> {
    course: &'a Course,
    root: &'a Path,
    /// The block as it is.
    is: &'a str,
}

/// A block that has a part for each lab.
const fn of_labs(
    file: &'static str,
    marks: Marks,
    text: fn(&Given) -> Result<String, BadInput>,
) -> Block {
    Block { file, name: "labs", marks, text, lists_labs: true }
}

/// A block of something else.
const fn of(
    file: &'static str,
    name: &'static str,
    text: fn(&Given) -> Result<String, BadInput>,
) -> Block {
    Block { file, name, marks: Marks::Html, text, lists_labs: false }
}

/// All of them.
pub const BLOCKS: &[Block] = &[
    of("README.md", "labs", questions),
    of("README.md", "code four_ranks", |given| {
        code(given, "rust", "examples/four_ranks.rs", None)
    }),
    of("README.md", "code heart", |given| {
        code(given, "rust", "labs/lab05/lesson.rs", Some("heart"))
    }),
    of("README.md", "code pytorch", |given| {
        code(given, "python", "book/pytorch/lab07.py", Some("loop"))
    }),
    of("findings/README.md", "findings", findings),
    of_labs("book/src/SUMMARY.md", Marks::Html, summary),
    of_labs("book/src/exercises.md", Marks::Html, exercises),
    of_labs("book/src/teach/sheets.md", Marks::Html, sheets),
    of_labs("book/src/how-to-use.md", Marks::Html, all_questions),
    Block {
        name: "two days",
        ..of_labs("book/src/how-to-use.md", Marks::Html, path)
    },
    Block {
        name: "two days",
        ..of_labs("book/src/teach/timetables.md", Marks::Html, timetable)
    },
    of_labs("Cargo.toml", Marks::Hash, |given| {
        lines(given, |lab| format!("{0} = {{ path = \"labs/{0}\" }}", lab.name))
    }),
    of_labs("labs/all/Cargo.toml", Marks::Hash, |given| {
        lines(given, |lab| format!("{}.workspace = true", lab.name))
    }),
    of_labs("labs/all/lib.rs", Marks::Slashes(4), |given| {
        lines(given, |lab| format!("    {},", lab.name))
    }),
    of_labs("tests/all/main.rs", Marks::Slashes(0), modules),
];

impl Block {
    /// The lines that mark it.
    fn marks(&self) -> [String; 2] {
        let name = self.name;
        let [begins, ends] =
            [format!("{name}: written by workbook dev update"), format!("end of {name}")];
        match self.marks {
            Marks::Html => [format!("<!-- {begins} -->\n"), format!("<!-- {ends} -->")],
            Marks::Hash => [format!("# {begins}\n"), format!("# {ends}")],
            Marks::Slashes(spaces) => {
                let indent = " ".repeat(spaces);
                [format!("{indent}// {begins}\n"), format!("{indent}// {ends}")]
            }
        }
    }

    /// The block as it is in the file's text, with the end of its last line.
    ///
    /// # Errors
    /// If what marks it is not there.
    pub fn is<'a>(&self, file: &'a str) -> Result<&'a str, BadInput> {
        let lost = |mark: &str| {
            let what = format!("{} has lost {:?}, which marks its {}", self.file, mark, self.name);
            BadInput::new(what, "restore it with git")
        };
        let [begins, ends] = self.marks();
        let (_, rest) = file.split_once(&begins).ok_or_else(|| lost(begins.trim()))?;
        Ok(rest.split_once(&ends).ok_or_else(|| lost(ends.trim()))?.0)
    }

    /// The block as it should be.
    ///
    /// # Errors
    /// If what it is made of cannot be read.
    pub fn should(&self, root: &Path, course: &Course, is: &str) -> Result<String, BadInput> {
        let is = is.trim_end_matches('\n');
        Ok((self.text)(&Given { course, root, is })? + "\n")
    }

    /// The file's text with the block as it should be.
    pub(super) fn put(&self, root: &Path, course: &Course, file: &str) -> Result<String, BadInput> {
        let is = self.is(file)?;
        let begins = is.as_ptr() as usize - file.as_ptr() as usize;
        let (before, after) = (&file[..begins], &file[begins + is.len()..]);
        Ok(format!("{before}{}{after}", self.should(root, course, is)?))
    }
}

fn lines(given: &Given, line: impl Fn(&Lab) -> String) -> Result<String, BadInput> {
    Ok(given.course.labs.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// All labs with their questions, and how long they run.
fn all_questions(given: &Given) -> Result<String, BadInput> {
    lines(given, |lab| {
        let Lab { name, question, takes, .. } = lab;
        format!("- [{name}]({name}.md): {question} ({takes})")
    })
}

/// The questions of those labs that a visitor sees first.
fn questions(given: &Given) -> Result<String, BadInput> {
    let first = given.course.labs.iter().filter(|lab| lab.first);
    let line = |lab: &Lab| format!("- [{0}](book/src/{0}.md): {1}", lab.name, lab.question);
    Ok(first.map(line).collect::<Vec<_>>().join("\n"))
}

/// A file, or what lies between two anchors of it without its doc comments, as a listing.
fn code(
    given: &Given,
    language: &str,
    file: &str,
    anchor: Option<&str>,
) -> Result<String, BadInput> {
    let text = read(given.root, file)?;
    let mut inside = anchor.is_none();
    let mut shown = Vec::new();
    for line in text.lines() {
        if let Some((_, of)) = line.split_once("ANCHOR") {
            let name = of.rsplit(": ").next();
            if name == anchor {
                inside = !of.starts_with("_END");
            }
        } else if inside && !line.trim_start().starts_with("///") {
            shown.push(line);
        }
    }
    let indents = shown.iter().filter(|line| !line.is_empty());
    let least = indents.map(|line| line.len() - line.trim_start().len()).min();
    let least = least.unwrap_or_default();
    let listing: Vec<&str> = shown.iter().map(|line| line.get(least..).unwrap_or("")).collect();
    Ok(format!("```{language}\n{}\n```", listing.join("\n").trim_matches('\n')))
}

/// The scripts of `findings/`, each with the program that its head names first.
fn findings(given: &Given) -> Result<String, BadInput> {
    let mut rows = Vec::new();
    for file in in_checkout(given.root, "findings")? {
        if let Some(name) = file.strip_prefix("findings/").filter(|name| name.ends_with(".sh")) {
            let text = read(given.root, &file)?;
            let head = text.lines().nth(1).unwrap_or_default().trim_start_matches(['#', ' ']);
            let about = head.split(": ").next().unwrap_or_default();
            let words = name.trim_end_matches(".sh").replace('-', " ");
            rows.push(format!("- [{words}]({name}): {}", about.trim_end_matches('.')));
        }
    }
    rows.sort();
    Ok(rows.join("\n"))
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
    // No link in a heading: the contents beside a page would show it without its words.
    let section = |heading: String, page: &str, exercises: &[Exercise]| {
        let mut text = format!(
            "## {heading}\n\nIts page: [{page}]({page}.md)\n\n| exercise | title | minutes |\n|---|---|---:|"
        );
        for Exercise { name, title, minutes, .. } in exercises {
            text += &format!("\n| `{name}` | {title} | {minutes} |");
        }
        text
    };
    let of_lab =
        |lab: &Lab| section(format!("{} · {}", lab.name, lab.title), &lab.name, &lab.exercises);
    let mut sections: Vec<String> = given.course.labs.iter().map(of_lab).collect();
    let ladder = &given.course.ladder;
    sections.push(section(ladder.title.clone(), "ladder", &ladder.exercises));
    Ok(format!("\n{}\n", sections.join("\n\n")))
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
    let sheets: Vec<String> = given.course.labs.iter().map(sheet).collect();
    Ok(format!("\n{}\n", sheets.join("\n\n")))
}

/// The rows of the path of two days. `paths.rs` counts a row's minutes.
fn path(given: &Given) -> Result<String, BadInput> {
    Ok(with_labs(given, is_on_path, |lab, day, is| {
        let minutes = first_cell(is).unwrap_or("0");
        format!("| {minutes} | [{0}]({0}.md){1} | {2} |", lab.name, with(day), day.ends)
    }))
}

fn is_on_path(row: &str, lab: &Lab) -> bool {
    row.contains(&format!("({}.md)", lab.name))
}

/// The same rows of the timetable: their minutes are the path's, and `paths.rs` sets the
/// clock.
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
        // What those do who only have a browser is written by hand.
        let rest = is.splitn(5, " | ").nth(4).unwrap_or("|");
        format!("| {clock} | {minutes} | all | {}{}: {} | {rest}", lab.name, with(day), day.room)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lies_between_its_marks_and_needs_them() {
        let block = of("f", "x", |given| Ok(format!("{} new", given.is)));
        let file =
            "a\n<!-- x: written by workbook dev update -->\nold\nrows\n<!-- end of x -->\nb\n";
        assert_eq!(block.is(file).unwrap(), "old\nrows\n");
        let course = Course::parse("lab = []").unwrap();
        let put = block.put(Path::new("."), &course, file).unwrap();
        assert_eq!(put, file.replace("rows\n", "rows new\n"));
        let lost = block.is("a\nold\nrows\n<!-- end of x -->\n").unwrap_err();
        assert!(lost.what.starts_with("f has lost \"<!-- x: written by"), "{}", lost.what);
        // An empty block gets its first line.
        let empty = "<!-- x: written by workbook dev update -->\n<!-- end of x -->\n";
        let put = block.put(Path::new("."), &course, empty).unwrap();
        assert_eq!(put, empty.replace("<!-- end", " new\n<!-- end"));
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
        let is = "| 9:00 | 50 | all | lab11: old | `x` |\n| 9:50 | 5 | you | a page | |";
        let is = timetable(&Given { course: &course, root, is }).unwrap();
        let rows: Vec<&str> = is.lines().collect();
        assert!(rows[0].ends_with(" | all | lab11, with `lab11-a`: run | `x` |"), "{is}");
        assert!(
            rows[1].starts_with("| 9:00 | ") && rows[1].ends_with(" | lab12: run | |"),
            "{is}"
        );
        assert!(!rows[1].contains("| 0 |") && rows.len() == 3, "{is}");
        assert_eq!(timetable(&Given { course: &course, root, is: &is }).unwrap(), is);
    }
}
