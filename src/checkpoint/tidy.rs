//! Files that go when a signal ends the process: Ctrl-C, the end of a job's time, another rank's
//! `MPI_Abort`.
//!
//! No destructor runs then. A lock that stayed would stop a next job on a different host, which
//! cannot see that this process has ended. `SIGKILL` leaves no time for this.

use std::path::Path;

#[cfg(unix)]
mod system {
    use crate::launch::signals::before_the_end;
    use std::ffi::{CString, c_char};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::Once;
    use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

    /// Paths that a handler of signals can read without a lock and without memory of its own.
    static FILES: [AtomicPtr<c_char>; 8] = [const { AtomicPtr::new(null_mut()) }; 8];

    pub fn remember(path: &Path) -> Option<usize> {
        static ONCE: Once = Once::new();
        // SAFETY: the handler only uses atomics and `unlink`.
        ONCE.call_once(|| unsafe { before_the_end(on_signal) });
        let path = std::path::absolute(path).ok()?;
        // Its memory stays: the handler may be reading it.
        let path = CString::new(path.as_os_str().as_bytes()).ok()?.into_raw();
        FILES
            .iter()
            .position(|file| file.compare_exchange(null_mut(), path, SeqCst, SeqCst).is_ok())
    }

    pub fn forget(place: usize) {
        FILES[place].store(null_mut(), SeqCst);
    }

    extern "C" fn on_signal() {
        for file in &FILES {
            let path = file.load(SeqCst);
            if !path.is_null() {
                // SAFETY: the path ends with a zero, and its memory is never freed.
                unsafe { libc::unlink(path) };
            }
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::path::Path;

    pub fn remember(_: &Path) -> Option<usize> {
        None
    }

    pub fn forget(_: usize) {}
}

/// Remembers a file until this is dropped.
#[derive(Debug)]
pub(super) struct Remembered(Option<usize>);

impl Remembered {
    pub fn new(path: &Path) -> Remembered {
        Remembered(system::remember(path))
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            system::forget(place);
        }
    }
}
