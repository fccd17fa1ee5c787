//! The book's pages and the notebooks, as far as nothing needs to run: order, listings, outputs,
//! words and links.

use crate::suite::program::{ROOT, lab, stdout};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use workbook::dev::clock_row;

/// A chapter about a lab has these sections, in this order.
const SECTIONS: [&str; 5] =
    ["The run", "What goes wrong", "Exercises", "Takeaway", "Further reading"];

#[derive(Deserialize)]
struct Labs {
    lab: Vec<Lab>,
}

#[derive(Deserialize)]
struct Lab {
    name: String,
    title: String,
    question: String,
    takes: String,
    ranks: usize,
    #[serde(default)]
    exercise: Vec<Exercise>,
}

#[derive(Deserialize)]
struct Exercise {
    name: String,
}

fn root() -> &'static Path {
    Path::new(ROOT)
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn labs() -> Vec<Lab> {
    toml::from_str::<Labs>(&text("labs/labs.toml")).expect("labs.toml").lab
}

/// Title and file of every page, in the book's order.
fn pages() -> Vec<(String, String)> {
    let summary = text("book/src/SUMMARY.md");
    summary.lines().filter_map(links_of_line).collect()
}

fn links_of_line(line: &str) -> Option<(String, String)> {
    let (title, rest) = line.trim_start_matches([' ', '-']).strip_prefix('[')?.split_once("](")?;
    Some((title.to_string(), rest.strip_suffix(')')?.to_string()))
}

/// What `{{#include …}}` asks for on a page: a file, seen from the project's folder, and an anchor.
fn includes(page: &str) -> Vec<(PathBuf, Option<String>)> {
    let page_text = text(Path::new("book/src").join(page));
    let parts = page_text
        .split("{{#include ")
        .skip(1)
        .map(|rest| rest.split("}}").next().unwrap().to_string());
    parts
        .map(|what| {
            let (file, anchor) = what
                .split_once(':')
                .map_or((what.as_str(), None), |(f, a)| (f, Some(a.to_string())));
            let mut path = Path::new("book/src").join(page);
            path.pop();
            for part in file.split('/') {
                if part == ".." {
                    assert!(path.pop())
                } else {
                    path.push(part)
                }
            }
            (path, anchor)
        })
        .collect()
}

#[test]
fn chapters_say_what_labs_toml_says_and_have_all_their_sections() {
    for Lab { name, title, question, takes, ranks, exercise } in labs() {
        let page = text(format!("book/src/{name}.md"));
        assert!(
            page.starts_with(&format!("# {name} · {title}\n\n*{question}*\n")),
            "{name}: its beginning"
        );
        let ranks = if ranks == 1 {
            "1 rank".into()
        } else {
            format!("{ranks} ranks")
        };
        assert!(
            page.contains(&format!("\n{takes} to run · {ranks}\n")),
            "{name}: what a run takes"
        );
        assert!(page.contains("**Back to the incident.**"), "{name}: its incident is resolved");
        // Others, with names of their own, stand before and between them.
        let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
        let sections: Vec<&str> = sections.filter(|section| SECTIONS.contains(section)).collect();
        assert_eq!(sections, SECTIONS, "{name}: its sections");
        let exercises = page
            .split("\n## ")
            .find(|section| section.starts_with("Exercises\n"))
            .unwrap_or_default();
        for exercise in exercise {
            assert!(exercises.contains(&exercise.name), "{name}: its exercise {}", exercise.name);
        }
        let notes = text(format!("labs/{name}/instructors.md"));
        assert!(notes.starts_with(&format!("# {name} · {title}\n\n- ")), "{name}: its notes");
    }
}

/// What a path promises can be kept.
#[test]
fn a_labs_page_does_not_take_too_long() {
    for lab in kit::Course::read().unwrap().labs {
        let [short, full] = lab.minutes;
        assert!(
            short <= 45 && short <= full && full <= 95,
            "{}: {short} and {full} minutes: fold more, or move a lesson to a page of its own",
            lab.name
        );
    }
}

/// A page without its code, and without the boxes that begin so.
fn without_boxes(page: &str, begin: &str) -> String {
    let open = page.split("```").step_by(2).collect::<String>();
    let mut parts = open.split(begin);
    let first = parts.next().unwrap_or_default().to_string();
    first
        + &parts
            .filter_map(|part| Some(part.split_once("</details>")?.1))
            .collect::<String>()
}

