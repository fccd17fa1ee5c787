//! The quiz asks what all labs ask: all of it on paper, or question by question in a terminal.
//!
//! No answer is written down. A right one is what the library computes, and a wrong one what it
//! computes after a certain mistake, which the reader is told. Where the answer is a sentence, the
//! library has computed the symptom that it explains. The questions are
//! in each lab's folder, in `labNN/questions.rs`.

use kit::predict;
use kit::question::{Choice, Question};
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

/// The right answer, with its letter if it is chosen, and its reason.
fn answer(screen: &Screen, question: &Question) -> String {
    let letter = match &question.typed {
        Some(_) => String::new(),
        None => format!("{}, ", Choice::letter(question.answer())),
    };
    screen.row("answer", &format!("{letter}{}. {}", question.right().text, question.why))
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
    use std::collections::BTreeSet;
    use std::sync::LazyLock;

    static QUESTIONS: LazyLock<Vec<Question>> = LazyLock::new(|| labs::questions().unwrap());

    #[test]
    fn one_choice_is_right_and_all_differ() {
        for question in &*QUESTIONS {
            let right = question.choices.iter().filter(|choice| choice.mistake.is_empty());
            assert_eq!(right.count(), 1, "{question:#?}");
            assert!(question.choices.len() >= 3, "{question:#?}");
            let texts: BTreeSet<&str> = question.choices.iter().map(|c| c.text.as_str()).collect();
            assert_eq!(texts.len(), question.choices.len(), "{question:#?}");
            assert!(question.asks.ends_with(['?', ':']), "{question:#?}");
            let sentences = question.choices.iter().map(|choice| &choice.mistake);
            for sentence in sentences.chain([&question.why]).filter(|text| !text.is_empty()) {
                assert!(sentence.ends_with(['.', '?']), "{sentence}");
            }
        }
    }

    /// Readers who look something up again find the page and the section.
    #[test]
    fn every_section_is_in_the_book() {
        let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../book/src");
        for Question { page, section, .. } in &*QUESTIONS {
            let text = std::fs::read_to_string(book.join(format!("{page}.md"))).unwrap();
            let heading = |line: &str| line.trim_start_matches('#').trim() == section;
            let mut headings = text.lines().filter(|line| line.starts_with("##"));
            assert!(headings.any(heading), "{page}: {section}");
        }
    }

    /// The right choice does not always have the same place.
    #[test]
    fn the_place_of_a_choice_says_nothing() {
        let chosen = QUESTIONS.iter().filter(|question| question.typed.is_none());
        let places: BTreeSet<usize> = chosen.map(Question::answer).collect();
        assert!(places.len() >= 3, "{places:?}");
    }

    /// What a lab asks before its run is held beside the book's pages.
    #[test]
    fn answers_are_those_of_paper_and_pencil() {
        let mut later = QUESTIONS.iter().filter(|question| question.shown.is_empty());
        let mut next = || later.next().map(|question| question.right().text.as_str());
        // Ranks 7 and 8 are on the last node.
        assert_eq!(next(), Some("GPU 1"));
        // 2 (8-1)/8 of 1 GB.
        assert_eq!(next(), Some("1.75 GB"));
        // 10 - 0.1 x 2, 1 and 6: each rank's own gradient.
        assert_eq!(next(), Some("nobody has averaged the gradients"));
        // The link begins at 25 ms and carries 4 x 40 ms: until 185 ms, and the pass ends at 100.
        assert_eq!(next(), Some("85 ms"));
        // 32 x 0.5.
        assert_eq!(next(), Some("16 samples"));
        // 13 GB x (2 + 2 + 12/16).
        assert_eq!(next(), Some("61.8 GB"));
        // 5 times 3 x 2 x 128^3, over 6 x 128^2.
        assert_eq!(next(), Some("640 tokens"));
        // One for attention, and one for the MLP.
        assert_eq!(next(), Some("2"));
        // One for each rank from the first on.
        assert_eq!(next(), Some("4"));
        // 10 - 0.1 x 2 on stage 0 and 10 - 0.1 x 6 on stage 3, where one rank has 10 - 0.1 x 8.
        let sum = "the sum of the table's two gradients, before the optimizer's step";
        assert_eq!(next(), Some(sum));
        // 0.001 x 2^32 is 65 times the largest number of fp16, so it takes more than 6 halvings.
        assert_eq!(next(), Some("nothing"));
        // 0.0015 is less than half of 1/128.
        assert_eq!(next(), Some("1.000"));
        // Its root of 4.
        assert_eq!(next(), Some("4.0%"));
        // Numbers 400 to 799 of slices of 300.
        assert_eq!(next(), Some("ranks 1 and 2"));
        // 2 x 8 x 128 numbers in each of 32 layers, 2 bytes each, for 8192 tokens.
        assert_eq!(next(), Some("1.07 GB"));
        // 8 replicas hold 8 whole models.
        assert_eq!(next(), Some("8 replicas of the whole model: nobody has read the setting"));
        assert_eq!(next(), Some("8 tensor ranks on each node, and 8 pipeline stages"));
        // 1 / (1 + 3).
        assert_eq!(next(), Some("0.250"));
        // 36 / 8, and 512 / (2 x 1024 / 8).
        assert_eq!([next(), next()], [Some("4.50"), Some("2.00")]);
        assert_eq!(next(), None);
    }

    /// What a terminal shows if these lines are typed.
    fn typed(questions: &[Question], lines: &str) -> String {
        let mut out = Vec::new();
        ask(&Screen::plain(), questions, lines.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// How a choice is typed.
    fn typed_as(question: &Question, place: usize) -> String {
        match question.choices[place].value.filter(|_| question.typed.is_some()) {
            Some(value) => value.to_string(),
            None => Choice::letter(place),
        }
    }

    #[test]
    fn a_wrong_answer_is_told_its_mistake() {
        for first in &QUESTIONS[..2] {
            let alone = std::slice::from_ref(first);
            let right = typed_as(first, first.answer());
            let other = (first.answer() + 1) % first.choices.len();
            let shown = typed(alone, &format!("{right}\n"));
            assert!(shown.contains("1 of 1 right") && !shown.contains("  again "), "{shown}");
            let shown = typed(alone, &format!("what?\nz\n{}\n", typed_as(first, other)));
            assert_eq!(shown.matches("That is not a ").count(), 2, "{shown}");
            assert!(words(&shown).contains(&first.choices[other].mistake), "{shown}");
            assert!(words(&shown).contains(&first.why), "{shown}");
            let end = format!("  result   0 of 1 right\n  again    lab00 · {}\n", first.section);
            assert!(shown.ends_with(&end), "{shown}");
        }
    }

    #[test]
    fn a_quiz_can_be_answered_and_left() {
        let line = |question: &Question| format!("{}\n", typed_as(question, question.answer()));
        let all: String = QUESTIONS.iter().map(line).collect();
        let all_right = format!("  result   {0} of {0} right\n", QUESTIONS.len());
        assert!(typed(&QUESTIONS, &all.to_uppercase()).ends_with(&all_right));
        assert!(typed(&QUESTIONS, "").ends_with("  result   0 of 0 right\n"));
        let shown = typed(&QUESTIONS, "\n\n");
        assert!(shown.contains("0 of 2 right"), "{shown}");
        // A terminal goes to a new line where the reader does.
        let shown = shown.replace(" > ", "\n");
        let long = shown.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None);
    }

    #[test]
    fn a_list_has_answers_only_if_asked() {
        let screen = Screen { ascii: true, ..Screen::plain() };
        for answers in [false, true] {
            let text = list(&screen, &QUESTIONS, answers);
            assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{text}");
            let told = text.lines().filter(|line| line.starts_with("  answer ")).count();
            assert_eq!(told, if answers { QUESTIONS.len() } else { 0 });
            let text = words(&text);
            let why = |question: &Question| question.why.replace(" µs", " us");
            assert!(QUESTIONS.iter().all(|question| text.contains(&why(question)) == answers));
        }
    }
}
