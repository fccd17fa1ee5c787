//! The question that each lab's page asks before its run, and those inside pages. The lab computes
//! its answer, and what other answers would have been right for; `book/run/predict.js` asks.

use super::colours::escaped;
use super::places::filled;
use anyhow::{Context, Result};
use itertools::iproduct;
use kit::Question;
use kit::question::Typed;
use serde_json::{Value, json};
use std::fmt::Write;

/// Where a page has its question.
const PLACE: &str = "<section class=\"predict\">";

/// Where a page has another one: this, the lab, and the question's place among the lab's.
const INSIDE: &str = "<section class=\"question\">";

/// What readers may type, and the number that each is: the pages' script must read the same.
pub(super) fn typed_numbers() -> Vec<Value> {
    let words = [
        "", " ", "-", ".", ",", "ten", "nan", "inf", "1e3", "1E-3", "+5", " 7 ", "1e", "e3",
        "1e400", "0x10", "0b1", "1_000", "1 000", "5%", "5 %", "5%%", "%", "%5", "5 MB", "5MB",
        "5mb", "1,5 MB", "1.234,5%", "--1",
    ];
    let mut all: Vec<String> = words.map(str::to_owned).into();
    all.push("-infinity".into());
    let wholes = ["", "0", "1", "12", "-2", "1234", "1.234", "1,234", "1.234.567", "1,234,567"];
    let rests = ["", "5", "05", "500", "5000", "500,5", "500.5", "5e-1"];
    let written = iproduct!(wholes, [".", ","], rests);
    all.extend(written.map(|(whole, point, rest)| format!("{whole}{point}{rest}")));
    let read = |(unit, said): (&str, &String)| {
        let typed = Typed { unit: unit.into(), within: 0.0 };
        json!({ "unit": unit, "said": said, "read": typed.read(said) })
    };
    iproduct!(["", "%", " MB"], &all).map(read).collect()
}

/// The page with its questions, where it has places for some.
///
/// # Errors
/// If the page is no lab's, or a lab has no such question.
pub fn with_questions(file: &str, page: &str) -> Result<String> {
    let page = filled(page, PLACE, |_| {
        let question = named(&format!("{} 1", file.trim_end_matches(".md")))?;
        let head = format!("class=\"predict\" aria-label=\"{}: a prediction\"", question.lab);
        html(&head, "Predict, then run.", &question)
    })?;
    filled(&page, INSIDE, |name| {
        let head = format!("class=\"question\" data-question=\"{name}\" aria-label=\"A question\"");
        html(&head, "Before you read on.", &named(name)?)
    })
}

/// The question with a name such as `lab03 2`: the lab's second.
fn named(name: &str) -> Result<Question> {
    let find = || {
        let (lab, place) = name.split_once(' ')?;
        let lab = labs::ALL.iter().find(|entry| entry.name == lab)?;
        lab.questions.get(place.parse::<usize>().ok()?.checked_sub(1)?)
    };
    find().with_context(|| format!("no lab asks {name}"))?()
}

