//! Restarts: a job that fails is started again, and continues from its newest checkpoint.
//!
//! A rank that dies takes its job with it: the other ranks wait for it, and MPI cannot replace a
//! process. So the launcher starts all ranks again, as torchrun does. It saves nothing itself. The
//! job's own checkpoints decide what a restart loses.
//!
//! A job can end for three reasons that a restart does not remove: its input is bad, its reader has
//! closed the pipe, or a person or the scheduler has ended it. The last is known by the signal, but
//! not where that is SIGKILL: the system sends it as well, to a process for which no memory is
//! left.

use super::signals;
use kit::RESTART_COUNT;
use kit::show::{complain, counted};
use std::io;
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// Runs a command, and starts it again up to `most` times when it fails. Returns the exit code of
/// the last attempt. A signal to this process goes to the command, and is no failure. `joins`:
/// whether the launcher joins the ranks' exit codes.
pub fn run(command: &[String], most: usize, joins: bool) -> io::Result<i32> {
    signals::watch();
    let mut told = Vec::new();
    for count in 0.. {
        let start = Instant::now();
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).env(RESTART_COUNT, count.to_string());
        let code = exit_code(signals::run(&mut process)?);
        let took = format!("{:.1} s", start.elapsed().as_secs_f64());
        if code == 0 {
            if count > 0 {
                eprintln!(
                    "launch: the job is done, after {}",
                    counted(count, "restart", "restarts")
                );
            }
            return Ok(code);
        }
        let end = End::of(code, joins);
        let failed = format!("the job failed after {took} ({})", in_words(code, end));
        if let Some(why) = no_restart(end, signals::stopped(), joins) {
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
        if let Some(note) = unknown(end, joins).filter(|note| !told.contains(note)) {
            told.push(note);
            complain(note);
        }
    }
    unreachable!("the last attempt returns")
}

/// How a job ended, as far as its exit code says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// A signal ended it, or one of its ranks.
    Signal(i32),
    /// Our programs' exit code for bad input.
    BadInput,
    Failed,
}

impl End {
    /// Shells and Open MPI add 128 to a signal's number. MPICH and Intel MPI return the bare
    /// number, and join the codes of all ranks bit by bit: 1 and 2 are 3.
    fn of(code: i32, joins: bool) -> End {
        match code {
            2 => End::BadInput,
            3 if joins => End::BadInput,
            4..32 if joins => End::Signal(code),
            129.. => End::Signal(code - 128),
            _ => End::Failed,
        }
    }
}

/// Why a job that ended so would end so again, or should not begin again.
fn no_restart(end: End, stopped: bool, joins: bool) -> Option<&'static str> {
    match end {
        _ if stopped => Some("a signal stopped it"),
        // SIGINT has this number, too.
        End::BadInput if joins => Some("its input is bad, or Ctrl-C stopped its ranks"),
        End::BadInput => Some("its input is bad"),
        End::Signal(number) => {
            let signal = signals::NAMES.iter().find(|signal| signal.number == number)?;
            signal.no_restart
        }
        End::Failed => None,
    }
}

/// What cannot be known of an end: whether somebody meant it.
fn unknown(end: End, joins: bool) -> Option<&'static str> {
    match end {
        End::Signal(signals::KILL) => Some(
            "note: SIGKILL comes where no memory is left, and from who cancels a step of the job (scancel JOB.STEP); launch cannot tell which: Ctrl-C ends it, too",
        ),
        End::Signal(signals::SEGV) if joins => Some(
            "note: this mpiexec ends with 11 (SIGSEGV) also where somebody sent SIGINT or SIGQUIT to it alone; launch cannot tell which: Ctrl-C ends it, too",
        ),
        _ => None,
    }
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
fn in_words(code: i32, end: End) -> String {
    let End::Signal(number) = end else {
        return format!("exit code {code}");
    };
    match signals::NAMES.iter().find(|signal| signal.number == number) {
        Some(signal) => format!("exit code {code}: {}", signal.name),
        None => format!("exit code {code}"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// What people, schedulers and readers end is over; what the system ends may go on. Numbers of
    /// some signals differ between systems.
    #[test]
    fn what_somebody_ended_does_not_begin_again() {
        let again = |code, joins| no_restart(End::of(code, joins), false, joins).is_none();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            assert!(!again(128 + signal, false), "{signal}");
            // 1, 2 and 3 are a program's own codes.
            assert_eq!(again(signal, true), signal == libc::SIGHUP, "{signal}");
        }
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGXCPU] {
            assert!(!again(128 + signal, false) && !again(signal, true), "{signal}");
            assert!(in_words(128 + signal, End::Signal(signal)).contains(": SIG"), "{signal}");
        }
        for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS] {
            assert!(again(128 + signal, false) && again(signal, true), "{signal}");
        }
        assert!(again(1, false) && again(1, true) && again(3, false));
        assert!(!again(2, false) && !again(2, true) && !again(3, true));
        // Hydra's codes of what somebody may have meant.
        let unknown = |code, joins| unknown(End::of(code, joins), joins).is_some();
        assert!(unknown(11, true) && unknown(9, true) && unknown(137, false));
        assert!(!unknown(139, false) && !unknown(6, true));
        assert!(
            no_restart(End::of(2, true), false, true).is_some_and(|why| why.contains("Ctrl-C"))
        );
        assert_eq!(in_words(137, End::of(137, false)), "exit code 137: SIGKILL");
        assert_eq!(in_words(9, End::of(9, true)), "exit code 9: SIGKILL");
        assert_eq!(in_words(9, End::of(9, false)), "exit code 9");
    }
}
