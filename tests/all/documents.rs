//! `labs/sources.toml`: what the five documents show, where it is here, and the sentences that say
//! what a document says. Each sentence stands in its file, each place of a row exists, and with
//! SHARDLAB_EXTRAS each quotation stands in its document.

use crate::sources::{entries, text};
use crate::suite::needed;
use crate::suite::program::ROOT;
use kit::{Course, Lab};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

#[derive(Deserialize)]
struct File {
    source: Vec<Source>,
}

/// A document, and all that it shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    number: usize,
    file: String,
    title: String,
    rows: Vec<Row>,
    /// A commit of the document's repository, and what it alone shows.
    commit: Option<String>,
    repository: Option<String>,
    #[serde(default)]
    shown_by_the_commit: Vec<OfCommit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    line: usize,
    kind: Kind,
    quote: String,
    here: Option<String>,
    held: Option<String>,
    not_here: Option<String>,
    /// A file, and words of a sentence in it.
    #[serde(default)]
    said: Vec<[String; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfCommit {
    path: String,
    line: usize,
    quote: String,
    said: Vec<[String; 2]>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Command,
    Figure,
    Setting,
    Claim,
    Picture,
    Failure,
    Question,
}

fn root() -> &'static Path {
    Path::new(ROOT)
}

fn all() -> Vec<Source> {
    let file: File = toml::from_str(&text(&root().join("labs/sources.toml"))).unwrap();
    file.source
}

/// A text with single spaces. A sentence may go on in the next line: of a page, of a string in
/// Rust, of a comment, of a notebook's JSON.
fn flat(text: &str) -> String {
    let text = text.replace("\\n\",\n", " ").replace("\\\n", " ").replace("\\\"", "\"");
    let words = text.split_whitespace().filter(|word| !["//!", "///", "//"].contains(word));
    words.collect::<Vec<_>>().join(" ")
}

/// All sentences with a row, as file and words.
fn said(sources: &[Source]) -> Vec<&[String; 2]> {
    let mut all = Vec::new();
    for source in sources {
        all.extend(source.rows.iter().flat_map(|row| &row.said));
        all.extend(source.shown_by_the_commit.iter().flat_map(|row| &row.said));
    }
    all
}

