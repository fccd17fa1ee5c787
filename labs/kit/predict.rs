//! `--predict`: a lab asks what its run will show, runs, and says what the answer was right for.

use crate::question::{Choice, Judged, Question};
use crate::reader::{Folders, now};
use crate::show::Screen;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use shardlab::error::BadInput;
use shardlab::{files, launch};
use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

/// The file in the reader's folder.
const FILE: &str = "predictions.json";

/// What a reader said before a lab's run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicted {
    pub said: String,
    pub right: bool,
    /// Seconds since 1970.
    pub when: u64,
}

/// Refuses to ask where nobody could answer.
///
/// # Errors
/// Under a launcher, on a page, and without a terminal.
pub fn ensure_can_ask() -> Result<(), BadInput> {
    if cfg!(target_family = "wasm") {
        let help = "leave it out: the page asks before its first run";
        return Err(BadInput::new("--predict asks in a terminal", help));
    }
    if launch::is_mpi() {
        let help = "start the lab once without mpirun, or leave --predict out";
        return Err(BadInput::new(
            "--predict asks one reader, and a launcher has many ranks",
            help,
        ));
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let help = "start the lab in a terminal, or leave --predict out";
        return Err(BadInput::new("--predict needs a terminal, in which a reader answers", help));
    }
    Ok(())
}

/// Asks until there is an answer. None if the reader gives none.
///
/// # Errors
/// If the terminal cannot be read or written.
pub fn ask(
    screen: &Screen,
    question: &Question,
    mut input: impl BufRead,
    mut out: impl Write,
) -> io::Result<Option<String>> {
    writeln!(out, "{}", question.in_rows(screen, "predict"))?;
    let how = match &question.typed {
        Some(typed) => format!("a number{}", typed.unit),
        None => format!("a letter, a to {}", Choice::letter(question.choices.len() - 1)),
    };
    loop {
        write!(out, "           {how} > ")?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 || line.trim().is_empty() {
            writeln!(out)?;
            return Ok(None);
        }
        if question.judged(line.trim()).is_some() {
            writeln!(out)?;
            return Ok(Some(line.trim().to_string()));
        }
        writeln!(out, "           That is not {how}. An empty line runs without a prediction.")?;
    }
}

/// What the run has shown, beside what the reader said.
pub fn answered(screen: &Screen, question: &Question, said: &str) -> String {
    let Some(judged) = question.judged(said) else {
        return String::new();
    };
    let right = &question.choices[question.answer()].text;
    let mark = if judged.is_right() {
        screen.tick()
    } else {
        screen.cross()
    };
    let mut lines = vec![String::new(), screen.row("predicted", &format!("{said} {mark}"))];
    if !judged.is_right() {
        lines.push(screen.row("", judged.mistake()));
    }
    lines.push(screen.row("it is", &format!("{right}. {}", question.why)));
    lines.join("\n")
}

/// Keeps what the reader said, in the reader's folder.
///
/// # Errors
/// If the folder cannot be written.
pub fn keep(question: &Question, said: &str) -> Result<()> {
    let Ok(Folders { my, .. }) = Folders::find() else {
        bail!("there is no folder of yours for predictions: set SHARDLAB_MY");
    };
    let mut all = kept(&my);
    let judged = question.judged(said);
    let right = judged.is_some_and(|judged| judged.is_right());
    // A letter alone would say nothing to whoever reads it later.
    let said = match judged {
        Some(Judged::Choice(choice)) if question.typed.is_none() => &choice.text,
        _ => said,
    };
    all.insert(question.lab.clone(), Predicted { said: said.to_string(), right, when: now() });
    std::fs::create_dir_all(&my)?;
    files::replace(&my.join(FILE), serde_json::to_string_pretty(&all)?.as_bytes())?;
    Ok(())
}

/// The predictions in a reader's folder, by lab. A file that is none is as good as none.
pub fn kept(my: &Path) -> BTreeMap<String, Predicted> {
    files::text(&my.join(FILE), files::LIST)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        let wrong = [("b, a thing".to_string(), "That is another.")];
        Question::words(["lab00", "The idea"], "which?", "a thing", &wrong, "Because.")
    }

    fn typed(lines: &str) -> (Option<String>, String) {
        let mut out = Vec::new();
        let said = ask(&Screen::plain(), &question(), lines.as_bytes(), &mut out).unwrap();
        (said, String::from_utf8(out).unwrap())
    }

    #[test]
    fn it_asks_until_there_is_an_answer_or_none() {
        let (said, shown) = typed("what?\nc\nA\n");
        assert_eq!(said.as_deref(), Some("A"));
        assert_eq!(shown.matches("That is not a letter, a to b.").count(), 2, "{shown}");
        assert_eq!((typed("\n").0, typed("").0), (None, None));
    }

    #[test]
    fn a_wrong_answer_is_told_its_mistake_and_a_right_one_why() {
        let screen = Screen::plain();
        let right = answered(&screen, &question(), "a");
        assert!(right.contains("a thing. Because.") && !right.contains("another"), "{right}");
        let wrong = answered(&screen, &question(), "b");
        assert!(wrong.contains("That is another.") && wrong.contains("Because."), "{wrong}");
    }
}
