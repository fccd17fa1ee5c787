//! `--predict`: a lab asks what its run will show, runs, and says what the answer was right for.

use super::question::{Choice, Judged, Question};
use crate::reader::{Folders, now};
use crate::show::Screen;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use shardlab::error::BadInput;
use shardlab::{files, launch};
use std::collections::BTreeMap;
use std::fs::File;
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
/// Under a launcher, on a page, and without a terminal; if earlier predictions cannot be read.
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
    if let Ok(Folders { my, .. }) = Folders::find() {
        kept(&my)?;
    }
    Ok(())
}

/// Asks until there is an answer, with `label` beside the question. An empty line is none, and
/// `left_out` says what it does. None if the input ends.
///
/// # Errors
/// If the terminal cannot be read or written.
pub fn ask(
    screen: &Screen,
    [label, left_out]: [&str; 2],
    question: &Question,
    mut input: impl BufRead,
    mut out: impl Write,
) -> io::Result<Option<String>> {
    writeln!(out, "{}", question.in_rows(screen, label))?;
    let how = match &question.typed {
        Some(typed) => format!("a number{}", typed.unit),
        None => format!("a letter, a to {}", Choice::letter(question.choices.len() - 1)),
    };
    loop {
        write!(out, "           {how} > ")?;
        out.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let said = line.trim();
        if said.is_empty() || question.judged(said).is_some() {
            return Ok(Some(said.to_string()));
        }
        writeln!(out, "           That is not {how}. {left_out}")?;
    }
}

/// What the run has shown, beside what the reader said.
pub fn answered(screen: &Screen, question: &Question, said: &str) -> String {
    let Some(judged) = question.judged(said) else {
        return String::new();
    };
    let right = &question.right().text;
    let mark = screen.verdict(judged.is_right());
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
/// If the folder cannot be written, or what is kept there cannot be read: it would be lost.
pub fn keep(question: &Question, said: &str) -> Result<()> {
    let Ok(Folders { my, .. }) = Folders::find() else {
        bail!("there is no folder of yours for predictions: set SHARDLAB_MY");
    };
    let judged = question.judged(said);
    let right = judged.is_some_and(|judged| judged.is_right());
    // A letter alone would say nothing to whoever reads it later.
    let said = match judged {
        Some(Judged::Choice(choice)) if question.typed.is_none() => &choice.text,
        _ => said,
    };
    keep_in(&my, &question.lab, Predicted { said: said.to_string(), right, when: now() })
}

fn keep_in(my: &Path, lab: &str, predicted: Predicted) -> Result<()> {
    std::fs::create_dir_all(my)?;
    let _alone = alone_in(my);
    let mut all = kept(my)?;
    all.insert(lab.to_string(), predicted);
    files::replace(&my.join(FILE), serde_json::to_string_pretty(&all)?.as_bytes())?;
    Ok(())
}

/// The predictions in a reader's folder, by lab. Without a file there are none.
///
/// # Errors
/// If there is a file, and it cannot be read or is not what labs have written.
pub fn kept(my: &Path) -> Result<BTreeMap<String, Predicted>, BadInput> {
    let path = my.join(FILE);
    let text = match files::text(&path, files::LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text.map_err(|error| {
            let what = format!("cannot read {}: {error}", path.display());
            BadInput::new(what, "make it readable, or remove it to start a new record")
        })?,
    };
    serde_json::from_str(&text).map_err(|error| {
        let what = format!("{} is not what labs wrote: {error}", path.display());
        BadInput::new(what, "mend that entry, or remove the file to start a new record")
    })
}

/// Keeps other labs and the workbook from changing a record between this program's reading and
/// writing it, until the value is dropped. Where a file system has no locks, nobody is kept.
#[must_use = "the folder is locked until this is dropped"]
pub fn alone_in(my: &Path) -> Option<File> {
    let folder = File::open(my).ok()?;
    folder.lock().ok()?;
    Some(folder)
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
        let said = ask(&Screen::plain(), ["predict", ""], &question(), lines.as_bytes(), &mut out)
            .unwrap();
        (said, String::from_utf8(out).unwrap())
    }

    #[test]
    fn it_asks_until_there_is_an_answer_or_none() {
        let (said, shown) = typed("what?\nc\nA\n");
        assert_eq!(said.as_deref(), Some("A"));
        assert_eq!(shown.matches("That is not a letter, a to b.").count(), 2, "{shown}");
        assert_eq!((typed("\n").0.as_deref(), typed("").0), (Some(""), None));
    }

    /// A file that cannot be read wholly is refused, and stays as it is.
    #[test]
    fn what_is_kept_is_never_lost() {
        let dir = tempfile::tempdir().unwrap();
        let my = dir.path();
        assert!(kept(my).unwrap().is_empty());
        let good = r#"{"lab01": {"said": "a", "right": true, "when": 5}"#;
        for (rest, is_good) in [
            (r#"}"#, true),
            (r#", "lab05": {"said": 7, "right": true, "when": 7}}"#, false),
            (r#", "lab05": {"said": "b", "right": "yes", "when": 7}}"#, false),
            (r#", "lab05": {"said": "b", "right": true, "when": -1}}"#, false),
            (r#", "lab05": {}}"#, false),
            (r#", "lab05": null}"#, false),
            ("", false),
        ] {
            let text = format!("{good}{rest}");
            std::fs::write(my.join(FILE), &text).unwrap();
            assert_eq!(kept(my).is_ok(), is_good, "{text}");
            let kept = keep_in(my, "lab02", Predicted { said: "c".into(), right: true, when: 9 });
            let now = std::fs::read_to_string(my.join(FILE)).unwrap();
            assert_eq!(kept.is_ok(), is_good, "{text}");
            assert!(is_good && now.contains("lab01") && now.contains("lab02") || now == text);
        }
        for bytes in [&b""[..], b"[]", b"{\"lab01\xff\": 1}"] {
            std::fs::write(my.join(FILE), bytes).unwrap();
            let error = kept(my).unwrap_err();
            assert!(error.help.contains("remove"), "{error}");
        }
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
