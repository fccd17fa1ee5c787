//! Signals of a process that only waits for its child: the child gets them, and may tidy up before
//! it ends.
//!
//! A system without signals passes nothing on.

pub(super) use system::{run, stopped, watch};

#[cfg(unix)]
mod system {
    use std::io;
    use std::process::{Command, ExitStatus};
    use std::ptr::null;
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

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
    use std::io;
    use std::process::{Command, ExitStatus};

    pub fn watch() {}

    pub fn stopped() -> bool {
        false
    }

    pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
        command.status()
    }
}