/// Prose is read at 100 to 160 words a minute. What a page shows of runs, code and pictures, and
/// what one tries of it, leaves a third of that, as those who tried the pages needed.
#[test]
fn the_minutes_of_a_page_fit_its_words() {
    let course = kit::Course::read().unwrap();
    let mut said = 0;
    for (_, file) in pages() {
        let Some(minutes) = course.minutes(file.trim_end_matches(".md")) else {
            continue;
        };
        let page = text(Path::new("book/src").join(&file));
        let page = page.split("\n## Further reading").next().unwrap();
        // One output on a long page of prose is not what it is read for.
        let shown = page.matches("{{#include").count();
        let usual = match 1000 * shown >= page.split_whitespace().count() {
            true => 22..=80,
            false => 100..=160,
        };
        // In short form a reader opens no box; in full those that are "longer".
        for (minutes, folded) in minutes.into_iter().zip(["<details", "<details>"]) {
            let words = without_boxes(page, folded).split_whitespace().count();
            let each = words / minutes;
            assert!(usual.contains(&each), "{file}: {each} words a minute, and {usual:?} is usual");
            assert_eq!(minutes % 5, 0, "{file}: nobody takes minutes for more exact than they are");
        }
        said += 1;
    }
    let says =
        |page: &&(String, String)| text(Path::new("book/src").join(&page.1)).contains("\nTakes [");
    assert_eq!(said, pages().iter().filter(says).count(), "pages that say their minutes");
}

#[test]
fn each_path_has_a_timetable_of_its_minutes() {
    let page = text("book/src/how-to-use.md");
    let paths = page.lines().filter_map(|line| {
        let (name, minutes) = line.strip_prefix("### ")?.rsplit_once(": ")?;
        Some((name.to_string(), minutes.strip_suffix(" minutes")?.parse::<usize>().ok()?))
    });
    // The minutes of each timetable without meals.
    let clocks = text("book/src/teach/timetables.md");
    let mut timetables: Vec<(String, usize)> = Vec::new();
    for section in clocks.split("\n### ").skip(1) {
        let path = section.lines().next().unwrap();
        let mut sum = 0;
        let mut without_pause = 0;
        for (minutes, who, what) in section.lines().filter_map(clock_row) {
            if who != "lunch" {
                sum += minutes;
            }
            // A row that is another timetable has that one's pauses, and meals around it.
            let other = what.starts_with("Half a day") || what.starts_with("One day");
            without_pause = match who == "pause" || who == "lunch" || other {
                true => 0,
                false => without_pause + minutes,
            };
            assert!(without_pause <= 90, "{path}: {without_pause} minutes without a pause: {what}");
        }
        timetables.push((path.to_string(), sum));
    }
    for (path, minutes) in paths {
        // A timetable has the path's name, at least as far as its comma.
        let of =
            |table: &(String, usize)| path == table.0 || path.starts_with(&format!("{},", table.0));
        let its = timetables.iter().position(of).expect(&path);
        assert_eq!(timetables.remove(its).1, minutes, "{path}");
    }
    assert!(timetables.is_empty(), "timetables of no path: {timetables:?}");
    // The longest path has all labs, with those before it that it names.
    let half_days = page.split_once("\n### Half a day A").unwrap().1;
    let days = half_days.split_once("\n### How minutes").unwrap().0;
    for lab in labs() {
        assert!(days.contains(&format!("({}.md)", lab.name)), "two days have no {}", lab.name);
    }
}

/// The part of a page between two tags.
fn sections<'a>(page: &'a str, begins: &str) -> Vec<&'a str> {
    let all = page.split(begins).skip(1);
    all.map(|rest| rest.split_once("</section>").expect("a section ends").0)
        .collect()
}

