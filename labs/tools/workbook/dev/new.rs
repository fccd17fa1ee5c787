//! Writes what a lab consists of, for a lab that is not there yet.
//!
//! The folder `skeleton` beside this file has the files of a lab where they stand in a checkout,
//! with `labNN`, `NN` and `TITLE` for its name, its number and its title. To give labs one more
//! file, put it there.

use super::update::{replace, update};
use super::{course, in_checkout, read};
use anyhow::Result;
use kit::show::Screen;
use shardlab::error::BadInput;
use std::path::Path;

const SKELETON: &str = "labs/tools/workbook/dev/skeleton";

/// Lists that have an entry of each lab: the skeleton's is put at their end.
const LISTS: [&str; 2] = ["labs/labs.toml", "book/outputs.toml"];

/// A title has as many characters at most: beside it a screen says how long the lab takes.
const LONGEST_TITLE: usize = 42;

/// Writes the lab's files and what follows from its entry.
pub(super) fn new(screen: &Screen, root: &Path, name: &str, title: &str) -> Result<()> {
    let next = format!("lab{:02}", course(root)?.labs.len());
    if name != next {
        let what = format!("{name} is not the lab that comes next");
        return Err(BadInput::new(what, format!("labs have no gaps: call it {next}")).into());
    }
    ensure_title(title)?;
    let pieces = skeleton(root, name, title)?;
    // Nothing is written unless all can be.
    let is_list = |file: &str| LISTS.contains(&file);
    let is_there = |(file, _): &&(String, String)| !is_list(file) && root.join(file).exists();
    if let Some((there, _)) = pieces.iter().find(is_there) {
        let what = format!("{there} is there already");
        return Err(BadInput::new(what, "move it away, if nobody needs it").into());
    }
    for (file, text) in &pieces {
        let before = if is_list(file) {
            read(root, file)?
        } else {
            String::new()
        };
        if let Some(folder) = root.join(file).parent() {
            std::fs::create_dir_all(folder)?;
        }
        replace(root, file, &(before + text))?;
        screen.say(screen.row("written", file));
    }
    screen.say("");
    update(screen, root)?;
    screen.say(format!("\n  What {name} makes untrue elsewhere: read what these find"));
    for line in to_read_again(title) {
        screen.say(format!("    {line}"));
    }
    screen.say(format!("\n  Next: cargo run --bin workbook -- dev check {name}"));
    Ok(())
}

/// Commands that find sentences which a new lab makes untrue: those with a word of its title, such
/// as "it has no experts", and those that count labs. No list of labs knows them.
fn to_read_again(title: &str) -> Vec<String> {
    const WHERE: &str = "-- '*.md' '*.cff' src labs/labs.toml";
    let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3);
    let mut lines: Vec<String> = words
        .map(|word| format!("git grep -nwi {} {WHERE}", word.to_lowercase()))
        .collect();
    lines.push(format!("git grep -nE '[a-z0-9]+ (labs|axes|ways)' {WHERE}"));
    lines
}

/// A title stands in Rust, TOML, JSON and Markdown.
fn ensure_title(title: &str) -> Result<(), BadInput> {
    let plain = |c: char| c.is_alphanumeric() || " ,'-".contains(c);
    let begins = title.chars().next().is_some_and(char::is_alphanumeric);
    if !begins || !title.chars().all(plain) || title.chars().count() > LONGEST_TITLE {
        let help = format!("give letters, digits, commas and spaces: {LONGEST_TITLE} at most");
        return Err(BadInput::new(format!("{title:?} cannot be a title"), help));
    }
    Ok(())
}

/// What a lab of this name and title consists of: files of the checkout, each with its text before
/// anyone has changed it.
pub(super) fn skeleton(
    root: &Path,
    name: &str,
    title: &str,
) -> Result<Vec<(String, String)>, BadInput> {
    let number = name.trim_start_matches("lab").trim_start_matches('0');
    let number = if number.is_empty() { "0" } else { number };
    let named = |text: &str| text.replace("labNN", name).replace("NN", number);
    let mut pieces = Vec::new();
    for file in in_checkout(root, SKELETON)? {
        let text = read(root, &file)?;
        let place = file.strip_prefix(SKELETON).unwrap_or(&file).trim_start_matches('/');
        pieces.push((named(place), named(&text).replace("TITLE", title)));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_denies_a_new_lab_is_searched_for() {
        let lines = to_read_again("Far apart, and back");
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("git grep -nwi apart -- "), "{lines:?}");
    }

    #[test]
    fn a_title_is_words() {
        for title in ["Experts", "A long, long sequence", "What 3D's for"] {
            ensure_title(title).unwrap();
        }
        for title in ["", " x", "a \"b\"", "a\nb", "a | b", &"long ".repeat(9)] {
            assert!(ensure_title(title).is_err(), "{title:?}");
        }
    }
}