#[test]
fn every_row_is_here_or_says_why_not() {
    let sources = all();
    let labs = Course::read().expect("labs.toml").labs;
    assert_eq!(sources.iter().map(|source| source.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let mut rows = 0;
    let mut here = 0;
    for source in &sources {
        assert!(!source.title.is_empty());
        assert!(source.rows.is_sorted_by_key(|row| row.line), "{}", source.number);
        for row in &source.rows {
            let place = format!("source {}, line {}: {}", source.number, row.line, row.quote);
            rows += 1;
            match (&row.here, &row.held, &row.not_here) {
                (Some(places), Some(held), None) => {
                    here += 1;
                    places.split("; ").for_each(|place_here| exists(&labs, place_here, &place));
                    is_held(row, held, &place);
                }
                // What failed, and what a source asks, is the best of it.
                (None, None, Some(why)) => assert!(
                    why.len() > 10 && ![Kind::Failure, Kind::Question].contains(&row.kind),
                    "{place}"
                ),
                _ => panic!("{place}: `here` with `held`, or `not_here`"),
            }
        }
    }
    // So many of what the sources show are here.
    assert!(here * 100 >= rows * 95, "{here} of {rows}");
}

/// A command names a program of this project, and a page is there.
fn exists(labs: &[Lab], here: &str, place: &str) {
    let name = here.split(' ').next().unwrap_or_default();
    if name.ends_with(".md") {
        let page = ["book/src", ""].map(|folder| root().join(folder).join(name));
        assert!(page.iter().any(|page| page.is_file()), "{place}: there is no page {name}");
        return;
    }
    let is_tool = root().join("labs/tools").join(name).is_dir();
    assert!(is_tool || labs.iter().any(|lab| lab.name == name), "{place}: no program {name}");
}

/// The test, the output or the page that a row was held against, is there.
fn is_held(row: &Row, held: &str, place: &str) {
    match held.split_once(' ') {
        Some(("test", name)) => {
            let function = format!("fn {name}(");
            assert!(functions().iter().any(|of| of.contains(&function)), "{place}: no {function}");
        }
        Some(("output", name)) => {
            let file = root().join("book/outputs").join(name);
            assert!(file.is_file(), "{place}: no output {name}");
        }
        Some(("page", name)) => {
            assert!(root().join("book/src").join(name).is_file(), "{place}: no page {name}")
        }
        None if held == "words" => assert!(!row.said.is_empty(), "{place}: no sentence says it"),
        _ => panic!("{place}: {held} is no test, output, page or `words`"),
    }
}

/// The project's Rust files, which have its tests.
fn functions() -> &'static [String] {
    static FILES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    FILES.get_or_init(|| {
        let folders = ["src", "crates", "labs", "tests"].map(|folder| root().join(folder));
        let files = folders.iter().flat_map(|folder| crate::sources::rust_files(folder));
        files.map(|file| text(&file)).collect()
    })
}

#[test]
fn sentences_about_sources_stand_where_their_rows_say() {
    let mut files: HashMap<String, String> = HashMap::new();
    let mut missing = Vec::new();
    let sources = all();
    for [file, words] in said(&sources) {
        let text = files.entry(file.clone()).or_insert_with(|| flat(&text(&root().join(file))));
        if !text.contains(&flat(words)) {
            missing.push(format!("{file}: {words}"));
        }
    }
    assert!(missing.is_empty(), "these sentences are not there:\n{}", missing.join("\n"));
}

/// How a sentence names a source. Pages speak of lines of code as sources, too.
fn names_a_source(line: &str) -> bool {
    let names = ["sources.md", "the source", "The source", "first source", "The sources"];
    let others = ["source line", "source code", "the source is", "in the source of"];
    names.iter().any(|name| line.contains(name)) && !others.iter().any(|other| line.contains(other))
}

/// A paragraph, a string of a screen or a cell that speaks of a source has a sentence with a row.
#[test]
fn what_is_said_of_a_source_has_its_row() {
    let sources = all();
    let said = said(&sources);
    let mut without = Vec::new();
    let mut look = |file: &str, paragraph: &str| {
        let flat_paragraph = flat(paragraph);
        let has_row = said
            .iter()
            .any(|[of, words]| of == file && flat_paragraph.contains(&flat(words)));
        if names_a_source(paragraph) && !has_row {
            without.push(format!("{file}: {paragraph}"));
        }
    };
    // These list the sources, and say nothing of what they say.
    let lists = ["SUMMARY.md", "sources.md", "glossary.md"];
    for page in entries(&root().join("book/src")) {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        if page.is_file() && !lists.contains(&name.as_str()) {
            let file = format!("book/src/{name}");
            text(&page).lines().for_each(|line| look(&file, line));
        }
    }
    for notebook in entries(&root().join("notebooks")) {
        if notebook.extension().is_some_and(|extension| extension == "ipynb") {
            let file = format!("notebooks/{}", notebook.file_name().unwrap().to_string_lossy());
            let json: serde_json::Value = serde_json::from_str(&text(&notebook)).unwrap();
            for cell in json["cells"].as_array().unwrap() {
                if cell["cell_type"] == "markdown" {
                    let lines = cell["source"].as_array().unwrap();
                    let text: String = lines.iter().filter_map(|line| line.as_str()).collect();
                    look(&file, &text);
                }
            }
        }
    }
    text(&root().join("labs/labs.toml"))
        .lines()
        .filter(|line| !line.starts_with('#'))
        .for_each(|line| look("labs/labs.toml", line));
    assert!(
        without.is_empty(),
        "without a row in labs/sources.toml:\n{}",
        without.join("\n")
    );
}

/// So has each string of a lab's screens, known by the words around the source.
#[test]
fn what_a_screen_says_of_a_source_has_its_row() {
    let sources = all();
    let said = said(&sources);
    let mut without = Vec::new();
    let labs = root().join("labs");
    for path in crate::sources::rust_files(&labs) {
        let file = format!("labs/{}", path.strip_prefix(&labs).unwrap().to_string_lossy());
        let code = crate::sources::without_tests(&text(&path));
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(at) = words.iter().position(|word| word.contains("source")) else {
                continue;
            };
            let around = words[at.saturating_sub(1)..(at + 2).min(words.len())].join(" ");
            let around = around
                .split(['"', ','])
                .find(|part| part.contains("source"))
                .unwrap_or_default();
            let around = around.trim_matches(['(', ')']).trim();
            // Every published run in lab11 has a source, and so has a file that was fetched.
            let others = ["the source's figure and the planner's", "Compare its size"];
            if names_a_source(line)
                && !others.iter().any(|other| line.contains(other))
                && !said.iter().any(|[of, words]| *of == file && flat(words).contains(around))
            {
                without.push(format!("{file}: {around}"));
            }
        }
    }
    assert!(
        without.is_empty(),
        "without a row in labs/sources.toml:\n{}",
        without.join("\n")
    );
}

/// Each quotation stands at its line of the document.
#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with seeds/, the five documents"]
fn quotations_stand_in_their_documents() {
    let folder = needed("SHARDLAB_EXTRAS").join("seeds");
    let mut wrong = Vec::new();
    for source in all() {
        let bytes = std::fs::read(folder.join(&source.file)).unwrap();
        let document = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = document.split('\n').collect();
        for row in &source.rows {
            let found = lines.get(row.line - 1).is_some_and(|line| line.contains(&row.quote));
            if !found {
                wrong.push(format!("{}, line {}: {}", source.file, row.line, row.quote));
            }
        }
    }
    assert!(wrong.is_empty(), "not in the documents:\n{}", wrong.join("\n"));
}

/// What only a commit shows names the commit, a file and a line.
#[test]
fn what_a_commit_shows_names_it() {
    for source in all() {
        let named = source.commit.is_some() && source.repository.is_some();
        assert_eq!(named, !source.shown_by_the_commit.is_empty(), "{}", source.number);
        for row in source.shown_by_the_commit {
            assert!(!row.path.is_empty() && row.line > 0 && !row.said.is_empty(), "{}", row.quote);
        }
    }
}