/// `browse.py` looks whether it fits.
#[test]
fn a_slide_shows_a_figure_or_an_output_of_the_book_and_has_notes() {
    let page = text("book/src/teach/slides.md");
    let all = sections(&page, "<section class=\"slide");
    let short = all.iter().filter(|slide| slide.starts_with(" taste\">")).count();
    // Half a day A is the first four labs.
    let course = kit::Course::read().unwrap();
    let of_half_a_day = course.labs.iter().take(4);
    for name in of_half_a_day.map(|lab| &lab.name) {
        assert!(all.iter().any(|slide| slide.contains(name.as_str())), "no slide of {name}");
    }
    assert!(
        0 < short && short < all.len(),
        "{short} of {} slides are of the taste",
        all.len()
    );
    assert_eq!(page.matches("</section>\n<aside class=\"notes\">\n\n").count(), all.len());
    for slide in all {
        assert_eq!(slide.matches("\n## ").count(), 1, "one idea: {slide}");
        assert!(slide.contains("{{#include ../../outputs/"), "no figure of the book's: {slide}");
        // Outputs are files that a command has made.
        let fences: Vec<&str> = slide.split("```text\n").skip(1).collect();
        assert!(fences.iter().all(|fence| fence.starts_with("{{#include ")), "typed: {slide}");
        assert!(!slide.contains("<svg") && !slide.contains("<img"), "drawn by hand: {slide}");
    }
}

#[test]
fn every_page_about_the_job_has_its_line_of_the_ledger() {
    let entries: BTreeSet<String> = lab11_ledger_entries();
    for (_, page) in pages() {
        let name = page.strip_suffix(".md").unwrap_or(&page);
        let shown = text(Path::new("book/src").join(&page))
            .contains(&format!("{{{{#include ../outputs/ledger-{name}.txt}}}}"));
        assert_eq!(shown, entries.contains(name), "{page} and its entry");
    }
}

fn lab11_ledger_entries() -> BTreeSet<String> {
    let outputs = book::outputs(root()).unwrap();
    let entry = |output: &book::Output| {
        let page = output.file.strip_prefix("ledger-")?;
        page.strip_suffix(".txt").map(str::to_string)
    };
    outputs.iter().filter_map(entry).collect()
}

#[test]
fn every_page_is_in_the_summary() {
    let known: BTreeSet<String> =
        pages().into_iter().map(|page| page.1).chain(["SUMMARY.md".into()]).collect();
    let files = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(root().join("book/src").join(folder)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| {
                if folder.is_empty() {
                    name
                } else {
                    format!("{folder}/{name}")
                }
            })
            .collect()
    };
    let mut there: BTreeSet<String> = files("").into_iter().collect();
    assert!(there.remove("teach"));
    there.extend(files("teach"));
    assert_eq!(known, there);
}

/// As `wc -w` counts them.
const MOST_WORDS_OF_A_PAGE: usize = 3_500;

#[test]
fn a_page_is_short_enough_to_be_read() {
    for (_, page) in pages() {
        let has = text(Path::new("book/src").join(&page)).split_whitespace().count();
        let most = MOST_WORDS_OF_A_PAGE;
        assert!(has <= most, "{page} has {has} words; a page may have {most}");
    }
}

/// Neither a page nor a listing on it prints a solution, and no notebook does.
#[test]
fn no_page_prints_a_solution() {
    let code = |file: String| -> BTreeSet<String> {
        let source = text(file);
        let lines =
            source.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        // Short lines can stand anywhere.
        lines.filter(|line| line.len() >= 24 && !line.starts_with("//")).collect()
    };
    let mut solutions: BTreeMap<String, String> = BTreeMap::new();
    for exercise in labs().into_iter().flat_map(|lab| lab.exercise) {
        let [solution, blank] = ["solutions", "exercises"].map(|folder| {
            code(format!(
                "labs/{}/{folder}/{}.rs",
                exercise.name.split('-').next().unwrap_or_default(),
                exercise.name.replace('-', "_")
            ))
        });
        solutions
            .extend(solution.difference(&blank).map(|line| (line.clone(), exercise.name.clone())));
    }
    let mut printed: Vec<(String, String)> = Vec::new();
    for (_, page) in pages() {
        printed.push((page.clone(), text(Path::new("book/src").join(&page))));
        for (path, anchor) in
            includes(&page).into_iter().filter_map(|(path, anchor)| Some((path, anchor?)))
        {
            let source = text(&path);
            let listing =
                source.split_once(&format!("ANCHOR: {anchor}\n")).map_or("", |(_, rest)| rest);
            printed.push((
                page.clone(),
                listing.split("ANCHOR_END").next().unwrap_or_default().into(),
            ));
        }
    }
    for lab in labs() {
        printed.push((
            format!("{}.ipynb", lab.name),
            text(format!("notebooks/{}.ipynb", lab.name))
                .replace("\\n\"", "\"")
                .replace("\\\"", "\""),
        ));
    }
    for (place, text) in printed {
        let mut told: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for line in text.lines() {
            let line = line.trim_matches(|c: char| c.is_whitespace() || c == '"' || c == ',');
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            if let Some((line, exercise)) = solutions.get_key_value(&line) {
                told.entry(exercise).or_default().insert(line);
            }
        }
        // One line alone, such as a receive, is no solution.
        for (exercise, lines) in told {
            assert!(
                lines.len() < 2,
                "{place} prints lines of the solution of {exercise}: {lines:#?}"
            );
        }
    }
}

