//! Someone in a notebook has no flags. The library's errors name settings in backticks, and the
//! kit's `labs/kit/flags/names.rs` knows their flags.

use crate::labs::labs;
use crate::sources::{rust_files, text, without_tests};
use crate::suite::program::{ROOT, program, succeeded};
use kit::Lab;
use shardlab::data::Corpus;
use shardlab::train::Config;
use std::path::Path;
use std::process::Command;

/// Words in backticks that are no settings: methods that a `#[must_use]` names.
const METHODS: [&str; 2] = ["finish", "run"];

/// Each file of the library and of the shapes, without its tests. What reads a `config.json` is
/// left out: its helps are lab11's command lines.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(ROOT);
    let files = ["src", "crates/shapes"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)));
    let files = files.filter(|file| !file.iter().any(|part| part == "config_json"));
    let named = |path: &std::path::PathBuf| {
        (
            path.strip_prefix(root).unwrap().display().to_string(),
            without_tests(&text(path)),
        )
    };
    files.map(|file| named(&file)).collect()
}

/// The texts in quotes in a source, without comments. One that goes on in the next line is one
/// text.
fn texts(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        rest = &rest[at..];
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, next)| next);
        } else if let Some(text) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = text.find(|c| {
                let is_end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                is_end
            });
            let end = end.unwrap_or(text.len());
            found.push(text[..end].to_string());
            rest = text.get(end + 1..).unwrap_or("");
        } else {
            rest = rest.strip_prefix("'\"'").unwrap_or(&rest[1..]);
        }
    }
    found
}

/// Whether a text names a flag of ours. Commands of other programs have flags of their own.
fn names_a_flag(text: &str) -> bool {
    let other = ["cargo ", "srun ", "mpirun ", "curl "];
    text.lines().any(|line| {
        let mut after_dashes = line.split("--").skip(1);
        after_dashes.any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            && !other.iter().any(|program| line.contains(program))
    })
}

#[test]
fn the_library_knows_no_flag() {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for (file, source) in sources() {
        if source.contains("clap::") {
            found.push(format!("{file}: clap"));
        }
        let texts = texts(&source);
        let wrong = texts.iter().filter(|text| names_a_flag(text));
        found.extend(wrong.map(|text| format!("{file}: {text}")));
        seen.extend(texts);
    }
    assert!(seen.iter().any(|text| text.contains("training has diverged")), "errors' texts");
    assert!(found.is_empty(), "{}", found.join("\n"));
    let goes_on = "let a = '\"'; // \"\nf(\"4 \\\"heads\\\": \\\n   give --heads 2\");\n";
    assert_eq!(texts(goes_on).len(), 1);
    assert!(names_a_flag(&texts(goes_on)[0]));
    assert!(!names_a_flag("run cargo build --features mpi"));
    assert!(!names_a_flag("a pause -- and more"));
}

#[test]
fn each_setting_that_an_error_names_has_a_flag() {
    // A checkpoint's refusal puts the names of the run's settings into its text; of the text that a
    // run trains on it gives the hash.
    let recorded = Config::small(1, &Corpus::embedded().unwrap()).settings(&[]);
    let mut settings: Vec<String> = recorded.keys().map(|name| name.replace('-', "_")).collect();
    settings.retain(|name| name != "data");
    for (_, source) in sources() {
        for text in texts(&source) {
            let words = text.split('`').skip(1).step_by(2);
            let is_name = |word: &&str| {
                !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            };
            settings.extend(words.filter(is_name).map(str::to_string));
        }
    }
    settings.sort();
    settings.dedup();
    settings.retain(|name| !METHODS.contains(&name.as_str()));
    for known in ["lr", "heads"] {
        assert!(
            settings.iter().any(|setting| setting == known),
            "{known} is not in {settings:?}"
        );
    }
    let mut help = String::new();
    for Lab { name: lab, .. } in labs() {
        help += &succeeded(&Command::new(program(&lab)).arg("--help").output().unwrap());
    }
    for setting in settings {
        let flag = kit::flags::with_flags(&format!("`{setting}`"));
        assert!(flag.starts_with("--"), "labs/kit/flags/names.rs has no flag for `{setting}`");
        let has = help.split_whitespace().any(|word| word.trim_end_matches([',', '[']) == flag);
        assert!(has, "no lab has {flag}, for the setting `{setting}`");
    }
}
