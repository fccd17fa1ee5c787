//! Says what is still missing of a lab, in the order in which one works: files that are not there,
//! what the skeleton has left to write (`TODO`), a notebook that has not run, and blocks that are
//! not up to date. What only a run can show is for the command that each step names.

use super::new::skeleton;
use super::update::stale;
use super::{course, in_checkout, read};
use kit::Lab;
use kit::show::{Screen, counted};
use shardlab::error::BadInput;
use std::path::Path;

/// What the skeleton has where something is to be written.
const TO_WRITE: &str = "TODO";

/// So many things of a step are shown.
const MOST_SHOWN: usize = 12;

/// A step of the work: its name; how its files' names begin, where a file belongs to the step that
/// says most of its name and `labNN` stands for the lab's; and the command that shows whether it is
/// done.
type Step = (&'static str, &'static [&'static str], &'static str);

/// In the order in which one works.
const STEPS: [Step; 6] = [
    ("entry", &[ENTRIES], "cargo run --bin workbook -- dev update"),
    ("lesson", &["labs/labNN/lesson.rs"], "cargo run --bin labNN"),
    (
        "program",
        &["labs/labNN/", "tests/"],
        "cargo test --package rules; cargo test --test all -- labNN:: refusals::",
    ),
    (
        "exercise",
        &["labs/labNN/exercises/", "labs/labNN/solutions/", "labs/labNN/checks/"],
        "SHARDLAB_EXERCISES=labNN cargo test --test all -- --ignored workbook::",
    ),
    (
        "page",
        &["book/", "labs/labNN/instructors.md"],
        "cargo test --test all -- book::",
    ),
    ("notebook", &["notebooks/"], "notebooks/run.py --write labNN"),
];

const ENTRIES: &str = "labs/labs.toml";

/// Something that is missing.
struct Finding {
    file: String,
    says: String,
}

/// Prints what is missing, and returns whether nothing is.
pub(super) fn check(screen: &Screen, root: &Path, name: &str) -> Result<bool, BadInput> {
    let course = course(root)?;
    let Some(lab) = course.labs.iter().find(|lab| lab.name == name) else {
        let what = format!("labs/labs.toml has no {name}");
        let help = format!("begin it:  cargo run --bin workbook -- dev new {name} \"Title\"");
        return Err(BadInput::new(what, help));
    };
    let missing = missing(root, lab)?;
    let mut next = None;
    for (place, (step, _, shows)) in STEPS.into_iter().enumerate() {
        let of_step = missing.iter().filter(|finding| step_of(&finding.file, name) == place);
        let says: Vec<&str> = of_step.map(|finding| finding.says.as_str()).collect();
        report(screen, step, &says, next.is_none());
        if !says.is_empty() {
            next.get_or_insert_with(|| shows.replace("labNN", name));
        }
    }
    let stale = stale(root, &course)?.into_keys();
    let stale: Vec<_> = stale.map(|file| format!("{file} is not up to date")).collect();
    report(screen, "blocks", &stale, next.is_none());
    if !stale.is_empty() {
        next.get_or_insert("cargo run --bin workbook -- dev update".into());
    }
    screen.say(match &next {
        Some(next) => format!("\n  Write what is missing. Then:  {next}"),
        None => "\n  Nothing is missing that can be seen without a run. Then:  .ci/run".into(),
    });
    Ok(next.is_none())
}

/// The step to which a file belongs.
fn step_of(file: &str, name: &str) -> usize {
    let fits = |(_, files, _): Step| {
        let beginnings = files.iter().map(|begins| begins.replace("labNN", name));
        let fitting = beginnings.filter(|begins| file.starts_with(begins));
        fitting.map(|begins| begins.len()).max()
    };
    (0..STEPS.len()).max_by_key(|&place| fits(STEPS[place])).unwrap_or_default()
}

/// A step's line, and below it what is missing, if it is the step to work at.
fn report(screen: &Screen, step: &str, missing: &[impl AsRef<str>], in_full: bool) {
    let says = match missing.len() {
        0 => "nothing is missing".to_string(),
        many => counted(many, "thing is missing", "things are missing"),
    };
    screen.say(screen.mark(&screen.verdict(missing.is_empty()), step, &says));
    if !in_full {
        return;
    }
    for says in missing.iter().take(MOST_SHOWN) {
        screen.say(screen.mark("", "", says.as_ref()));
    }
    if missing.len() > MOST_SHOWN {
        let more = format!("and {} more", missing.len() - MOST_SHOWN);
        screen.say(screen.mark("", "", &more));
    }
}

/// What is missing in the lab's files, and what is left to write in them.
fn missing(root: &Path, lab: &Lab) -> Result<Vec<Finding>, BadInput> {
    let mut files = files_of(root, lab)?;
    files.extend(in_checkout(root, &format!("labs/{}", lab.name))?);
    files.sort();
    files.dedup();
    let mut found = Vec::new();
    for file in files {
        if !root.join(&file).is_file() {
            found.push(Finding { says: format!("{file} is not there"), file });
            continue;
        }
        let text = read(root, &file)?;
        for (number, line) in (1..).zip(text.lines()) {
            let is_its = file != ENTRIES || is_of(lab, &text, number);
            if let Some((_, what)) = line.split_once(TO_WRITE).filter(|_| is_its) {
                let what = what.trim_matches([':', ',', ' ', '"']);
                let says = format!("{file}:{number} {what}");
                found.push(Finding { file: file.clone(), says });
            }
        }
        if file.ends_with(".ipynb") && !text.contains("\"hash\"") {
            found.push(Finding { says: format!("{file} was not run"), file });
        }
    }
    Ok(found)
}

/// The files that the lab must have: the skeleton's, and those that its entry names.
fn files_of(root: &Path, lab: &Lab) -> Result<Vec<String>, BadInput> {
    let Lab { name, title, picture, output, breaks, exercises, .. } = lab;
    let mut files: Vec<String> =
        skeleton(root, name, title)?.into_iter().map(|(file, _)| file).collect();
    // Of these, the skeleton has examples.
    files.retain(|file| !file.contains("_first.") && !file.starts_with("book/outputs/"));
    files.push(format!("book/outputs/{picture}.svg"));
    files.extend([output, breaks].map(|text| format!("book/outputs/{text}.txt")));
    for exercise in exercises {
        let file = exercise.file();
        files.extend(
            ["exercises", "solutions", "checks"]
                .map(|folder| format!("labs/{name}/{folder}/{file}")),
        );
        files.push(format!("labs/{name}/checks/{}", file.replace(".rs", ".mistakes.toml")));
    }
    Ok(files)
}

/// Whether a line of `labs/labs.toml` belongs to the lab's entry.
fn is_of(lab: &Lab, entries: &str, number: usize) -> bool {
    let name = format!("name = \"{}\"", lab.name);
    let before = entries.lines().take(number);
    let named = before.filter(|line| line.starts_with("name = \"lab") && !line.contains('-'));
    named.last() == Some(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::Course;

    #[test]
    fn a_file_belongs_to_the_step_that_says_most_of_its_name() {
        let name = |file| STEPS[step_of(file, "lab13")].0;
        for (file, step) in [
            ("labs/labs.toml", "entry"),
            ("labs/lab13/lesson.rs", "lesson"),
            ("labs/lab13/run.rs", "program"),
            ("tests/all/lab13.rs", "program"),
            ("labs/lab13/checks/lab13_a.mistakes.toml", "exercise"),
            ("labs/lab13/instructors.md", "page"),
            ("book/outputs/lab13-a.txt", "page"),
            ("notebooks/lab13.ipynb", "notebook"),
        ] {
            assert_eq!(name(file), step, "{file}");
        }
    }

    #[test]
    fn a_line_belongs_to_the_lab_above_it() {
        let course = Course::read().unwrap();
        let [lab00, lab01] = &course.labs[..2] else {
            panic!("two labs")
        };
        let entries = "[[lab]]\nname = \"lab00\"\n[[lab.exercise]]\nname = \"lab00-a\"\ntask\n\
                       [[lab]]\nname = \"lab01\"\ntask\n";
        let of = |lab| (1..=8).filter(|&line| is_of(lab, entries, line)).collect::<Vec<_>>();
        assert_eq!(of(lab00), [2, 3, 4, 5, 6]);
        assert_eq!(of(lab01), [7, 8]);
    }
}
