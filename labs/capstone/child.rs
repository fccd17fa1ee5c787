//! A life as a process of its own, so that it can be killed.
//!
//! The program starts itself with the hidden flag `--life`. The child prints a line for each step, and what is left at its end. It
//! never knows that it will be killed.

use crate::Job;
use crate::life::{self, Each, Life, Span};
use crate::parts::{Part, Versions, Whose};
use crate::step::Step;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Before each line of a child that is for its parent.
const STEP: &str = "@step ";
const LIFE: &str = "@life ";

/// A life that is silent for so long does not end by itself.
const PATIENCE: Duration = Duration::from_secs(45);

/// Runs one life as a process. Life 1 would go on after its last step: it is killed.
pub fn run(flags: &[String], versions: &Versions, span: &Span, each: Each) -> Life {
    let mut life = Life {
        folder: span.folder.clone(),
        ..Life::default()
    };
    let ran = start(flags, versions, span).and_then(|mut child| {
        let watched = watch(&mut child, span, &mut life, each);
        // SIGKILL: no rank can close a file or tell anyone. After a life that has ended, it does nothing.
        child.kill().ok();
        child.wait()?;
        watched
    });
    if let Err(error) = ran {
        life.failed.get_or_insert(format!("{error:#}"));
    }
    life
}

fn start(flags: &[String], versions: &Versions, span: &Span) -> Result<Child> {
    let of = |whose: Whose| -> String {
        let all = Part::ALL.iter().zip(versions);
        let words = all.filter(|(_, found)| **found == whose);
        words
            .map(|(part, _)| part.word())
            .collect::<Vec<_>>()
            .join(",")
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(flags);
    command.args(["--life", &span.life.to_string()]);
    // It is told to go on: only its parent knows where it will end.
    command.args(["--until", &span.until.to_string()]);
    command.args(["--yours", &of(Whose::Yours), "--leave", &of(Whose::Without)]);
    command.arg("--out").arg(&span.folder);
    command.arg("--from").arg(&span.from);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
        .spawn()
        .context("the program could not start itself")
}

/// Reads a child's lines, until it ends or has taken the last step that it may take.
fn watch(child: &mut Child, span: &Span, life: &mut Life, each: Each) -> Result<()> {
    let out = child.stdout.take().context("the child has no output")?;
    let (lines, arriving) = channel();
    // Reading blocks, so a thread reads. It ends with the child.
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        let line = match arriving.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                anyhow::bail!("no step ended for {} seconds", PATIENCE.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                anyhow::bail!("the process ended by itself: {status}")
            }
        };
        if let Some(step) = line.strip_prefix(STEP) {
            let step: Step = serde_json::from_str(step)?;
            let number = step.step;
            each(span.life, &step);
            life.steps.push(step);
            if span.life == 1 && number >= span.until {
                life.killed = true;
                return Ok(());
            }
        } else if let Some(end) = line.strip_prefix(LIFE) {
            let Life { failed, end, .. } = serde_json::from_str(end)?;
            (life.failed, life.end) = (failed, end);
            return Ok(());
        } else {
            println!("{line}"); // something that a part prints
        }
    }
}

/// What the child does: the life, and its lines.
pub fn live(job: &Job, span: &Span) -> Result<()> {
    let say = |before: &str, what: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{before}{what}")
            .and_then(|()| out.flush())
            .ok();
    };
    let each = |_, step: &Step| {
        if let Ok(line) = serde_json::to_string(step) {
            say(STEP, line);
        }
    };
    // Life 1 is to be killed: it goes on to the end, if nobody does it.
    let until = if span.life == 1 {
        job.plan.steps
    } else {
        span.until
    };
    let span = Span {
        until,
        ..span.clone()
    };
    let life = life::live(job, &span, &each);
    let rest = Life {
        steps: Vec::new(),
        ..life
    };
    say(LIFE, serde_json::to_string(&rest)?);
    Ok(())
}
