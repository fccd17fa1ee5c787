//! Mistakes that checks must tell apart: `labs/labNN/checks/NAME.mistakes.toml`, beside each check.
//!
//! Every `cargo test` tries whether all edits fit their solutions. What the checks say of them is
//! tested by `cargo test --test all -- --ignored workbook::every`, which takes minutes;
//! SHARDLAB_EXERCISES="lab03-batches lab05" chooses the exercises whose names begin so.
//!
//! Some checks look mistakes up by the numbers that they show, which are in lines `shows = …`.
//! Where they show others now, SHARDLAB_MISTAKES_WRITE=1 writes those, and that run still fails.

use super::{check, course, is_chosen, of_lab, text};
use kit::{Exercise, Mistake};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use workbook::{Attempt, Outcome};

/// One exercise's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edits {
    mistake: Vec<Edit>,
    /// Other right solutions.
    #[serde(default)]
    right: Vec<Edit>,
}

/// What a reader might have written instead of the solution.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Edit {
    /// Whether the exercise's blank is edited, and not its solution.
    blank: bool,
    /// This code, which occurs once, becomes `to`. White space and trailing commas do not matter.
    from: String,
    to: String,
    /// Several such changes, one after the other.
    edits: Vec<[String; 2]>,
    outcome: Outcome,
    /// The claim that does not hold then.
    claim: String,
    /// A part of what the check says about it.
    says: String,
    /// A row of the evidence that disagrees.
    row: String,
    /// The actual values in all rows of the evidence.
    got: Vec<String>,
    /// The numbers by which the check looks this mistake up.
    shows: Option<Vec<f64>>,
    /// Parts of what the exercise has printed.
    printed: Vec<String>,
    /// The figure of a right solution, and its target.
    figure: Option<[u64; 2]>,
}

impl Default for Edit {
    fn default() -> Edit {
        Edit {
            blank: false,
            from: String::new(),
            to: String::new(),
            edits: Vec::new(),
            outcome: Outcome::Wrong,
            claim: String::new(),
            says: String::new(),
            row: String::new(),
            got: Vec::new(),
            shows: None,
            printed: Vec::new(),
            figure: None,
        }
    }
}

/// An edit, and where it stands: `lab03_batches.mistakes.toml, mistake 2`.
struct Case {
    exercise: Exercise,
    at: String,
    /// Its place among the mistakes of its file, or among its right solutions.
    number: usize,
    edit: Edit,
}

/// Where the mistakes of an exercise are.
fn list(exercise: &Exercise) -> PathBuf {
    of_lab("checks", &exercise.file().replace(".rs", ".mistakes.toml"))
}

/// All edits of an exercise, mistakes first.
fn cases(exercise: &Exercise) -> Vec<Case> {
    let path = list(exercise);
    let file = path.file_name().unwrap().display();
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let Edits { mistake, right } =
        toml::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut cases = Vec::new();
    for (i, edit) in mistake.into_iter().enumerate() {
        cases.push((format!("{file}, mistake {}", i + 1), i, edit));
    }
    for (i, mut edit) in right.into_iter().enumerate() {
        edit.outcome = Outcome::Solved;
        cases.push((format!("{file}, right {}", i + 1), i, edit));
    }
    let case = |(at, number, edit)| Case { exercise: exercise.clone(), at, number, edit };
    cases.into_iter().map(case).collect()
}

impl Case {
    /// The edited code, or what is wrong with the edit.
    fn code(&self) -> Result<String, String> {
        let folder = if self.edit.blank { "exercises" } else { "solutions" };
        let mut edits = self.edit.edits.clone();
        if !self.edit.from.is_empty() {
            edits.push([self.edit.from.clone(), self.edit.to.clone()]);
        }
        if edits.is_empty() && !self.edit.blank {
            return Err(format!("{}: no edit", self.at));
        }
        let mut code = text(folder, &self.exercise.name);
        for [from, to] in edits {
            code = edited(&code, &from, &to).map_err(|why| {
                format!("{}: in {folder}/{}, {why}", self.at, self.exercise.file())
            })?;
        }
        Ok(code)
    }

    /// What is wrong with an attempt at this code.
    fn complaint(&self, attempt: &Attempt) -> Option<String> {
        let edit = &self.edit;
        let wrong = attempt.findings.iter().find(|finding| finding.holds == Some(false));
        let rows = wrong.map_or(&[][..], |finding| &finding.rows);
        let as_expected = attempt.outcome == edit.outcome
            && attempt.stuck_at() == edit.claim
            && attempt.means.contains(&edit.says);
        // A check that says what is wrong also shows where.
        let shown = edit.outcome != Outcome::Wrong || rows.iter().any(|row| !row.agrees);
        let row = edit.row.is_empty() || rows.iter().any(|row| !row.agrees && row.at == edit.row);
        let got = edit.got.is_empty() || rows.iter().map(|row| &row.got).eq(&edit.got);
        let shows = edit.shows.as_ref().is_none_or(|shows| {
            let mistake = Mistake {
                claim: edit.claim.clone(),
                says: String::new(),
                shows: shows.clone(),
            };
            wrong.is_some_and(|found| mistake.is_shown(&found.claim, &found.shows, Mistake::WITHIN))
        });
        let printed = edit.printed.iter().all(|part| attempt.printed.contains(part));
        let figures = attempt.figures.iter().map(|figure| [figure.got, figure.target]);
        let figure = edit.figure.is_none() || figures.eq(edit.figure);
        if as_expected && shown && row && got && shows && printed && figure {
            return None;
        }
        Some(format!("{}: {attempt:#?}", self.at))
    }
}

