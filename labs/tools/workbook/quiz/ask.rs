//! How the quiz is asked: all of it on paper, or question by question in a terminal.

use super::{Choice, Question};
use kit::predict;
use kit::show::Screen;
use std::io::{self, BufRead, Write};

/// All questions on one page, with their answers or without.
pub fn list(screen: &Screen, questions: &[Question], answers: bool) -> String {
    let mut lines = Vec::new();
    for (i, question) in questions.iter().enumerate() {
        lines.push(question.in_rows(screen, &label(i, question)));
        if answers {
            lines.push(answer(screen, question));
        }
        lines.push(String::new());
    }
    lines.join("\n").trim_end().to_string()
}

/// A question's number and its lab.
fn label(i: usize, question: &Question) -> String {
    format!("{} {}", i + 1, question.lab)
}

/// The right answer and its reason.
fn answer(screen: &Screen, question: &Question) -> String {
    let place = question.answer();
    let right = &question.choices[place].text;
    screen.row("answer", &format!("{}, {right}. {}", Choice::letter(place), question.why))
}

/// Asks one question after the other, until `input` ends. The last lines say how many answers were
/// right, and which sections of the book to look at again.
///
/// # Errors
/// If the terminal cannot be read or written.
pub fn ask(
    screen: &Screen,
    questions: &[Question],
    mut input: impl BufRead,
    mut out: impl Write,
) -> io::Result<()> {
    let how = "An empty line leaves a question out, and Ctrl-D ends the quiz.";
    writeln!(out, "{}\n", screen.wrap(how, 0))?;
    let mut right = 0;
    let mut asked_for = 0;
    let mut again: Vec<[&str; 2]> = Vec::new();
    for (i, question) in questions.iter().enumerate() {
        let words = [&label(i, question), "An empty line leaves the question out."];
        let Some(said) = predict::ask(screen, words, question, &mut input, &mut out)? else {
            writeln!(out)?;
            break;
        };
        asked_for += 1;
        let judged = question.judged(&said);
        if judged.is_some_and(|judged| judged.is_right()) {
            right += 1;
            writeln!(out, "{}\n", screen.row(&screen.tick(), &question.why))?;
            continue;
        }
        if let Some(judged) = judged {
            writeln!(out, "{}", screen.row(&screen.cross(), judged.mistake()))?;
        }
        writeln!(out, "{}\n", answer(screen, question))?;
        let section = [question.page.as_str(), question.section.as_str()];
        if !again.contains(&section) {
            again.push(section);
        }
    }
    writeln!(out, "{}", screen.row("result", &format!("{right} of {asked_for} right")))?;
    for section in again {
        writeln!(out, "{}", screen.row("again", &section.join(screen.separator())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiz::questions;

    /// What a terminal shows if these lines are typed.
    fn typed(lines: &str) -> String {
        let mut out = Vec::new();
        let questions = questions().unwrap();
        ask(&Screen::plain(), &questions, lines.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_wrong_answer_is_told_its_mistake() {
        let all = questions().unwrap();
        let first = &all[0];
        let right = Choice::letter(first.answer());
        let other = (first.answer() + 1) % first.choices.len();
        let shown = typed(&format!("{right}\n"));
        assert!(shown.contains("1 of 1 right") && !shown.contains("  again "), "{shown}");
        let shown = typed(&format!("what?\nz\n{}\n", Choice::letter(other)));
        assert_eq!(shown.matches("That is not a letter, a to d.").count(), 2, "{shown}");
        assert!(words(&shown).contains(&first.choices[other].mistake), "{shown}");
        assert!(words(&shown).contains(&first.why), "{shown}");
        assert!(
            shown.ends_with("  result   0 of 1 right\n  again    lab00 · The idea\n"),
            "{shown}"
        );
    }

    #[test]
    fn a_quiz_can_be_answered_and_left() {
        let line = |question: &Question| format!("{}\n", Choice::letter(question.answer()));
        let all: String = questions().unwrap().iter().map(line).collect();
        assert!(typed(&all.to_uppercase()).ends_with("  result   16 of 16 right\n"));
        assert!(typed("").ends_with("  result   0 of 0 right\n"));
        let shown = typed("\n\n");
        assert!(shown.contains("0 of 2 right"), "{shown}");
        // A terminal goes to a new line where the reader does.
        let shown = shown.replace(" > ", "\n");
        let long = shown.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None);
    }

    #[test]
    fn a_list_has_answers_only_if_asked() {
        let questions = questions().unwrap();
        let screen = Screen { ascii: true, ..Screen::plain() };
        for answers in [false, true] {
            let text = list(&screen, &questions, answers);
            assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{text}");
            let told = text.lines().filter(|line| line.starts_with("  answer ")).count();
            assert_eq!(told, if answers { questions.len() } else { 0 });
            let text = words(&text);
            assert!(questions.iter().all(|question| text.contains(&question.why) == answers));
        }
    }
}
