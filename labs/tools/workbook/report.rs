//! Many readers in one table, for the instructor of forty people.
//!
//! Each reader puts a document into one folder: `workbook submit /shared/today`.

use super::document::{Document, Entry, harmless};
use super::progress::Record;
use kit::Course;
use kit::reader::now;
use kit::show::{Screen, counted, table};
use serde::Serialize;
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::path::Path;

/// Each reader's newest document, and the files that could not be read.
#[derive(Debug, Serialize)]
pub struct Readers {
    pub(super) documents: BTreeMap<String, Document>,
    pub(super) refused: Vec<String>,
    /// The files that name exercises or labs that the course does not have, with how many. An
    /// older checkout has such, or someone has made them up: they are not counted.
    pub(super) unknown: Vec<String>,
    /// The course's exercises, in its order.
    #[serde(skip)]
    exercises: Vec<String>,
}

impl Readers {
    /// Reads every `.json` file of a folder. Of each only what `course` has counts.
    pub fn read(course: &Course, folder: &Path) -> Result<Readers, BadInput> {
        let refuse = |why: String| {
            let help = "each participant puts a file there:  workbook submit DIR";
            BadInput::new(format!("no reports in {}{why}", folder.display()), help)
        };
        let files = std::fs::read_dir(folder).map_err(|error| refuse(format!(": {error}")))?;
        let mut files: Vec<_> = files.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        files.sort();
        let mut read = Vec::new();
        let mut refused = Vec::new();
        let mut unknown = Vec::new();
        let exercises: Vec<String> = course.exercises().map(|one| one.name.clone()).collect();
        let places: BTreeMap<&str, usize> =
            exercises.iter().enumerate().map(|(at, name)| (&**name, at)).collect();
        for path in files {
            let name = path.file_stem().unwrap_or_default().display().to_string();
            match Document::read(&path) {
                Ok(mut document) => {
                    let all = document.exercises.len() + document.predictions.len();
                    document.exercises.retain(|entry| places.contains_key(&*entry.name));
                    document.exercises.sort_by_key(|entry| places[&*entry.name]);
                    document.exercises.dedup_by(|one, other| one.name == other.name);
                    document
                        .predictions
                        .retain(|lab, _| course.labs.iter().any(|one| one.name == *lab));
                    let known = document.exercises.len() + document.predictions.len();
                    if all > known {
                        let file = path.file_name().unwrap_or_default().display();
                        let entries = counted(all - known, "entry", "entries");
                        unknown.push(format!("{file}: {entries} that this course does not have"));
                    }
                    read.push((name, document));
                }
                Err(error) => refused.push(format!("{}: {error}", path.display())),
            }
        }
        if read.is_empty() && refused.is_empty() {
            return Err(refuse(String::new()));
        }
        // Several readers may be the same user: everyone on a hub, or root in a container.
        let mut users: BTreeMap<String, usize> = BTreeMap::new();
        for (_, document) in &read {
            *users.entry(document.who.clone()).or_default() += 1;
        }
        let mut documents = BTreeMap::new();
        for (file, document) in read {
            let who = if users[&document.who] > 1 || document.who.is_empty() {
                format!("{} {file}", document.who)
            } else {
                document.who.clone()
            };
            documents.insert(who, document);
        }
        Ok(Readers { documents, refused, unknown, exercises })
    }

    /// A table of people, beginning with those who need help, and a table of exercises.
    pub fn render(&self, screen: &Screen) -> String {
        let mut people: Vec<(&String, &Document)> = self.documents.iter().collect();
        people.sort_by_key(|(_, document)| {
            (
                document.solved(),
                std::cmp::Reverse(document.at().map_or(0, |at| at.record.tries)),
            )
        });
        let rows: Vec<Vec<String>> =
            people.iter().map(|(who, document)| person(who, document)).collect();
        let header = ["who", "solved", "works on", "stuck at", "tries", "hints", "ago"];
        let mut text = format!("{}\n\n{}", table(screen, &header, &rows), self.table(screen));
        for line in &self.refused {
            text += &format!("\n\n{}", screen.row("not read", &harmless(line)));
        }
        for line in &self.unknown {
            text += &format!("\n\n{}", screen.row("ignored", &harmless(line)));
        }
        text
    }

