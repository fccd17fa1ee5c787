//! What the book's pages could have better, as a matter of taste: a report, which fails nothing.
//!
//! How many words there are, minutes that are not up to date, letters of formulas with two meanings
//! or none, and words that are used before the page that explains them.

use super::heads;
use super::minutes::{page_text, stated};
use anyhow::{Context, Result};
use kit::Course;
use std::collections::BTreeSet;
use std::path::Path;

/// Words of all pages besides what each lab may add, and of a lab. A new page may add 1,000.
const MOST_WORDS: [usize; 2] = [31_600, 2_500];

/// Words of the pages for those who teach, which nobody else reads: 1,000 each, and the bars of
/// their tables, which are counted as words.
const MOST_WORDS_TO_TEACH: usize = 5_800;

const SUMMARY: &str = "SUMMARY.md";

/// What could be better, one thing a line. `root` is the checkout.
///
/// # Errors
/// If a page cannot be read.
pub fn taste(root: &Path) -> Result<Vec<String>> {
    let pages = pages(root)?;
    let mut found = words(&pages)?;
    for page in stated(root)?.iter().filter(|page| page.is != page.should) {
        found.push(format!("{}: cargo run --bin book -- minutes", page.path.display()));
    }
    found.extend(letters_without_meaning(&pages)?);
    found.extend(words_too_early(&pages)?);
    Ok(found)
}

/// A page of the book: its file, seen from the pages' folder, and its text.
struct Page {
    file: String,
    text: String,
}

/// The summary, and all pages in the book's order.
fn pages(root: &Path) -> Result<Vec<Page>> {
    let summary = page_text(root, SUMMARY)?;
    let mut files = heads::pages(&summary);
    files.insert(0, SUMMARY.into());
    let page = |file: String| Ok(Page { text: page_text(root, &file)?, file });
    files.into_iter().map(page).collect()
}

fn page<'a>(pages: &'a [Page], file: &str) -> Result<&'a Page> {
    let is_it = |page: &&Page| page.file == file;
    pages.iter().find(is_it).with_context(|| format!("the book has no page {file}"))
}

/// Words as `wc -w` counts them.
fn words(pages: &[Page]) -> Result<Vec<String>> {
    let mut all = 0;
    let mut to_teach = 0;
    for Page { file, text } in pages {
        let has = text.split_whitespace().count();
        *(if file.starts_with("teach/") {
            &mut to_teach
        } else {
            &mut all
        }) += has;
    }
    let [besides, of_a_lab] = MOST_WORDS;
    let most = besides + Course::read()?.labs.len() * of_a_lab;
    let mut found = Vec::new();
    if all > most {
        found.push(format!("the book has {all} words, more than {most}: say it once"));
    }
    if to_teach > MOST_WORDS_TO_TEACH {
        found.push(format!(
            "those who teach read {to_teach} words, more than {MOST_WORDS_TO_TEACH}"
        ));
    }
    Ok(found)
}

/// Letters of formulas that the page of symbols lacks, or has twice, or has for nothing.
fn letters_without_meaning(pages: &[Page]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for line in page(pages, "symbols.md")?.text.lines().filter(|line| line.starts_with("| $")) {
        let symbols = line.split('|').nth(1).unwrap_or_default();
        for letter in symbols.split('$').skip(1).step_by(2).flat_map(letters) {
            // Young's C stands beside another one.
            if !known.insert(letter.clone()) && letter != "C" {
                found.push(format!("symbols.md has {letter} twice"));
            }
        }
    }
    let mut used = BTreeSet::new();
    for Page { file, text } in pages.iter().filter(|page| page.file != "symbols.md") {
        for formula in formulas(text) {
            for letter in letters(&formula) {
                // Times have any index.
                let is_time = letter.starts_with("T_");
                if known.contains(&letter) || is_time {
                    used.insert(if is_time { "T".into() } else { letter });
                } else {
                    found.push(format!("{file}: symbols.md lacks {letter} of {}", formula.trim()));
                }
            }
        }
    }
    let unused = known.difference(&used).filter(|letter| letter.as_str() != "T");
    found.extend(unused.map(|letter| format!("symbols.md: no formula has {letter}")));
    Ok(found)
}

/// All formulas of a page.
fn formulas(page: &str) -> Vec<String> {
    let kept = without_code(page).replace("$$", "$");
    kept.split('$').skip(1).step_by(2).map(str::to_string).collect()
}

/// A page without fenced code and code in lines.
fn without_code(page: &str) -> String {
    let mut kept = String::new();
    let mut fenced = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            kept += &line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
            kept.push('\n');
        }
    }
    kept
}

