//! Runs a program that may do anything: without input, with its output collected, and with limits
//! on time and memory. What it has started ends with it.

use super::family::{self, Family};
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
    /// Time from start to end, whatever the program does.
    pub running: Duration,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes that are kept of the beginning of its output.
    pub output: u64,
}

/// How a program ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Exit(ExitStatus),
    /// It used up its CPU time.
    TooLong,
    /// It used up its time without much computing.
    Stuck,
    TooLarge,
}

/// Runs a program until it ends or reaches a limit. Also returns its output.
pub(super) fn run(command: &mut Command, limits: Limits) -> std::io::Result<(End, String)> {
    let (words, out) = std::io::pipe()?;
    let start = Instant::now();
    let family = Family::new();
    let mut child =
        family.start(command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out))?;
    // Otherwise the command keeps the pipe's other end open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let words = collect(words, limits.output);
    let end = until_the_end(family, &mut child, start, limits);
    // A process that could not be ended may keep the pipe open for longer.
    Ok((end?, words.recv_timeout(Duration::from_secs(1)).unwrap_or_default()))
}

/// Runs a program until it ends or reaches a limit. It prints where this program prints.
pub(super) fn show(command: &mut Command, limits: Limits) -> std::io::Result<End> {
    let start = Instant::now();
    let family = Family::new();
    let mut child = family.start(command.stdin(Stdio::null()))?;
    until_the_end(family, &mut child, start, limits)
}

/// Waits for a program, and ends all that it has started.
fn until_the_end(
    family: Family,
    child: &mut Child,
    start: Instant,
    limits: Limits,
) -> std::io::Result<End> {
    let end = wait(child, start, limits);
    if !matches!(end, Ok(End::Exit(_))) {
        // The program may have ended meanwhile, so an error does not matter.
        child.kill().ok();
        child.wait()?;
    }
    family.end(child);
    end
}

fn wait(child: &mut Child, start: Instant, limits: Limits) -> std::io::Result<End> {
    let pid = Pid::from_u32(child.id());
    // If the system reports no CPU time, the clock alone decides.
    let mut system = System::new().ok();
    let mut computed = None;
    let mut last_seen_computing = start;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exit(status));
        }
        if family::interrupted() {
            return Ok(End::Stuck);
        }
        if let Some(system) = &mut system {
            let what = ProcessRefreshKind::nothing().with_memory().with_cpu();
            system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
            let process = system.process(pid);
            if process.is_some_and(|process| process.memory() > limits.memory) {
                return Ok(End::TooLarge);
            }
            let now = process.map(|process| Duration::from_millis(process.accumulated_cpu_time()));
            if now > Some(limits.computing) {
                return Ok(End::TooLong);
            }
            if now.is_none() || now != computed {
                computed = now;
                last_seen_computing = Instant::now();
            }
            if last_seen_computing.elapsed() > limits.idle {
                return Ok(End::Stuck);
            }
        }
        if start.elapsed() > limits.running {
            return Ok(End::Stuck);
        }
        thread::sleep(pause);
        // Most programs end quickly. For a long one, fewer looks are enough.
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}

/// Reads a pipe to its end and keeps the beginning, so a program that prints forever neither blocks
/// nor fills the memory.
fn collect(mut pipe: PipeReader, most: u64) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        // An unreadable pipe counts as an empty one.
        pipe.by_ref().take(most).read_to_end(&mut kept).ok();
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
        running: Duration::from_secs(60),
        memory: 200 << 20,
        output: 8 << 10,
    };

    fn shell(script: &str, limits: Limits) -> (End, String) {
        run(Command::new("sh").args(["-c", script]), limits).unwrap()
    }

    #[test]
    fn what_ends_by_itself_is_told_with_its_words_in_order() {
        let (end, words) = shell("echo one; echo two >&2; echo three; exit 3", LIMITS);
        assert!(matches!(end, End::Exit(status) if status.code() == Some(3)));
        assert_eq!(words, "one\ntwo\nthree\n");
    }

    #[test]
    fn there_is_nothing_to_read() {
        let (end, words) = shell("read line || echo nothing", LIMITS);
        assert!(matches!(end, End::Exit(_)), "{end:?}");
        assert_eq!(words, "nothing\n");
    }

    #[test]
    fn endless_loops_end_by_the_time_they_compute() {
        let (end, words) = shell("echo begun; while :; do :; done", LIMITS);
        assert!(matches!(end, End::TooLong), "{end:?}");
        assert_eq!(words, "begun\n");
    }

    #[test]
    fn endless_words_are_cut() {
        let (end, words) = shell("while :; do echo word; done", LIMITS);
        assert!(matches!(end, End::TooLong), "{end:?}");
        assert!(words.starts_with("word\nword\n") && words.ends_with("(and so on)"));
        assert!(words.len() < LIMITS.output as usize + 20);
    }

    #[test]
    fn waiting_for_ever_ends_by_the_clock() {
        let short = Duration::from_millis(200);
        for limits in [Limits { idle: short, ..LIMITS }, Limits { running: short, ..LIMITS }] {
            let (end, _) = shell("exec sleep 1000", limits);
            assert!(matches!(end, End::Stuck), "{end:?}");
        }
    }

    /// Those that are left, by the number of seconds that they sleep.
    #[cfg(target_os = "linux")]
    fn asleep(seconds: &str) -> usize {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let words =
            processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        words.filter(|words| words == format!("sleep\0{seconds}\0").as_bytes()).count()
    }

    /// Children and grandchildren, in the background, in sessions of their own, with closed output:
    /// however the program ends.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_program_has_started_ends_with_it() {
        let start = |seconds: &str| {
            let daemon = format!(
                "setsid sh -c 'sleep {seconds} & setsid sleep {seconds} & exec sleep {seconds}' >&- 2>&- &"
            );
            format!(
                "sleep {seconds} & sleep {seconds} >&- 2>&- & ({daemon}) ; sleep 0.3; echo begun;"
            )
        };
        for (seconds, then) in
            [("71111", "exit 3"), ("71112", "kill -9 $$"), ("71113", "while :; do :; done")]
        {
            let (_, words) = shell(&format!("{} {then}", start(seconds)), LIMITS);
            assert_eq!((words.as_str(), asleep(seconds)), ("begun\n", 0), "{then}");
        }
        // Programs that run at the same time, and children that are no program's, stay as they are.
        let mut own = Command::new("sleep").arg("71115").spawn().unwrap();
        let other =
            thread::spawn(|| shell("sleep 71114 & sleep 1; kill -0 $! && echo there", LIMITS));
        let waits = Instant::now();
        while asleep("71114") == 0 && waits.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(5));
        }
        shell("exit 0", LIMITS);
        let other = other.join().unwrap();
        let left = [asleep("71114"), asleep("71115")];
        own.kill().unwrap();
        own.wait().unwrap();
        assert_eq!((other.1.as_str(), left), ("there\n", [0, 1]));
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
}
