//! How the quiz is asked: all of it on paper, or question by question in a terminal.

use super::question::number;
use super::{Choice, Question};
use kit::show::Screen;
use std::io::{self, BufRead, Write};

/// All questions on one page, with their answers or without.
pub fn list(screen: &Screen, questions: &[Question], answers: bool) -> String {
    let mut lines = Vec::new();
    for (i, question) in questions.iter().enumerate() {
        lines.push(asked(screen, i, question));
        if question.typed && !answers {
            lines.push(screen.row("", "a number: ______"));
        }
        if answers {
            lines.push(answer(screen, question));
        }
        lines.push(String::new());
    }
    lines.join("\n").trim_end().to_string()
}

/// A question with its choices.
fn asked(screen: &Screen, i: usize, question: &Question) -> String {
    let mut lines = vec![screen.row(&format!("{} {}", i + 1, question.lab), &question.asks)];
    if !question.typed {
        for (i, choice) in question.choices.iter().enumerate() {
            lines.push(screen.row("", &format!("{}  {}", Choice::letter(i), choice.text)));
        }
    }
    lines.join("\n")
}

/// The right answer and its reason.
fn answer(screen: &Screen, question: &Question) -> String {
    let right = &question.right().text;
    let right = if question.typed {
        right.clone()
    } else {
        format!("{}, {right}", Choice::letter(question.answer()))
    };
    screen.row("answer", &format!("{right}. {}", question.why))
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
    writeln!(
        out,
        "{}\n",
        screen.wrap(
            "Answer with a letter or a number, as asked. An empty line leaves a question out, and Ctrl-D ends the quiz.",
            0
        )
    )?;
    let mut right = 0;
    let mut asked_for = 0;
    let mut again: Vec<[&str; 2]> = Vec::new();
    'all: for (i, question) in questions.iter().enumerate() {
        writeln!(out, "{}", asked(screen, i, question))?;
        let given = loop {
            write!(out, "           > ")?;
            out.flush()?;
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                writeln!(out)?;
                break 'all;
            }
            if line.trim().is_empty() {
                break None;
            }
            match question.chosen(&line) {
                Some(choice) => break Some(Some(choice)),
                // A number that nobody has thought of is an answer, too.
                None if question.typed && number(&line).is_some() => break Some(None),
                None if question.typed => writeln!(out, "           Type a number.")?,
                None => {
                    let last = Choice::letter(question.choices.len() - 1);
                    writeln!(out, "           Type a letter, a to {last}.")?;
                }
            }
        };
        asked_for += 1;
        let told = match given {
            None => "",
            Some(None) => "That is not the number.",
            Some(Some(choice)) => &choice.mistake,
        };
        if given.is_some() && told.is_empty() {
            right += 1;
            writeln!(out, "{}\n", screen.row(&screen.tick(), &question.why))?;
            continue;
        }
        if given.is_some() {
            writeln!(out, "{}", screen.row(&screen.cross(), told))?;
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
        assert_eq!(shown.matches("Type a letter, a to d.").count(), 2, "{shown}");
        assert!(words(&shown).contains(&first.choices[other].mistake), "{shown}");
        assert!(words(&shown).contains(&first.why), "{shown}");
        assert!(
            shown.ends_with("  result   0 of 1 right\n  again    lab00 · The idea\n"),
            "{shown}"
        );
    }

    #[test]
    fn a_quiz_can_be_answered_and_left() {
        let line = |question: &Question| match question.typed {
            true => format!("{}\n", question.right().text),
            false => format!("{}\n", Choice::letter(question.answer()).to_uppercase()),
        };
        let all: String = questions().unwrap().iter().map(line).collect();
        assert!(typed(&all).ends_with("  result   15 of 15 right\n"));
        assert!(typed("").ends_with("  result   0 of 0 right\n"));
        // Four questions are left out. Then there is no number, and a number that nobody has
        // thought of.
        let shown = typed(&format!("{}hello\n17\n", "\n".repeat(4)));
        assert!(
            shown.contains("Type a number.")
                && shown.contains("That is not the number.")
                && shown.contains("0 of 5 right"),
            "{shown}"
        );
        // A terminal goes to a new line where the reader does.
        let shown = shown.replace("           > ", "");
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