/// The letters of a formula, each with its index if it has one: `n`, `T_step`, `\\Psi_r`, `m_i`.
fn letters(formula: &str) -> BTreeSet<String> {
    // Words in a formula are no letters, but for an index.
    let mut plain = formula.to_string();
    for word in ["\\text", "\\mathrm"] {
        while let Some(at) = plain.find(&format!("{word}{{")) {
            let end = plain[at..].find('}').expect("a word ends") + at;
            let inside = plain[at + word.len() + 1..end].to_string();
            let index = plain[..at].trim_end_matches('{').ends_with('_');
            let kept = if index {
                inside.replace(|c: char| !c.is_alphanumeric(), "")
            } else {
                " ".into()
            };
            plain = format!("{} {}{}", &plain[..at], if index { "@" } else { "" }, kept)
                + &plain[end + 1..];
        }
    }
    const GREEK: [&str; 10] = [
        "alpha",
        "beta",
        "Psi",
        "sigma",
        "eta",
        "varepsilon",
        "mu",
        "tau",
        "ell",
        "nabla",
    ];
    let mut found = BTreeSet::new();
    let chars: Vec<char> = plain.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let start = at;
        let mut letter = String::new();
        if chars[at] == '\\' {
            at += 1;
            while at < chars.len() && chars[at].is_alphabetic() {
                letter.push(chars[at]);
                at += 1;
            }
            if !GREEK.contains(&letter.as_str()) {
                at = at.max(start + 1);
                continue;
            }
            letter.insert(0, '\\');
        } else if chars[at] == '@' {
            // The index of a letter that was found before.
            while at < chars.len() && (chars[at] == '@' || chars[at].is_alphanumeric()) {
                at += 1;
            }
            continue;
        } else if chars[at].is_alphabetic() {
            letter.push(chars[at]);
            at += 1;
        } else {
            at += 1;
            continue;
        }
        // An index of one letter belongs to the name.
        let rest: String = chars[at..].iter().collect();
        let index = rest.strip_prefix("_{").or_else(|| rest.strip_prefix('_'));
        if let Some(index) = index {
            let first = index.chars().next().unwrap_or(' ');
            let named: String = index.trim_start().strip_prefix('@').map_or_else(
                || {
                    if first.is_alphanumeric() {
                        first.to_string()
                    } else {
                        String::new()
                    }
                },
                |word| word.chars().take_while(|c| c.is_alphanumeric()).collect(),
            );
            if !named.is_empty() {
                letter = format!("{letter}_{named}");
            }
            at += rest.len() - index.len();
            if first.is_alphanumeric() {
                at += 1;
            }
        }
        found.insert(letter);
    }
    found
}

/// Words of the glossary that an earlier page uses than the one that explains them, and whether the
/// glossary is in order.
fn words_too_early(pages: &[Page]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut words = Vec::new();
    for line in page(pages, "glossary.md")?.text.lines().filter(|line| line.starts_with("- **")) {
        let word = line.split("**").nth(1).unwrap_or_default();
        words.push(word.to_lowercase());
        let explained = line.split("](").nth(1).and_then(|rest| rest.split(')').next());
        let explained = explained.unwrap_or_default();
        for Page { file, text } in pages.iter().take_while(|page| page.file != explained) {
            let mut text = prose(text);
            if file == "how-to-use.md" {
                // Its paths are chosen by people who know what the rows are about.
                let told = |line: &&str| !line.starts_with(['|', '#']);
                text = text.lines().filter(told).collect::<Vec<_>>().join("\n");
            }
            let lines = uses(&text, word).into_iter();
            found.extend(
                lines.map(|line| format!("{file} uses {word:?} before {explained}: {line}")),
            );
        }
    }
    if !words.is_sorted() {
        found.push("glossary.md is not in alphabetical order".into());
    }
    Ok(found)
}

/// A page's prose: without fenced code, code in lines, pictures and link targets.
pub fn prose(page: &str) -> String {
    let mut out = String::new();
    for line in without_code(page).lines().filter(|line| !line.contains("{{#include")) {
        let mut rest = line;
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

/// Lines with a word, also in the plural.
fn uses<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let word = word.to_lowercase();
    let stands_in = |line: &&str| {
        let line = line.to_lowercase();
        line.match_indices(&word).any(|(at, _)| {
            let before =
                line[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '-');
            let after = line[at + word.len()..]
                .trim_start_matches('s')
                .chars()
                .next()
                .is_none_or(|c| !c.is_alphanumeric());
            before && after
        })
    };
    text.lines().filter(stands_in).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: &str, text: &str) -> Page {
        Page { file: file.into(), text: text.into() }
    }

    #[test]
    fn a_word_before_its_page_is_reported() {
        let glossary = "- **ring**: a way ([lab01](lab01.md))\n- **rank**: a number ([b](b.md))\n";
        let pages = [
            page("a.md", "A ring of `rank`s, and [rank](b.md).\n"),
            page("lab01.md", "A **ring**, and two ranks.\n"),
            page("b.md", "**rank**"),
            page("glossary.md", glossary),
        ];
        let found = words_too_early(&pages).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("a.md uses \"ring\" before lab01.md: A ring of"));
        assert!(found[1].starts_with("lab01.md uses \"rank\" before b.md"));
        assert!(found[2].contains("alphabetical"));
    }

    #[test]
    fn a_letter_without_a_meaning_is_reported() {
        let symbols = page("symbols.md", "| $n$ | ranks | |\n| $T$ | a time | |\n| $x$ | no | |\n");
        let text = page("a.md", "$n + T_\\text{step}$, `$k$` and $\\Psi_r$\n");
        let found = letters_without_meaning(&[symbols, text]).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.md: symbols.md lacks \\Psi_r of"), "{found:?}");
        assert_eq!(found[1], "symbols.md: no formula has x");
    }
}
