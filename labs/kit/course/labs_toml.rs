//! The labs and their exercises, in order, as `labs/labs.toml` lists them.

use crate::commands::commands;
use serde::Deserialize;
use shardlab::error::BadInput;
use std::collections::BTreeMap;

/// The whole workbook.
#[derive(Clone, Debug, Deserialize)]
pub struct Course {
    /// In order.
    #[serde(rename = "lab")]
    pub labs: Vec<Lab>,
    #[serde(default)]
    pub ladder: Ladder,
    /// Of the book's pages that are no lab's, by their names without `.md`: see [`Lab::minutes`].
    #[serde(default)]
    minutes: BTreeMap<String, [usize; 2]>,
}

/// One model, trained in better and better ways: exercises that continue each other.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Ladder {
    pub title: String,
    /// One line.
    pub question: String,
    /// The rungs, from the first to the last.
    #[serde(default, rename = "exercise")]
    pub exercises: Vec<Exercise>,
}

/// One lab.
#[derive(Clone, Debug, Deserialize)]
pub struct Lab {
    pub number: usize,
    /// For instance `lab03`. It is also the program's name.
    pub name: String,
    /// The program's source, from the package's root.
    pub file: String,
    pub title: String,
    /// One line.
    pub question: String,
    /// One sentence, at the end of the lab's screen.
    pub takeaway: String,
    /// One phrase about this lab, at the end of the previous lab's screen.
    #[serde(default)]
    pub announced: String,
    /// How long the lab runs, once it is built: `5 seconds`.
    pub takes: String,
    /// How long its page takes to read and try: in short form, and in full.
    pub minutes: [usize; 2],
    /// The default number of ranks.
    pub ranks: usize,
    /// The labs whose ideas it builds on.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The parts of a strategy's text that are its subject: `tp`, `sp`.
    #[serde(default)]
    pub axes: Vec<String>,
    /// The parts of a strategy that it runs besides; `all` is what any lab teaches.
    #[serde(default)]
    pub runs: Vec<String>,
    /// Flags with which it runs for about a second, and has as many lines on the screen as without.
    #[serde(default)]
    pub short: String,
    /// The book's pages that follow its own, without `.md`.
    #[serde(default)]
    pub beside: Vec<String>,
    /// The figure on its sheet and its slides, and two outputs on its slides, the second of what
    /// goes wrong: files of `book/outputs`, without their ends.
    pub picture: String,
    pub output: String,
    pub breaks: String,
    /// The flags of the runs on its sheet, after the prediction.
    pub sheet: Vec<String>,
    pub mpi: UnderMpi,
    /// Whether README asks its question.
    #[serde(default)]
    pub first: bool,
    /// Its rows on the path of two days, and in their timetable.
    pub two_days: Option<TwoDays>,
    /// In order.
    #[serde(default, rename = "exercise")]
    pub exercises: Vec<Exercise>,
}

/// How a lab is tried on three MPI processes.
#[derive(Clone, Debug, Deserialize)]
pub struct UnderMpi {
    pub flags: String,
    /// A part of what it says, once.
    pub says: String,
    /// A mistake that its checks must notice there too, of `--break`.
    pub breaks: Option<String>,
}

/// A lab's rows on the second of two days.
#[derive(Clone, Debug, Deserialize)]
pub struct TwoDays {
    /// The exercise that belongs to them.
    pub with: Option<String>,
    /// What one ends with, on the path.
    pub ends: String,
    /// What all do, in the room.
    pub room: String,
}

/// A task: something to write or to repair.
#[derive(Clone, Debug, Deserialize)]
pub struct Exercise {
    /// For instance `lab03-batches`.
    pub name: String,
    pub title: String,
    /// The task in one line.
    pub task: String,
    pub minutes: usize,
    /// What each field of its form on a page asks for. Without one it is solved as code alone.
    #[serde(default)]
    pub form: Vec<String>,
    /// Whether the exercise is code that runs and is wrong, not a blank to fill.
    #[serde(default)]
    pub broken: bool,
    /// Whether the main path leaves it out.
    #[serde(default)]
    pub optional: bool,
    /// Shown once the exercise is solved: the real incident, and what PyTorch, DeepSpeed or
    /// Megatron do.
    pub debrief: String,
    /// From a first push to the idea itself, never the code.
    pub hints: Vec<String>,
}

impl Lab {
    /// The exercises of the main path.
    pub fn to_write(&self) -> impl Iterator<Item = &Exercise> {
        self.exercises.iter().filter(|exercise| !exercise.optional)
    }
}

impl Exercise {
    /// The folder in `labs/` that it belongs to: `lab03`, or `ladder`.
    pub fn lab(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }

    /// The name of the exercise's files, without folder: `lab03_batches.rs`.
    pub fn file(&self) -> String {
        format!("{}.rs", self.name.replace('-', "_"))
    }
}

impl Course {
    /// Reads `labs/labs.toml`, as it was when this program was compiled. Its commands are those
    /// that work here.
    pub fn read() -> Result<Course, BadInput> {
        let mut course = Course::parse(include_str!("../../labs.toml"))?;
        let of_labs = course.labs.iter_mut().flat_map(|lab| &mut lab.exercises);
        for exercise in of_labs.chain(&mut course.ladder.exercises) {
            exercise.debrief = commands(&exercise.debrief);
            for hint in &mut exercise.hints {
                *hint = commands(hint);
            }
        }
        Ok(course)
    }