/// The anchors of a file: each must end.
fn anchors(file: &Path) -> BTreeSet<String> {
    let source = text(file);
    let comment = match file.extension() {
        Some(extension) if extension == "py" => "#",
        _ => "//",
    };
    let named = |mark: &str| -> BTreeSet<String> {
        source
            .lines()
            .filter_map(|line| line.trim().strip_prefix(&format!("{comment} {mark}:")))
            .map(|name| name.trim().to_string())
            .collect()
    };
    let begun = named("ANCHOR");
    let ended = named("ANCHOR_END");
    assert_eq!(begun, ended, "{}: anchors that begin, and those that end", file.display());
    begun
}

#[test]
fn listings_are_there_and_used_and_every_page_with_one_shows_a_run() {
    let mut used: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for (_, page) in pages() {
        let includes = includes(&page);
        // What needs PyTorch, `book/pytorch/compare.py --write` writes.
        let is_output = |path: &Path| {
            path.starts_with("book/outputs") || path == Path::new("book/pytorch/output.txt")
        };
        for (path, anchor) in &includes {
            assert!(
                root().join(path).is_file(),
                "{page} includes {}, which is not there",
                path.display()
            );
            if let Some(anchor) = anchor {
                assert!(
                    anchors(path).contains(anchor),
                    "{page}: {} has no anchor {anchor}",
                    path.display()
                );
                used.entry(path.clone()).or_default().insert(anchor.clone());
            } else {
                assert!(
                    is_output(path),
                    "{page}: a listing is included by an anchor: {}",
                    path.display()
                );
            }
        }
        if let Some(listing) = includes.iter().position(|(path, _)| !is_output(path)) {
            let run = includes
                .iter()
                .skip(listing)
                .any(|(path, _)| is_output(path) && path.extension().unwrap() == "txt");
            assert!(run, "{page} shows a listing, and no output after it");
        }
    }
    for folder in ["labs", "src", "crates"] {
        for file in rust_files(&root().join(folder)) {
            let file = file.strip_prefix(root()).unwrap().to_path_buf();
            // A lab that is begun from it has a page for its listings.
            if file.starts_with("labs/tools/workbook/dev/skeleton") {
                continue;
            }
            let nobody = BTreeSet::new();
            assert_eq!(
                &anchors(&file),
                used.get(&file).unwrap_or(&nobody),
                "{}: anchors, and those used",
                file.display()
            );
        }
    }
}

/// Someone who knows PyTorch meets it beside each heart, and `compare.py` runs what they read.
#[test]
fn every_twin_in_pytorch_is_on_its_page_and_is_compared() {
    let compared = text("book/pytorch/compare.py");
    let mut shown = 0;
    for (_, page) in pages() {
        let name = page.trim_end_matches(".md").replace('-', "_");
        // The page of that file's checks lists them.
        if name == "take_along" {
            continue;
        }
        let engine = name.replace("lab", "deepspeed");
        if engine != name && root().join(format!("book/pytorch/{engine}.py")).is_file() {
            let tab = format!("\n```python,deepspeed\n{{{{#include ../pytorch/{engine}.py:");
            assert!(text(format!("book/src/{page}")).contains(&tab), "{page} shows no {engine}.py");
            assert!(
                compared.contains(&format!("    import {engine}\n")),
                "{engine} is not compared"
            );
        }
        if root().join(format!("book/pytorch/{name}.py")).is_file() {
            let twin = format!("\n```python,twin\n{{{{#include ../pytorch/{name}.py:");
            assert!(text(format!("book/src/{page}")).contains(&twin), "{page} shows no {name}.py");
            assert!(compared.contains(&format!("\nimport {name}\n")), "{name}.py is not compared");
            shown += 1;
        }
    }
    assert!(shown >= 12, "{shown} twins");
}

pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => {
                Vec::from_iter((path.extension().is_some_and(|ext| ext == "rs")).then_some(path))
            }
        })
        .collect()
}

#[test]
fn every_output_has_its_file_and_its_place_and_no_file_is_typed() {
    let outputs = book::outputs(root()).unwrap();
    let names: BTreeSet<PathBuf> = outputs
        .iter()
        .map(|output| Path::new("book/outputs").join(&output.file))
        .collect();
    assert_eq!(names.len(), outputs.len(), "two outputs have one name");
    let there: BTreeSet<PathBuf> = std::fs::read_dir(root().join("book/outputs"))
        .unwrap()
        .map(|entry| Path::new("book/outputs").join(entry.unwrap().file_name()))
        .collect();
    assert_eq!(names, there, "book/outputs.toml against book/outputs");
    let shown = pages().into_iter().flat_map(|page| includes(&page.1)).map(|include| include.0);
    let shown: BTreeSet<PathBuf> = shown.filter(|path| path.starts_with("book/outputs")).collect();
    assert_eq!(names, shown, "book/outputs.toml against what pages include");
    for output in outputs {
        let text = text(Path::new("book/outputs").join(&output.file));
        if output.file.ends_with(".svg") {
            // An empty line would end the HTML block in which the page holds it.
            assert!(
                text.starts_with("<svg ") && text.ends_with("</svg>\n") && !text.contains("\n\n"),
                "{}",
                output.file
            );
        } else if output.file.ends_with(".html") {
            assert!(text.starts_with('<') && !text.contains("\n\n"), "{}", output.file);
        } else if output.file.ends_with(".json") {
            assert!(!text.contains("\n\n") && !text.contains(['<', '$', '`']), "{}", output.file);
        } else {
            assert!(
                text.starts_with(&format!("{}\n", output.typed())),
                "{}: its command",
                output.file
            );
        }
        // What an output says about itself is the same as itself.
        assert_eq!(book::differences(&text, &text, &output.rules), [""; 0], "{}", output.file);
    }
}

#[test]
fn formulas_can_be_converted() {
    for (_, page) in pages() {
        let converted = book::mathml_of_page(&text(Path::new("book/src").join(&page)));
        let converted = converted.unwrap_or_else(|e| panic!("{page}: {e:#}"));
        assert!(!converted.contains("&amp;nbsp;"), "{page}: write \\, for a space in a formula");
    }
}

/// A page's prose: without fenced code, code in lines, pictures and link targets.
fn prose(page: &str) -> String {
    let fences_aside = page.split("```").step_by(2).flat_map(str::lines);
    let mut out = String::new();
    for line in fences_aside.filter(|line| !line.contains("{{#include")) {
        let line = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let mut rest = line.as_str();
        while let Some((before, target)) = rest.split_once("](") {
            // The title of a page may hold what that page explains.
            let to = target.split(')').next().unwrap_or_default();
            let text = before.rsplit_once('[').filter(|_| to.ends_with(".md"));
            out += text.map_or(before, |text| text.0);
            rest = target.split_once(')').map_or("", |(_, rest)| rest);
        }
        out += rest;
        out.push('\n');
    }
    out
}

/// The glossary and the pages that it names: each explains its word in bold, and what a page has in
/// bold is a word of the glossary.
#[test]
fn what_is_explained_in_bold_is_in_the_glossary() {
    let page_of = |file: &str| prose(&text(Path::new("book/src").join(file)));
    let forms = |word: &str| ["", "s", "es"].map(|plural| format!("{word}{plural}"));
    let mut words = BTreeSet::new();
    let mut before = String::new();
    for line in text("book/src/glossary.md").lines().filter(|line| line.starts_with("- **")) {
        let word = line.split("**").nth(1).unwrap().to_lowercase();
        assert!(before < word, "the glossary has {word:?} after {before:?}");
        before.clone_from(&word);
        let page = line.split("](").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
        let explained = page_of(page).to_lowercase();
        let is_bold = forms(&word).iter().any(|form| explained.contains(&format!("**{form}**")));
        assert!(is_bold, "{page} does not explain {word:?} in bold");
        words.extend(forms(&word));
    }
    for (_, page) in pages() {
        for bold in page_of(&page).split("**").skip(1).step_by(2) {
            let a_sentence = bold.ends_with(['.', '!', '?']) || bold == "bold";
            let known = words.contains(&bold.to_lowercase());
            assert!(known || a_sentence, "{page}: {bold:?} is not in the glossary");
        }
    }
}

