//! What the check of an exercise recognises: the sentences that it says about mistakes.
//!
//! `checks/NAME.mistakes.toml` has a part of each sentence, which tests compare. The whole sentence
//! is in the check, often with places that are filled when it runs: `{ranks} times too large`. So
//! the part is looked up there. Where a check recognises a mistake by recorded numbers, the list
//! has the whole sentence.

use super::desk::{Desk, RESTORE, files_of, read};
use kit::{Exercise, Mistake};
use regex::{Captures, Match, Regex};
use serde::Serialize;
use shardlab::error::BadInput;
use std::sync::LazyLock;

/// A claim, and what the check says where it does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recognised {
    pub claim: String,
    /// Each once. Where only a part of a sentence is known, it is written between dots.
    pub says: Vec<String>,
}

/// What the check of `exercise` recognises, in the order of its claims. Empty if there is no list.
///
/// # Errors
/// If a file cannot be read, or is no list of mistakes.
pub(super) fn recognised(desk: &Desk, exercise: &Exercise) -> Result<Vec<Recognised>, BadInput> {
    let check = desk.check(exercise);
    let list = check.with_extension("mistakes.toml");
    if !list.is_file() {
        return Ok(Vec::new());
    }
    let mistakes = Mistake::all(&read(&list)?).map_err(|error| {
        let what = format!("{} is no list of mistakes: {error}", list.display());
        BadInput::new(what, RESTORE)
    })?;
    let mut sentences = read(&check)?;
    // What the checks of all rungs share is in a folder of its own.
    let shared = desk.root.join("labs").join(exercise.lab()).join("judge");
    if shared.is_dir() {
        for file in files_of(&shared)? {
            sentences += &read(&file)?;
        }
    }
    Ok(by_claim(&mistakes, &sentences))
}

fn by_claim(mistakes: &[Mistake], check: &str) -> Vec<Recognised> {
    let sentences: Vec<Vec<Token>> = literals(check).iter().map(|text| tokens(text)).collect();
    let mut all: Vec<Recognised> = Vec::new();
    for Mistake { claim, says: part, shows } in mistakes {
        if part.is_empty() {
            continue;
        }
        let says = if shows.is_empty() {
            whole(part, &sentences)
        } else {
            part.clone()
        };
        let is_part = says == alone(part);
        let is_told = |known: &String| *known == says || is_part && known.contains(part);
        if all.iter().flat_map(|known| &known.says).any(is_told) {
            continue;
        }
        match all.iter_mut().find(|known| known.claim == *claim) {
            Some(known) => known.says.push(says),
            None => all.push(Recognised { claim: claim.clone(), says: vec![says] }),
        }
    }
    all
}

/// A comment, a quotation mark as a character, or a string literal of Rust.
static LITERAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"//.*|'"'|"((?:[^"\\]|\\(?s:.))*)""#).expect("a pattern"));

/// What a literal has after a backslash. A line goes on after the white space of the next one.
static ESCAPED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\\(\n[ \t\n]*|.)").expect("a pattern"));

/// The string literals of some Rust code, as the program sees them.
fn literals(code: &str) -> Vec<String> {
    let seen = |escaped: &Captures| match &escaped[1] {
        "n" => "\n".to_string(),
        other => other.trim_start().to_string(),
    };
    let literals = LITERAL.captures_iter(code).filter_map(|found| found.get(1));
    literals
        .map(|text| ESCAPED.replace_all(text.as_str(), seen).into_owned())
        .collect()
}

/// A piece of a sentence as the check has it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token {
    Letter(char),
    /// `{ranks}`: a place that is filled when the check runs.
    Filled,
}

/// A brace, which is written twice, a place that is filled, or any other character.
static TOKEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)\{\{|\}\}?|\{[^}]*\}?|.").expect("a pattern"));

fn tokens(text: &str) -> Vec<Token> {
    let token = |piece: Match| match piece.as_str() {
        "{{" => Some(Token::Letter('{')),
        place if place.starts_with('{') => Some(Token::Filled),
        letter => letter.chars().next().map(Token::Letter),
    };
    TOKEN.find_iter(text).filter_map(token).collect()
}

/// The sentence that has `part` in it: from the check if exactly one fits it best, and else the
/// part alone.
fn whole(part: &str, sentences: &[Vec<Token>]) -> String {
    let part: Vec<char> = part.chars().collect();
    let fits = sentences.iter().filter_map(|sentence| fit(&part, sentence));
    let mut best: Vec<(usize, String)> = fits.collect();
    let most = best.iter().map(|(letters, _)| *letters).max().unwrap_or(0);
    best.retain(|(letters, _)| *letters == most && 2 * most >= part.len());
    best.dedup();
    match &best[..] {
        [(_, text)] => text.trim().replace('\n', " "),
        _ => alone(&part.iter().collect::<String>()),
    }
}

