//! The question that each lab's page asks before its run. The lab computes its answer, and what
//! other answers would have been right for; `book/run/predict.js` asks.

use super::colours::escaped;
use anyhow::{Context, Result};
use kit::Question;
use kit::question::Typed;
use serde_json::{Value, json};
use std::fmt::Write;

/// Where a page has its question.
const PLACE: &str = "<section class=\"predict\"></section>\n";

/// The questions of all labs, in order.
///
/// # Errors
/// If a lab cannot compute its answer.
pub fn predictions() -> Result<Vec<Question>> {
    labs::ALL.iter().map(|lab| (lab.questions[0])()).collect()
}

/// What readers may type, and the number that each is: the pages' script must read the same.
pub fn typed_numbers() -> Vec<Value> {
    let mut all: Vec<String> = [
        "",
        " ",
        "-",
        ".",
        ",",
        "ten",
        "nan",
        "inf",
        "-infinity",
        "1e3",
        "1E-3",
        "+5",
        " 7 ",
        "1e",
        "e3",
        "1e400",
        "0x10",
        "0b1",
        "1_000",
        "1 000",
        "5%",
        "5 %",
        "5%%",
        "%",
        "%5",
        "5 MB",
        "5MB",
        "5mb",
        "1,5 MB",
        "1.234,5%",
        "--1",
    ]
    .map(str::to_owned)
    .into();
    for whole in ["", "0", "1", "12", "-2", "1234", "1.234", "1,234", "1.234.567", "1,234,567"] {
        for point in [".", ","] {
            for rest in ["", "5", "05", "500", "5000", "500,5", "500.5", "5e-1"] {
                all.push(format!("{whole}{point}{rest}"));
            }
        }
    }
    let mut rows = Vec::new();
    for unit in ["", "%", " MB"] {
        let typed = Typed { unit: unit.into(), within: 0.0 };
        for said in &all {
            rows.push(json!({ "unit": unit, "said": said, "read": typed.read(said) }));
        }
    }
    rows
}

/// The page with its question, if it has a place for one.
///
/// # Errors
/// If the page is no lab's.
pub fn with_prediction(questions: &[Question], file: &str, page: &str) -> Result<String> {
    if !page.contains(PLACE) {
        return Ok(page.to_string());
    }
    let question = questions.iter().find(|question| format!("{}.md", question.page) == file);
    let question = question.with_context(|| format!("no lab asks on {file}"))?;
    Ok(page.replace(PLACE, &html(question)?))
}

/// A question that can be read without a script: the answer is in a box that opens.
fn html(question: &Question) -> Result<String> {
    let Question { lab, asks, choices, why, typed, .. } = question;
    // A closing tag in a string would end the script.
    let json = serde_json::to_string(question)?.replace("</", "<\\/");
    let mut out = format!(
        "<section class=\"predict\" aria-label=\"{lab}: a prediction\">\n<script type=\"application/json\">{json}</script>\n\
         <p><b>Predict, then run.</b> {}</p>\n",
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

    #[test]
    fn every_lab_asks_one_question_with_one_right_answer() {
        let all = predictions().unwrap();
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

    #[test]
    fn answers_are_those_of_paper_and_pencil() {
        let all = predictions().unwrap();
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