/// Code in the prose of a page, with the text that follows each piece.
fn code_in_prose(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text(Path::new("book/src").join(page)).lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts: Vec<&str> = line.split('`').collect();
            for pair in parts[1..].chunks_exact(2) {
                found.push((pair[0].to_string(), pair[1].to_string()));
            }
        }
    }
    found
}

/// A path in the project, as pages write it.
fn is_path(code: &str) -> bool {
    let folders = ["benches", "book", "crates", "data", "labs", "notebooks", "src", "tests"];
    let begins = code.split_once('/').is_some_and(|(first, _)| folders.contains(&first));
    begins && !code.contains(|c: char| c.is_whitespace() || "*…:{<".contains(c))
}

#[test]
fn the_files_that_pages_name_are_there() {
    // What a reader downloads, and placeholders for any lab.
    let not_here = |path: &str| path == "data/tinyshakespeare.txt" || path.contains("labNN");
    let mut named = BTreeSet::new();
    for (_, page) in pages() {
        for (path, _) in code_in_prose(&page) {
            if is_path(&path) && !not_here(&path) {
                assert!(root().join(&path).exists(), "{page} names {path}, which is not there");
                named.insert(path);
            }
        }
    }
    assert!(named.contains("data/play.txt"), "the paths that were found: {named:?}");
}

/// "`step_plainly` in `labs/lab03/lesson.rs`": the file has such a function.
#[test]
fn the_functions_that_a_page_names_are_in_the_files_beside_them() {
    let mut named = BTreeSet::new();
    for (_, page) in pages() {
        let mut names: Vec<String> = Vec::new();
        let mut in_file = false;
        for (code, after) in code_in_prose(&page) {
            if in_file && code.ends_with(".rs") && is_path(&code) {
                let source = text(&code);
                for name in names.drain(..) {
                    let function = name.rsplit("::").next().unwrap();
                    assert!(
                        source.contains(&format!("fn {function}("))
                            || source.contains(&format!("fn {function}<")),
                        "{page}: {code} has no function {name}"
                    );
                    named.insert(name);
                }
            } else {
                names.push(code);
            }
            in_file = after == " in ";
            if after != " in " && after != " and " {
                names.clear();
            }
        }
    }
    assert!(named.contains("step_plainly"), "the functions that were found: {named:?}");
}

#[test]
fn links_lead_to_pages_and_headings() {
    let pages: BTreeSet<String> = pages().into_iter().map(|page| page.1).collect();
    for page in &pages {
        let page_text = text(Path::new("book/src").join(page));
        for target in page_text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("https://") {
                continue;
            }
            let file = target.split('#').next().unwrap();
            let file = match (page.rsplit_once('/'), file.strip_prefix("../")) {
                (Some(_), Some(above)) => above.to_string(),
                (Some((folder, _)), None) => format!("{folder}/{file}"),
                (None, _) => file.to_string(),
            };
            assert!(pages.contains(&file), "{page} links to {target}, which is no page");
        }
    }
}

