//! Signals of a process that only waits for its child: the child gets them, and may tidy up before it ends. And signals that
//! would end a process which has something to tidy up first.
//!
//! A system without signals passes nothing on.

#[cfg(unix)]
pub(crate) use system::{ENDING, catch, obey};
pub(super) use system::{run, stopped, watch};

#[cfg(unix)]
mod system {
    use std::io;
    use std::process::{Command, ExitStatus};
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

    /// Signals with which people and job managers end a process: Ctrl-C, a time limit, a closed terminal.
    pub(crate) const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    /// Calls `handler` when these signals would end this process. Someone else's handlers stay, and so does a signal that the
    /// process ignores.
    ///
    /// # Safety
    /// The handler only does what handlers may do: it takes no lock and allocates nothing.
    pub(crate) unsafe fn catch(signals: &[i32], handler: extern "C" fn(i32)) {
        for &signal in signals {
            // SAFETY: all bytes zero is a valid `sigaction`.
            unsafe {
                let (mut before, mut action): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
                libc::sigaction(signal, null(), &mut before);
                if before.sa_sigaction == libc::SIG_DFL {
                    action.sa_sigaction = handler as *const () as usize;
                    action.sa_flags = libc::SA_RESTART;
                    libc::sigaction(signal, &action, null_mut());
                }
            }
        }
    }

    /// Lets a signal that was caught end this process after all. In its handler: when the handler has returned.
    pub(crate) fn obey(signal: i32) {
        // SAFETY: both calls touch no memory, and are allowed in a handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }

    /// The process that gets this process's signals; 0: none.
    static CHILD: AtomicI32 = AtomicI32::new(0);
    /// The signal that stopped this process; 0: none yet.
    static STOPPED: AtomicI32 = AtomicI32::new(0);

    /// Passes signals on from now on. A signal that this process ignores stays ignored, as under `nohup`.
    pub fn watch() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            // SAFETY: all bytes zero is a valid `sigaction`, and the handler only uses atomics and `kill`.
            unsafe {
                let (mut before, mut action): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
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
        // Ctrl-C comes from the terminal, not from a process, and the terminal sends it to the job as well.
        // SAFETY: the system hands over a valid pointer.
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