impl Case {
    /// Writes what the check has seen of this mistake beside it.
    fn record(&self, attempt: &Attempt) {
        let path = list(&self.exercise);
        let text = std::fs::read_to_string(&path).unwrap();
        let at = attempt.findings.iter().find(|finding| finding.claim == self.edit.claim);
        let shows = at.map_or(&[][..], |finding| &finding.shows);
        std::fs::write(&path, recorded(&text, self.number, shows)).unwrap();
    }
}

/// `code`, in which `from` occurs once and becomes `to`. White space does not matter, and neither
/// do trailing commas.
pub fn edited(code: &str, from: &str, to: &str) -> Result<String, String> {
    let wanted: Vec<char> = bare(from).into_iter().map(|(_, c)| c).collect();
    if wanted.is_empty() {
        return Err("an edit without `from`".into());
    }
    let places = bare(code);
    let found: Vec<_> = places
        .windows(wanted.len())
        .filter(|window| window.iter().map(|(_, c)| c).eq(&wanted))
        .collect();
    let [window] = found[..] else {
        return Err(format!("this occurs {} times: {from}", found.len()));
    };
    let (first, _) = window[0];
    let (last, end) = window[window.len() - 1];
    Ok(format!("{}{}{}", &code[..first], to.trim(), &code[last + end.len_utf8()..]))
}

/// The characters of some code and their places, without white space and trailing commas.
fn bare(code: &str) -> Vec<(usize, char)> {
    let mut bare: Vec<(usize, char)> = Vec::new();
    for (place, c) in code.char_indices() {
        if matches!(c, ')' | ']' | '}') && bare.last().is_some_and(|(_, before)| *before == ',') {
            bare.pop();
        }
        if !c.is_whitespace() {
            bare.push((place, c));
        }
    }
    bare
}

#[test]
fn edits_do_not_depend_on_formatting() {
    let code = "let a = f(\n    x,\n    y,\n);\nlet b = y;\n";
    assert_eq!(edited(code, "f(x, y)", " g() ").unwrap(), "let a = g();\nlet b = y;\n");
    assert_eq!(
        edited(code, "\n  let b  =", "let c =").unwrap(),
        "let a = f(\n    x,\n    y,\n);\nlet c = y;\n"
    );
    for (from, times) in [("y", 2), ("z", 0)] {
        let why = edited(code, from, "").unwrap_err();
        assert_eq!(why, format!("this occurs {times} times: {from}"));
    }
}

#[test]
fn every_edit_finds_its_place() {
    let complaints: Vec<String> = course()
        .exercises()
        .flat_map(cases)
        .filter_map(|case| case.code().err())
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// A list of mistakes in which this one shows these numbers, to seven digits.
fn recorded(list: &str, number: usize, shows: &[f64]) -> String {
    let shown: Vec<String> = shows.iter().map(|x| kit::show::general(*x, 7)).collect();
    let mut mistakes = 0;
    let mut lines = Vec::new();
    for line in list.lines() {
        mistakes += usize::from(line == "[[mistake]]");
        let is_it = mistakes == number + 1 && line.starts_with("shows = ");
        lines.push(if is_it {
            format!("shows = [{}]", shown.join(", "))
        } else {
            line.into()
        });
    }
    lines.join("\n") + "\n"
}

#[test]
fn what_a_mistake_shows_is_written_into_its_entry() {
    let list = "# A\n[[mistake]]\nshows = [1]\n\n[[mistake]]\nsays = \"b\"\nshows = []\n";
    let expected = list.replace("[]", "[0.3333333, 4]");
    assert_eq!(recorded(list, 1, &[1.0 / 3.0, 4.0]), expected);
}

#[test]
fn mistakes_that_are_looked_up_show_different_numbers() {
    for exercise in course().exercises() {
        let all = Mistake::all(&std::fs::read_to_string(list(exercise)).unwrap()).unwrap();
        for (i, one) in all.iter().enumerate() {
            for other in &all[..i] {
                assert!(
                    one.says == other.says
                        || !one.is_shown(&other.claim, &other.shows, 10.0 * Mistake::WITHIN),
                    "{}: one sentence must be for both: {one:?} {other:?}",
                    exercise.name
                );
            }
        }
    }
}

#[test]
#[ignore = "compiles some four hundred programs: the gate runs it; run it when you change a check"]
fn every_mistake_is_told() {
    let writes = std::env::var_os("SHARDLAB_MISTAKES_WRITE").is_some();
    let course = course();
    let cases = course.exercises().filter(|exercise| is_chosen(exercise)).flat_map(cases);
    let cases = Mutex::new(cases);
    let complaints = Mutex::new(Vec::new());
    let writing = Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..shardlab::launch::cores() {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().unwrap().next() else {
                        return;
                    };
                    let complaint = match case.code() {
                        Ok(code) => {
                            let attempt = check(&case.exercise.name, &code);
                            let complaint = case.complaint(&attempt);
                            if complaint.is_some() && writes && case.edit.shows.is_some() {
                                let _one = writing.lock().unwrap();
                                case.record(&attempt);
                            }
                            complaint
                        }
                        Err(why) => Some(why),
                    };
                    complaints.lock().unwrap().extend(complaint);
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
