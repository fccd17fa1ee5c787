//! Restarts: a job that fails is started again, and continues from its newest checkpoint.
//!
//! A rank that dies takes its job with it: the other ranks wait for it, and MPI cannot replace a
//! process. So the launcher starts all ranks again, as torchrun does. It saves nothing itself. The
//! job's own checkpoints decide what a restart loses.
//!
//! A job can end for three reasons that a restart does not remove: its input is bad, its reader has
//! closed the pipe, or a signal has stopped it.

use super::signals;
use kit::RESTART_COUNT;
use kit::show::complain;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// Runs a command, and starts it again up to `most` times when it fails. Returns the exit code of
/// the last attempt. A signal to this process goes to the command, and is no failure.
pub fn run(command: &[String], most: usize) -> io::Result<i32> {
    signals::watch();
    for count in 0.. {
        let start = Instant::now();
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).env(RESTART_COUNT, count.to_string());
        let code = exit_code(signals::run(&mut process)?);
        let took = format!("{:.1} s", start.elapsed().as_secs_f64());
        if code == 0 {
            if count > 0 {
                eprintln!("launch: the job is done, after {}", restarts(count));
            }
            return Ok(code);
        }
        let failed = format!("the job failed after {took} ({})", in_words(code));
        if let Some(why) = no_restart(code, signals::stopped()) {
            eprintln!("launch: {failed}; no restart: {why}");
            return Ok(code);
        }
        if count == most {
            complain(&format!(
                "error: {failed}, and --max-restarts {most} allows no more\n\
                 help: read the job's own error above; the next start continues from the newest checkpoint, if there is one"
            ));
            return Ok(code);
        }
        eprintln!("launch: {failed}; restart {} of {most}", count + 1);
    }
    unreachable!("the last attempt returns")
}

/// Why a job that ended with this code would end so again.
fn no_restart(code: i32, stopped: bool) -> Option<&'static str> {
    match code {
        _ if stopped => Some("a signal stopped it"),
        130 => Some("Ctrl-C stopped it"),
        2 => Some("its input is bad"),
        141 => Some("the reader of its output is gone"),
        _ => None,
    }
}

fn restarts(count: usize) -> String {
    format!("{count} restart{}", if count == 1 { "" } else { "s" })
}

/// The exit code as shells give it: 128 and the signal's number, if a signal ended the process.
fn exit_code(status: ExitStatus) -> i32 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;
    status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1)
}

/// The code, with the signal that it means.
fn in_words(code: i32) -> String {
    // The numbers that are the same on every Unix.
    let name = match code - 128 {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return format!("exit code {code}"),
    };
    format!("exit code {code}: {name}")
}
