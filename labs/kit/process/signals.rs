//! Signals: those that would end a process which has something to tidy up first, and the one that
//! ends its children.

use std::process::Command;

#[cfg(unix)]
pub use system::{ENDING, before_the_end, catch, obey};

/// The program that `command` starts is killed when this thread ends, however it ends: a killed
/// process cannot do it itself. Only Linux does this. Elsewhere the program has to notice that
/// nobody reads what it prints.
pub fn end_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::process::CommandExt;
        // SAFETY: this call touches no memory.
        let parent = unsafe { libc::getpid() };
        // SAFETY: all of these calls are allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have ended before that call, and then no signal comes.
                if libc::getppid() != parent {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

#[cfg(unix)]
mod system {
    use std::ptr::{null, null_mut};
    use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

    /// Signals with which people and job managers end a process: Ctrl-C, a time limit, a closed
    /// terminal.
    pub const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    /// Calls `handler` when these signals would end this process. Someone else's handlers stay, and
    /// so does a signal that the process ignores.
    ///
    /// # Safety
    /// The handler only does what handlers may do: it takes no lock and allocates nothing.
    pub unsafe fn catch(signals: &[i32], handler: extern "C" fn(i32)) {
        for &signal in signals {
            // SAFETY: all bytes zero is a valid `sigaction`.
            unsafe {
                let (mut before, mut action): (libc::sigaction, libc::sigaction) =
                    std::mem::zeroed();
                libc::sigaction(signal, null(), &mut before);
                if before.sa_sigaction == libc::SIG_DFL {
                    action.sa_sigaction = handler as *const () as usize;
                    action.sa_flags = libc::SA_RESTART;
                    libc::sigaction(signal, &action, null_mut());
                }
            }
        }
    }

    type Tidy = extern "C" fn();

    /// What is to be tidied up: functions that a handler can read without a lock.
    static TIDY: [AtomicPtr<()>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

    /// Calls `tidy` before a signal ends this process. Several may ask for that.
    ///
    /// # Safety
    /// `tidy` only does what handlers of signals may do: it takes no lock and allocates nothing.
    pub unsafe fn before_the_end(tidy: Tidy) {
        extern "C" fn on_signal(signal: i32) {
            obey(signal);
        }
        let tidy = tidy as *const () as *mut ();
        let is_free = |place: &AtomicPtr<()>| {
            place.compare_exchange(null_mut(), tidy, SeqCst, SeqCst).is_ok()
        };
        assert!(TIDY.iter().any(is_free), "there are four places");
        // SAFETY: the handler only calls `obey`.
        unsafe { catch(&ENDING, on_signal) };
    }

    /// Lets a signal that was caught end this process after all. In its handler: when the handler
    /// has returned.
    pub fn obey(signal: i32) {
        for place in &TIDY {
            let tidy = place.load(SeqCst);
            if !tidy.is_null() {
                // SAFETY: it was such a function when it was stored, and says that it may be called
                // here.
                unsafe { std::mem::transmute::<*mut (), Tidy>(tidy)() };
            }
        }
        // SAFETY: both calls touch no memory, and are allowed in a handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}