#[test]
fn commands_on_pages_have_flags_that_exist() {
    let helps: BTreeMap<String, String> = labs()
        .into_iter()
        .map(|of| (of.name.clone(), stdout(&lab(&of.name, "--help"))))
        .collect();
    let pages = pages().into_iter().map(|page| format!("book/src/{}", page.1));
    let mut unknown = Vec::new();
    let others = ["README.md", "notebooks/README.md", "labs/cluster/ARCHIVE.md"];
    let jobs = ["labs/cluster/polaris.pbs", "labs/cluster/slurm.sbatch"];
    for page in pages.chain(others.into_iter().chain(jobs).map(String::from)) {
        // A command ends with its line, its code mark or its comment.
        let page_text = text(&page).replace('"', "");
        let page_text = page_text.replace("$bin/", "").replace("$SHARDLAB_BIN/", "");
        for command in page_text.lines().flat_map(|line| line.split(['`', '#', ';', '|'])) {
            let mut words =
                command.split_whitespace().skip_while(|word| !helps.contains_key(*word));
            let Some(help) = words.next().map(|lab| &helps[lab]) else {
                continue;
            };
            let words: Vec<&str> = words.collect();
            for (i, word) in words
                .iter()
                .enumerate()
                .filter(|(_, word)| word.len() > 2 && word.starts_with("--"))
            {
                let known = |name: &str| {
                    help.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|w| w == name)
                };
                let value = (*word == "--break").then(|| words.get(i + 1)).flatten();
                if !known(word) || value.is_some_and(|value| !known(value)) {
                    unknown.push(format!("{page}: {command}"));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "flags that no lab has:\n{}", unknown.join("\n"));
}

/// The version in Cargo.lock.
fn locked(package: &str) -> String {
    let lock = text("Cargo.lock");
    let rest = lock
        .split_once(&format!("\nname = \"{package}\"\nversion = \""))
        .expect(package)
        .1;
    rest.split('"').next().unwrap().to_string()
}

#[test]
fn every_lab_has_a_notebook_that_was_run() {
    let names: BTreeSet<String> = std::fs::read_dir(root().join("notebooks"))
        .unwrap()
        .filter_map(|entry| {
            Some(entry.unwrap().file_name().to_str()?.strip_suffix(".ipynb")?.to_string())
        })
        .collect();
    assert_eq!(
        names,
        labs().into_iter().map(|lab| lab.name).collect(),
        "notebooks, and the labs of labs.toml"
    );
    // A notebook that is begun names the same packages.
    let begun = text("labs/tools/workbook/dev/skeleton/notebooks/labNN.ipynb");
    for package in ["candle-core", "candle-nn"] {
        let pin = format!(":dep {package} = \\\"={}\\\"\\n", locked(package));
        assert!(begun.contains(&pin), "the skeleton's notebook names another {package}");
    }
    for Lab { name, title, .. } in labs() {
        let notebook: serde_json::Value =
            serde_json::from_str(&text(format!("notebooks/{name}.ipynb"))).expect(&name);
        let hash = notebook["metadata"]["shardlab"]["hash"].as_str().unwrap_or_default();
        assert_eq!(hash.len(), 64, "{name}: written by notebooks/run.py --write");
        let cells = notebook["cells"].as_array().expect(&name);
        let source = |cell: &serde_json::Value| -> String {
            cell["source"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|line| line.as_str())
                .collect()
        };
        assert!(
            source(&cells[0]).starts_with(&format!("# {name} · {title}\n")),
            "{name}: its title"
        );
        assert!(
            cells.iter().any(|cell| source(cell).starts_with("## Your turn\n")),
            "{name}: a cell for the reader"
        );
        let code: Vec<_> = cells.iter().filter(|cell| cell["cell_type"] == "code").collect();
        let first = source(code[0]);
        let library = ":dep shardlab = { path = \"..\" }\n";
        assert!(
            first.contains(library),
            "{name}: the library by its path, the same build for all notebooks"
        );
        let ours = first
            .lines()
            .filter(|line| line.starts_with(":dep") && line.contains("path = "))
            .count();
        assert!(ours <= 2, "{name} names {ours} crates of ours");
        for package in ["candle-core", "candle-nn"] {
            let pin = format!(":dep {package} = \"={}\"\n", locked(package));
            assert!(
                first.contains(&pin),
                "{name}: its first cell names Cargo.lock's {package}: {pin}"
            );
        }
        for (number, cell) in (1..).zip(&code) {
            assert_eq!(
                cell["execution_count"],
                number,
                "{name}: cells are run in order, from the first: {}",
                source(cell)
            );
            let outputs = cell["outputs"].as_array().unwrap();
            assert!(
                outputs.iter().all(|output| output["output_type"] != "error"),
                "{name}: {}",
                source(cell)
            );
        }
        let outputs = || code.iter().flat_map(|cell| cell["outputs"].as_array().unwrap());
        assert!(
            outputs().any(|output| output["data"]["text/html"].is_array()),
            "{name}: carries a picture"
        );
        assert!(outputs().all(|output| output["data"]["text/plain"][0] != "()"), "{name}: a ()");
        assert_eq!(code[0]["metadata"]["jupyter"]["source_hidden"], true, "{name}: its plumbing");
        for cell in &code {
            let streams = cell["outputs"].as_array().unwrap().windows(2);
            let mut same = streams
                .filter(|two| two[0]["name"].is_string() && two[0]["name"] == two[1]["name"]);
            assert!(
                same.next().is_none(),
                "{name}: lines that are outputs of their own: {}",
                source(cell)
            );
        }
    }
}