    /// The places at which people are stuck, an exercise and what is wrong there, with how many
    /// they are: most first.
    pub(super) fn stuck(&self) -> Vec<((String, String), usize)> {
        let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
        for entry in self.entries() {
            if !entry.solved && entry.record.when > 0 {
                *places.entry((entry.name.clone(), entry.stuck_at())).or_default() += 1;
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, people)| std::cmp::Reverse(*people));
        places
    }

    /// The exercises of which someone's entry fits, in the course's order.
    pub(super) fn with(&self, fits: impl Fn(&Entry) -> bool) -> Vec<&String> {
        let has = |name: &&String| self.of(name).any(&fits);
        self.exercises.iter().filter(has).collect()
    }

    /// What everyone's documents say of exercises.
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.documents.values().flat_map(|document| &document.exercises)
    }

    /// What they say of one.
    fn of(&self, exercise: &str) -> impl Iterator<Item = &Entry> {
        self.entries().filter(move |entry| entry.name == exercise)
    }

    /// A lab's number, and the letter of an exercise among those of its lab: `03` and `b`.
    pub(super) fn code(&self, name: &str) -> (String, char) {
        let lab_of = |name: &str| name.split_once('-').map_or(name, |(lab, _)| lab).to_string();
        let lab = lab_of(name);
        let mut of_lab = self.exercises.iter().filter(|other| lab_of(other) == lab);
        let place = of_lab.position(|other| other == name).unwrap_or(0);
        (harmless(lab.trim_start_matches("lab")), char::from(b'a' + (place % 26) as u8))
    }

    fn table(&self, screen: &Screen) -> String {
        let stuck = self.stuck();
        let row = |name: &String| {
            let entries = || self.of(name);
            let told: Vec<String> = stuck
                .iter()
                .filter(|((exercise, _), _)| exercise == name)
                .take(2)
                .map(|((_, why), count)| format!("{count}: {}", harmless(why)))
                .collect();
            let solved = entries().filter(|entry| entry.solved).count();
            let begun = entries().filter(|entry| !entry.solved && entry.begun).count();
            vec![harmless(name), solved.to_string(), begun.to_string(), told.join("\n")]
        };
        let rows: Vec<Vec<String>> = self.with(|_| true).into_iter().map(row).collect();
        table(screen, &["exercise", "solved", "begun", "most are stuck at"], &rows)
    }
}

/// A name whose words leave room for the other columns. A table in which one column is too wide
/// becomes a list for everyone.
pub(super) fn name(text: &str) -> String {
    const MOST: usize = 12;
    let short = |word: &str| match word.chars().count() {
        0..=MOST => word.to_string(),
        _ => word.chars().take(MOST - 1).chain(['…']).collect(),
    };
    let words: Vec<String> = harmless(text).split_whitespace().take(4).map(short).collect();
    words.join(" ")
}

fn person(who: &str, document: &Document) -> Vec<String> {
    let solved = format!("{} of {}", document.solved(), document.exercises.len());
    let (at, stuck, record) = match document.at() {
        Some(at) => (harmless(&at.name), harmless(&at.stuck_at()), at.record.clone()),
        None => (String::new(), "nothing: all solved".into(), Record::default()),
    };
    let last = document.exercises.iter().map(|entry| entry.record.when).max().unwrap_or(0);
    let ago = if last == 0 {
        String::new()
    } else {
        ago(now().saturating_sub(last))
    };
    vec![
        name(who),
        solved,
        at,
        stuck,
        record.tries.to_string(),
        record.hints.to_string(),
        ago,
    ]
}

/// A time span in minutes, hours or days.
pub(super) fn ago(seconds: u64) -> String {
    match seconds {
        0..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One long word in a name, and the longest exercise's name, leave room for seven columns.
    #[test]
    fn a_long_name_leaves_the_table_a_table() {
        let row = |who: &str| {
            let cells =
                ["1 of 46", "lab05-cross-entropy", "losses without logits", "11", "4", "59 min"];
            let mut row = vec![name(who)];
            row.extend(cells.map(String::from));
            row
        };
        let header = ["who", "solved", "works on", "stuck at", "tries", "hints", "ago"];
        for who in ["ada", "Ada Lovelace", "maximilian-mustermann", &"x".repeat(400)] {
            let text = table(&Screen::plain(), &header, &[row("ada"), row(who)]);
            assert!(text.contains("works on"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        assert_eq!(name("maximilian-mustermann"), "maximilian-…");
    }
}