/// A question that can be read without a script: the answer is in a box that opens.
fn html(head: &str, begins: &str, question: &Question) -> Result<String> {
    let Question { asks, choices, why, typed, .. } = question;
    // A closing tag in a string would end the script.
    let json = serde_json::to_string(question)?.replace("</", "<\\/");
    let mut out = format!(
        "<section {head}>\n<script type=\"application/json\">{json}</script>\n<p><b>{begins}</b> {}</p>\n",
        escaped(asks)
    );
    if typed.is_none() {
        let items: String = choices
            .iter()
            .map(|choice| format!("<li>{}</li>", escaped(&choice.text)))
            .collect();
        let _ = writeln!(out, "<ol type=\"a\">{items}</ol>");
    }
    let right = &choices[question.answer()];
    let _ = writeln!(
        out,
        "<details><summary>The answer</summary><p><b>{}.</b> {}</p>",
        escaped(&right.text),
        escaped(why)
    );
    for choice in choices.iter().filter(|choice| !choice.mistake.is_empty()) {
        let _ =
            writeln!(out, "<p><i>{}</i>: {}</p>", escaped(&choice.text), escaped(&choice.mistake));
    }
    if let Some(Typed { within, .. }) = typed.as_ref().filter(|typed| typed.within > 0.0) {
        let _ = writeln!(out, "<p>Within {}% it is the same number.</p>", 100.0 * within);
    }
    Ok(out + "</details>\n</section>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs::read_to_string;
    use std::path::Path;

    /// The questions before a run of all labs, in order.
    fn predictions() -> Vec<Question> {
        labs::ALL.iter().map(|lab| (lab.questions[0])().unwrap()).collect()
    }

    #[test]
    fn every_lab_asks_one_question_with_one_right_answer() {
        let all = predictions();
        let asking: Vec<&str> = all.iter().map(|question| question.lab.as_str()).collect();
        let expected: Vec<&str> = labs::ALL.iter().map(|lab| lab.name).collect();
        assert_eq!(asking, expected);
        for question in &all {
            let right = question.choices.iter().filter(|choice| choice.mistake.is_empty());
            assert_eq!(right.count(), 1, "{question:#?}");
            assert!(question.choices.len() >= 3, "{question:#?}");
            assert!(question.typed.is_some() || question.choices.len() <= 5, "{question:#?}");
            assert!(question.asks.ends_with('?') && !question.shown.is_empty(), "{question:#?}");
            for (i, one) in question.choices.iter().enumerate() {
                let said = match (&question.typed, one.value) {
                    (Some(_), Some(value)) => value.to_string(),
                    _ => kit::question::Choice::letter(i),
                };
                let judged = question.judged(&said).unwrap();
                assert_eq!(judged.is_right(), one.mistake.is_empty(), "{said}: {question:#?}");
                assert!(one.mistake.is_empty() || judged.mistake() == one.mistake, "{said}");
            }
        }
    }

    /// Of all questions one choice is right, and each wrong one has a sentence of its own.
    #[test]
    fn choices_are_told_apart() {
        for question in labs::questions().unwrap() {
            let choices = &question.choices;
            assert!(choices.len() >= 3, "{question:#?}");
            let wrong = choices.iter().filter(|choice| !choice.mistake.is_empty());
            assert_eq!(wrong.count() + 1, choices.len(), "{question:#?}");
            let texts: BTreeSet<&String> = choices.iter().map(|choice| &choice.text).collect();
            let mistakes: BTreeSet<&String> =
                choices.iter().map(|choice| &choice.mistake).collect();
            assert_eq!([texts.len(), mistakes.len()], [choices.len(); 2], "{question:#?}");
        }
    }

    /// Each question stands on its page: the first before the run, the others where they say.
    #[test]
    fn every_question_has_a_place() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../book/src");
        for lab in labs::ALL {
            for (at, ask) in lab.questions.iter().enumerate() {
                let page = format!("{}.md", ask().unwrap().page);
                let text = read_to_string(pages.join(&page)).unwrap();
                let place = match at {
                    0 => format!("\n{PLACE}</section>\n"),
                    _ => format!("\n{INSIDE}{} {}</section>\n", lab.name, at + 1),
                };
                assert_eq!(text.matches(&place).count(), 1, "{} {} on {page}", lab.name, at + 1);
            }
        }
        assert!(
            with_questions("lab03.md", "<section class=\"question\">lab03 9</section>").is_err()
        );
        let page = "<section class=\"question\">lab03 2</section>\nafter\n";
        let html = with_questions("overlap.md", page).unwrap();
        assert!(
            html.contains("data-question=\"lab03 2\"") && html.ends_with("after\n"),
            "{html}"
        );
    }

    #[test]
    fn answers_are_those_of_paper_and_pencil() {
        let all = predictions();
        let right: Vec<&str> = all
            .iter()
            .map(|question| question.choices[question.answer()].text.as_str())
            .collect();
        assert_eq!(right[0], "1"); // three ranks to the left of rank 0, in a ring of four
        assert_eq!(right[1], "recursive-doubling"); // two rounds, where others take four or six
        assert_eq!(right[2], "3.35 MB"); // 2 (2-1)/2 x 4 x 837,632
        assert_eq!(right[3], "they have the same bits");
        assert_eq!(right[4], "1.5 times"); // three passes over two
        assert_eq!(right[6], "27.3%"); // 3 of 3 + 8
        assert_eq!(right[7], "rank 3"); // 1 + 2 tensor ranks
        assert_eq!(right[8], "micro-batch 257"); // 4 x 64 + 1
        assert_eq!(right[10], "PP 4");
    }
}
