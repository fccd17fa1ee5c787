//! Runs a program that may do anything: without input, with its output collected, and with limits
//! on time and memory.
//!
//! On Unix the program gets a process group of its own. Whatever is in this group is killed when
//! the program has ended, however it has ended, and when Ctrl-C ends the workbook. A process that
//! leaves the group, as daemons do, goes on.

use kit::signals;
use std::io::{PipeReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// The limits of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// CPU time of all its threads. An endless loop uses it up, however many programs share the
    /// machine.
    pub computing: Duration,
    /// Time without computing. A program that waits forever uses it up.
    pub idle: Duration,
    /// Bytes of memory.
    pub memory: u64,
}

/// Bytes that are kept of the beginning of a program's output.
const OUTPUT: u64 = 64 << 10;

/// How a program ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Exit(ExitStatus),
    /// It used up its CPU time.
    TooLong,
    /// It used up its time without computing.
    Stuck,
    TooLarge,
}

/// Runs a program until it ends or reaches a limit. Also returns its output.
pub(super) fn run(command: &mut Command, limits: Limits) -> std::io::Result<(End, String)> {
    let (words, out) = std::io::pipe()?;
    let child = start(command.stdout(out.try_clone()?).stderr(out))?;
    // Otherwise the command keeps the pipe's other end open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let words = collect(words);
    let end = until_the_end(child, limits)?;
    // A process that has left the group may keep the pipe open for longer.
    Ok((end, words.recv_timeout(Duration::from_secs(1)).unwrap_or_default()))
}

/// Runs a program until it ends or reaches a limit. It prints where this program prints.
pub(super) fn show(command: &mut Command, limits: Limits) -> std::io::Result<End> {
    until_the_end(start(command)?, limits)
}

fn start(command: &mut Command) -> std::io::Result<Child> {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    signals::end_with_parent(command);
    let child = command.stdin(Stdio::null()).spawn()?;
    #[cfg(unix)]
    group::end_with_signals(&child);
    Ok(child)
}

/// Waits for a program, and ends what it has started.
fn until_the_end(mut child: Child, limits: Limits) -> std::io::Result<End> {
    let end = wait(&mut child, limits);
    #[cfg(unix)]
    group::end(child.id() as i32);
    // It may have ended meanwhile, so an error does not matter.
    child.kill().ok();
    child.wait()?;
    end
}

#[cfg(unix)]
mod group {
    use kit::signals;
    use std::process::Child;
    use std::sync::Once;
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    /// The group of the program that runs now. 0: none runs.
    static RUNNING: AtomicI32 = AtomicI32::new(0);

    /// A signal that ends this program ends the group of `child` first: Ctrl-C does not reach it.
    pub fn end_with_signals(child: &Child) {
        static ONCE: Once = Once::new();
        RUNNING.store(child.id() as i32, SeqCst);
        // SAFETY: `end_running` reads an atomic and sends a signal.
        ONCE.call_once(|| unsafe { signals::before_the_end(end_running) });
    }

    extern "C" fn end_running() {
        end(RUNNING.load(SeqCst));
    }

    /// Kills all processes of the group of the program that runs, or has just ended.
    pub fn end(group: i32) {
        RUNNING.store(0, SeqCst);
        if group > 0 {
            // SAFETY: this call touches no memory.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }
}

fn wait(child: &mut Child, limits: Limits) -> std::io::Result<End> {
    let pid = Pid::from_u32(child.id());
    let mut system = System::new().ok();
    let mut computed = None;
    let mut last_seen_computing = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exit(status));
        }
        let mut now = None;
        if let Some(system) = &mut system {
            let what = ProcessRefreshKind::nothing().with_memory().with_cpu();
            system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
            let process = system.process(pid);
            if process.is_some_and(|process| process.memory() > limits.memory) {
                return Ok(End::TooLarge);
            }
            now = process.map(|process| Duration::from_millis(process.accumulated_cpu_time()));
        }
        if now > Some(limits.computing) {
            return Ok(End::TooLong);
        }
        if now != computed {
            computed = now;
            last_seen_computing = Instant::now();
        }
        // Where the system reports no CPU time, all time counts as idle.
        if last_seen_computing.elapsed() > limits.idle {
            return Ok(End::Stuck);
        }
        thread::sleep(pause);
        // Most programs end quickly. For a long one, fewer looks are enough.
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}

/// Reads a pipe to its end and keeps the beginning, so a program that prints forever neither blocks
/// nor fills the memory.
fn collect(mut pipe: PipeReader) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        // An unreadable pipe counts as an empty one.
        pipe.by_ref().take(OUTPUT).read_to_end(&mut kept).ok();
        let more = std::io::copy(&mut pipe, &mut std::io::sink()).is_ok_and(|more| more > 0);
        let mut text = String::from_utf8_lossy(&kept).into_owned();
        if more {
            text += "\n(and so on)";
        }
        // If the program ended long ago, the receiver is gone.
        send.send(text).ok();
    });
    receive
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        computing: Duration::from_millis(300),
        idle: Duration::from_secs(60),
        memory: 200 << 20,
    };

    fn shell(script: &str, limits: Limits) -> (End, String) {
        run(Command::new("sh").args(["-c", script]), limits).unwrap()
    }

    #[test]
    fn what_ends_by_itself_is_told_with_its_words_in_order() {
        let script = "read line || echo one; echo two >&2; echo three; exit 3";
        let (end, words) = shell(script, LIMITS);
        assert!(matches!(end, End::Exit(status) if status.code() == Some(3)));
        assert_eq!(words, "one\ntwo\nthree\n");
    }

    #[test]
    fn endless_loops_end_by_the_time_they_compute_and_their_words_are_cut() {
        let (end, words) = shell("while :; do echo word; done", LIMITS);
        assert!(matches!(end, End::TooLong), "{end:?}");
        assert!(words.starts_with("word\nword\n") && words.ends_with("(and so on)"));
        assert!(words.len() < OUTPUT as usize + 20);
    }

    #[test]
    fn waiting_for_ever_ends_by_the_clock() {
        let short = Limits { idle: Duration::from_millis(200), ..LIMITS };
        let (end, _) = shell("exec sleep 1000", short);
        assert!(matches!(end, End::Stuck), "{end:?}");
    }

    #[test]
    fn what_grows_without_end_is_ended() {
        let limits = Limits {
            computing: Duration::from_secs(60),
            memory: 20 << 20,
            ..LIMITS
        };
        let (end, _) = shell("x=0123456789; while :; do x=$x$x; done", limits);
        assert!(matches!(end, End::TooLarge), "{end:?}");
    }

    /// Whether a process runs, and is not merely a zombie that nobody has waited for.
    #[cfg(target_os = "linux")]
    fn runs(pid: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    }

    /// Children and grandchildren, in the background: however the program ends.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_program_has_started_ends_with_it() {
        for then in ["exit 3", "kill -9 $$", "while :; do :; done"] {
            let start = "sleep 1000 >&- 2>&- & echo $!; (sleep 1000 >&- 2>&- & echo $!);";
            let (_, words) = shell(&format!("{start} {then}"), LIMITS);
            let mut left = words.lines().filter(|pid| runs(pid));
            // A signal takes a moment.
            let begun = Instant::now();
            while left.clone().next().is_some() && begun.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!((words.lines().count(), left.next()), (2, None), "{then}");
        }
    }
}