/// A part whose sentence is not known.
fn alone(part: &str) -> String {
    format!("… {part} …")
}

/// How many characters of a part are a sentence's own, and do not fill a place of it; and the
/// sentence with its part, and dots in the other places that the check fills. None if it has no
/// such part.
fn fit(part: &[char], sentence: &[Token]) -> Option<(usize, String)> {
    // most[i][j]: the most letters of part[j..] that can be the sentence's own if it goes on at
    // i, and where it ends.
    let none: Option<(usize, usize)> = None;
    let mut most = vec![vec![none; part.len() + 1]; sentence.len() + 1];
    for i in (0..=sentence.len()).rev() {
        most[i][part.len()] = Some((0, i));
        for j in (0..part.len()).rev() {
            most[i][j] = match sentence.get(i) {
                None => None,
                Some(Token::Letter(c)) if *c == part[j] => {
                    most[i + 1][j + 1].map(|(letters, end)| (letters + 1, end))
                }
                Some(Token::Letter(_)) => None,
                Some(Token::Filled) => most[i + 1][j].max(most[i][j + 1]),
            };
        }
    }
    let starts = (0..sentence.len()).filter_map(|i| most[i][0].map(|found| (found, i)));
    let ((letters, end), start) = starts.max()?;
    let shown = |tokens: &[Token]| -> String {
        let letter = |token: &Token| match token {
            Token::Letter(c) => *c,
            Token::Filled => '…',
        };
        tokens.iter().map(letter).collect()
    };
    // If the part ends within a place that is filled, that place belongs to it.
    let last = part.last().map(|&c| Token::Letter(c));
    let is_within =
        sentence.get(end) == Some(&Token::Filled) && (end == 0 || Some(sentence[end - 1]) != last);
    let after = end + usize::from(is_within);
    let [before, after] = [&sentence[..start], &sentence[after..]].map(shown);
    let part: String = part.iter().collect();
    Some((letters, format!("{before}{part}{after}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check's code with four sentences in it.
    const CHECK: &str = r#"
        // "no sentence of the check"
        let quote = '"';
        evidence.means_if(a, format!("{ranks} times too large: a \"sum\" over the ranks, \
                                      not {{the}} mean."));
        evidence.means_if(b, format!("{micro} times too large: a sum over the micro-batches."));
        evidence.means_if(c, "Every rank kept its own.");
        evidence.means_if(d, format!("rank {from} waits for rank {to} for ever."));
        evidence.means(format!("{}: {}.", what, help));
    "#;

    fn told(part: &str) -> String {
        let sentences: Vec<Vec<Token>> = literals(CHECK).iter().map(|text| tokens(text)).collect();
        whole(part, &sentences)
    }

    #[test]
    fn a_part_becomes_its_sentence() {
        assert_eq!(told("kept its own"), "Every rank kept its own.");
        assert_eq!(
            told("4 times too large: a \"sum"),
            "4 times too large: a \"sum\" over the ranks, not {the} mean."
        );
        assert_eq!(told("over the micro"), "… times too large: a sum over the micro-batches.");
    }

    #[test]
    fn a_part_may_end_within_a_place() {
        assert_eq!(told("rank 0 waits for rank 2"), "rank 0 waits for rank 2 for ever.");
        assert_eq!(told("waits for rank "), "rank … waits for rank … for ever.");
    }

    #[test]
    fn what_fits_two_sentences_or_none_stays_a_part() {
        assert_eq!(told("times too large"), "… times too large …");
        // It could fill the places of the last sentence, which would say nothing.
        assert_eq!(told("tp does not divide: 3"), "… tp does not divide: 3 …");
        assert_eq!(told("no sentence of the check"), "… no sentence of the check …");
    }

    #[test]
    fn a_sentence_is_told_once_and_at_its_first_claim() {
        let mistake = |claim: &str, says: &str| Mistake {
            claim: claim.into(),
            says: says.into(),
            shows: Vec::new(),
        };
        let recorded = "What the list says whole.";
        let mistakes = [
            Mistake { shows: vec![4.0], ..mistake("one rank", recorded) },
            mistake("one rank", "kept its own"),
            mistake("two ranks", "over the micro"),
            mistake("two ranks", "Every rank kept"),
            mistake("two ranks", ""),
            // It fits two sentences, one of which is told already.
            mistake("two ranks", "times too large"),
            mistake("one rank", "over the ranks"),
        ];
        let told = by_claim(&mistakes, CHECK);
        assert_eq!(told[0].says[0], recorded);
        let told: Vec<(String, usize)> =
            told.into_iter().map(|known| (known.claim, known.says.len())).collect();
        assert_eq!(told, [("one rank".into(), 3), ("two ranks".into(), 1)]);
    }
}
