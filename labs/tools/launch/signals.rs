//! Signals of a process that only waits for its child: the child gets them, and may tidy up before
//! it ends.
//!
//! A system without signals passes nothing on.

pub(super) use system::{NAMES, run, stopped, watch};

/// SIGKILL, the same on every system.
pub(super) const KILL: i32 = 9;
/// SIGSEGV, the same on every system.
pub(super) const SEGV: i32 = 11;

/// A signal, and why a job that it ended does not begin again, if so.
pub(super) struct Signal {
    pub number: i32,
    pub name: &'static str,
    pub no_restart: Option<&'static str>,
}

#[cfg(unix)]
mod system {
    use super::Signal;
    use std::io;
    use std::process::{Command, ExitStatus};
    use std::ptr::null;
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    /// Those that end a process. A scheduler sends SIGTERM at the end of a job's time, SIGUSR1 or
    /// SIGUSR2 before it where it was asked to, and SIGXCPU at the end of its
    /// CPU time.
    pub const NAMES: [Signal; 16] = {
        const PERSON: Option<&str> = Some("somebody stopped it");
        const SCHEDULER: Option<&str> = Some("somebody or the scheduler stopped it");
        const fn signal(number: i32, name: &'static str, why: Option<&'static str>) -> Signal {
            Signal { number, name, no_restart: why }
        }
        [
            signal(libc::SIGHUP, "SIGHUP", PERSON),
            signal(libc::SIGINT, "SIGINT", Some("Ctrl-C stopped it")),
            signal(libc::SIGQUIT, "SIGQUIT", PERSON),
            signal(libc::SIGILL, "SIGILL", None),
            signal(libc::SIGABRT, "SIGABRT", None),
            signal(libc::SIGBUS, "SIGBUS", None),
            signal(libc::SIGFPE, "SIGFPE", None),
            signal(libc::SIGKILL, "SIGKILL", None),
            signal(libc::SIGUSR1, "SIGUSR1", SCHEDULER),
            signal(libc::SIGSEGV, "SIGSEGV", None),
            signal(libc::SIGUSR2, "SIGUSR2", SCHEDULER),
            signal(libc::SIGPIPE, "SIGPIPE", Some("the reader of its output is gone")),
            signal(libc::SIGALRM, "SIGALRM", None),
            signal(libc::SIGTERM, "SIGTERM", SCHEDULER),
            signal(libc::SIGXCPU, "SIGXCPU", SCHEDULER),
            signal(libc::SIGXFSZ, "SIGXFSZ", Some("a file was larger than it may be")),
        ]
    };

    /// The process that gets this process's signals; 0: none.
    static CHILD: AtomicI32 = AtomicI32::new(0);
    /// The signal that stopped this process; 0: none yet.
    static STOPPED: AtomicI32 = AtomicI32::new(0);

    /// Passes signals on from now on. A signal that this process ignores stays ignored, as under
    /// `nohup`.
    pub fn watch() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: all bytes zero is a valid `sigaction`, and the handler only uses atomics and
            // `kill`.
            unsafe {
                let (mut before, mut action): (libc::sigaction, libc::sigaction) =
                    std::mem::zeroed();
                libc::sigaction(signal, null(), &mut before);
                if before.sa_sigaction != libc::SIG_IGN {
                    action.sa_sigaction = on_signal as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                    libc::sigaction(signal, &action, &mut before);
                }
            }
        }
    }

    /// Whether a signal has come.
    pub fn stopped() -> bool {
        STOPPED.load(SeqCst) != 0
    }

    /// Runs a process to its end.
    pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
        let mut child = command.spawn()?;
        CHILD.store(child.id() as i32, SeqCst);
        // A signal may have come before there was a process that could get it.
        if stopped() {
            pass_on(STOPPED.load(SeqCst));
        }
        let status = child.wait();
        CHILD.store(0, SeqCst);
        status
    }

    extern "C" fn on_signal(signal: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
        STOPPED.store(signal, SeqCst);
        // Ctrl-C comes from the terminal, not from a process, and the terminal sends it to the job
        // as well. SAFETY: the system hands over a valid pointer.
        if unsafe { (*info).si_pid() } != 0 {
            pass_on(signal);
        }
    }

    fn pass_on(signal: i32) {
        let child = CHILD.load(SeqCst);
        if child > 0 {
            // SAFETY: this call touches no memory.
            unsafe { libc::kill(child, signal) };
        }
    }
}

#[cfg(not(unix))]
mod system {
    use super::Signal;
    use std::io;
    use std::process::{Command, ExitStatus};

    pub const NAMES: [Signal; 0] = [];

    pub fn watch() {}

    pub fn stopped() -> bool {
        false
    }

    pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
        command.status()
    }
}
