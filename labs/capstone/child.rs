//! A life as a process of its own, so that it can be killed.
//!
//! The program starts itself with the hidden flag `--life`. The child prints a line of JSON for
//! each step, and one at its end. It never knows that it will be killed.

use crate::Job;
use crate::life::{self, Each, Life, Span};
use crate::parts::Versions;
use crate::step::Step;
use anyhow::{Context, Result, bail};
use kit::signals;
use serde::{Deserialize, Serialize};
use shardlab::notice::complain;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// What a child says.
#[derive(Serialize, Deserialize)]
enum Line {
    Step(Step),
    /// The life without its steps.
    End(Life),
}

/// A life in which no step ends for so long does not end by itself.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 45 });

/// Runs one life as a process, with these flags of the program. Life 1 would go on after its last
/// step: it is killed.
pub fn run(flags: &[String], versions: &Versions, span: &Span, each: Each) -> Life {
    let mut life = Life { folder: span.folder.clone(), ..Life::default() };
    let ran = start(flags, versions, span).and_then(|mut child| {
        let watched = watch(&mut child, span, &mut life, each);
        // SIGKILL: no rank can close a file or tell anyone. After a life that has ended, it does
        // nothing.
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
    let mut command = Command::new(std::env::current_exe()?);
    command.args(flags).args(["--life", &serde_json::to_string(&(versions, span))?]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // A job that is killed on a login node leaves no life behind.
    signals::end_with_parent(&mut command);
    command.spawn().context("the program could not start itself")
}

/// Reads a child's lines, until it ends or has taken the last step that it may take.
fn watch(child: &mut Child, span: &Span, life: &mut Life, each: Each) -> Result<()> {
    let out = child.stdout.take().context("the child has no output")?;
    let (send, lines) = sync_channel(16);
    // Reading blocks, so a thread reads. It ends with the child.
    std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines.take_while(|line| send.send(line.clone()).is_ok()).for_each(drop);
    });
    let mut since = Instant::now();
    loop {
        let rest = PATIENCE.checked_sub(since.elapsed());
        let line = match rest.map(|rest| lines.recv_timeout(rest)) {
            Some(Ok(line)) => line,
            Some(Err(RecvTimeoutError::Disconnected)) => bail!("the process ended by itself"),
            Some(Err(RecvTimeoutError::Timeout)) | None => {
                bail!("no step ended for {} seconds", PATIENCE.as_secs())
            }
        };
        match serde_json::from_str(&line) {
            Ok(Line::Step(step)) => {
                since = Instant::now();
                each(span.life, &step);
                life.killed = span.life == 1 && step.step >= span.until;
                life.steps.push(step);
                if life.killed {
                    return Ok(());
                }
            }
            Ok(Line::End(end)) => {
                (life.failed, life.text) = (end.failed, end.text);
                return Ok(());
            }
            // Something that a part prints: on stderr, because with --json stdout is one document.
            Err(_) if !line.is_empty() => complain(&line),
            Err(_) => {}
        }
    }
}

/// What the child does: the life, and its lines.
pub fn live(job: &Job, span: &Span) -> Result<()> {
    // A part may have begun a line.
    let say = |line: Line| println!("\n{}", serde_json::to_string(&line).unwrap_or_default());
    // Life 1 is to be killed: it goes on to the end, if nobody does it.
    let until = if span.life == 1 {
        job.plan.config.steps
    } else {
        span.until
    };
    let span = Span { until, ..span.clone() };
    let life = life::live(job, &span, &|_, step| say(Line::Step(step.clone())));
    say(Line::End(Life { steps: Vec::new(), ..life }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_that_takes_no_step_is_not_waited_for() {
        let ended = |script: &str| {
            let mut command = Command::new("sh");
            let command = command.args(["-c", script]).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let span = Span { life: 1, until: 3, folder: "".into() };
            let ended = watch(&mut child, &span, &mut Life::default(), &|_, _| ()).unwrap_err();
            child.kill().unwrap();
            child.wait().unwrap();
            ended.to_string()
        };
        assert_eq!(ended("echo of a part; exec sleep 60"), "no step ended for 1 seconds");
        assert_eq!(ended("echo of a part"), "the process ended by itself");
    }
}