    /// Reads the text of a `labs/labs.toml`, and leaves its commands as they are.
    pub fn parse(text: &str) -> Result<Course, BadInput> {
        toml::from_str(text).map_err(|error| {
            BadInput::new(
                format!("labs/labs.toml is damaged: {error}"),
                "mend it, or restore it with git, and build again",
            )
        })
    }

    /// All exercises, in order.
    pub fn exercises(&self) -> impl Iterator<Item = &Exercise> {
        let of_labs = self.labs.iter().flat_map(|lab| &lab.exercises);
        of_labs.chain(&self.ladder.exercises)
    }

    /// Minutes of one of the book's pages: in short form, and in full.
    pub fn minutes(&self, page: &str) -> Option<[usize; 2]> {
        let lab = self.labs.iter().find(|lab| lab.name == page);
        lab.map(|lab| lab.minutes).or_else(|| self.minutes.get(page).copied())
    }

    /// Whether a lab runs this part of a strategy's text, such as `tp`.
    pub fn runs(&self, lab: &Lab, part: &str) -> bool {
        let has = |parts: &[String]| parts.iter().any(|one| one == part);
        let taught = || self.labs.iter().any(|lab| has(&lab.axes));
        has(&lab.axes) || has(&lab.runs) || (lab.runs == ["all"] && taught())
    }

    /// The exercise with the name `given`, or the only one whose name begins with `given`. The name
    /// of its file works, too.
    pub fn find(&self, given: &str) -> Result<&Exercise, BadInput> {
        let file = given.rsplit(['/', '\\']).next().unwrap_or(given);
        let wanted = file.strip_suffix(".rs").unwrap_or(file).replace('_', "-");
        if let Some(exercise) = self.exercises().find(|exercise| exercise.name == wanted) {
            return Ok(exercise);
        }
        let fitting: Vec<&Exercise> =
            self.exercises().filter(|e| e.name.starts_with(&wanted)).collect();
        let list =
            |of: &[&Exercise]| of.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(", ");
        match fitting[..] {
            [exercise] => Ok(exercise),
            [] => {
                let all: Vec<&Exercise> = self.exercises().collect();
                let help =
                    format!("the exercises are {}; the beginning of a name is enough", list(&all));
                Err(BadInput::new(format!("no exercise is named {given:?}"), help))
            }
            _ => {
                let help = format!("say which: {}", list(&fitting));
                Err(BadInput::new(
                    format!("{} exercises begin with {given:?}", fitting.len()),
                    help,
                ))
            }
        }
    }
}

/// A phrase as the beginning of a sentence, such as a lab's takeaway.
pub fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    first.chain(rest).collect()
}

/// A mistake that an exercise's check recognises, from `checks/NAME.mistakes.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Mistake {
    /// The claim that does not hold then.
    #[serde(default)]
    pub claim: String,
    /// A part of what the check says about it, or the whole of it if `shows` is there. Empty if
    /// only the outcome is told.
    #[serde(default)]
    pub says: String,
    /// The numbers that the check has seen at that claim, by which it recognises the mistake.
    #[serde(default)]
    pub shows: Vec<f64>,
}

impl Mistake {
    /// How far numbers that show the same mistake may differ, as a part of their size: ten times
    /// what rounding does on another processor, or where code adds in another order.
    pub const WITHIN: f64 = 1e-5;

    /// Whether code that shows these numbers at this claim has made this mistake.
    pub fn is_shown(&self, claim: &str, shows: &[f64], within: f64) -> bool {
        let alike = |(a, b): (&f64, &f64)| (a - b).abs() <= within * a.abs().max(b.abs());
        !shows.is_empty()
            && self.claim == claim
            && self.shows.len() == shows.len()
            && self.shows.iter().zip(shows).all(alike)
    }

    /// All mistakes in the text of such a file, in order.
    pub fn all(text: &str) -> anyhow::Result<Vec<Mistake>> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            mistake: Vec<Mistake>,
        }
        Ok(toml::from_str::<File>(text)?.mistake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exercise_is_found_by_name_prefix_and_file() {
        let exercise = |name: &str| {
            format!(
                "[[lab.exercise]]\nname='{name}'\ntitle='t'\ntask='t'\nminutes=1\nhints=['a']\ndebrief='d'\n"
            )
        };
        let lab = "[[lab]]\nnumber=3\nname='lab03'\nfile='f'\ntitle='t'\nquestion='q'\ntakeaway='a'\ntakes='t'\nminutes=[1,2]\nranks=2\nneeds=[]\npicture='p'\noutput='o'\nbreaks='b'\nsheet=['']\nmpi={flags='',says='s'}\n";
        let text = [
            lab.into(),
            exercise("lab03-batches"),
            exercise("lab03-b"),
            exercise("lab03-schedule"),
        ]
        .concat();
        let course: Course = toml::from_str(&text).unwrap();
        let found = |given: &str| course.find(given).map(|e| e.name.clone());
        assert_eq!(found("lab03-s").unwrap(), "lab03-schedule");
        assert_eq!(found("lab03-b").unwrap(), "lab03-b", "a whole name is no prefix");
        assert_eq!(found("my/lab03_batches.rs").unwrap(), "lab03-batches");
        let two = found("lab03-").unwrap_err();
        assert_eq!(two.what, "3 exercises begin with \"lab03-\"");
        assert_eq!(two.help, "say which: lab03-batches, lab03-b, lab03-schedule");
        assert_eq!(found("lab04").unwrap_err().what, "no exercise is named \"lab04\"");
    }
}
