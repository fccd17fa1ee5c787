//! A program with all that it starts: everything ends with the program.
//!
//! The program gets a session of its own, so that its processes can be told from this program's. A
//! process may leave for yet another session (`setsid`, as daemons do), and its parent may end
//! first. On Linux this program then becomes its parent: it has asked for that. So at the end it
//! ends its children of other sessions, and the children that it inherits from them, until none is
//! left.
//!
//! Ctrl-C reaches only this program's session, so it is kept until the program has ended. On other
//! systems than Linux only the processes of the program's own session end.

#[cfg(unix)]
pub(super) use unix::{Family, interrupted};

#[cfg(not(unix))]
pub(super) use other::{Family, interrupted};

#[cfg(unix)]
mod unix {
    use shardlab::launch::signals::{ENDING, catch, end_with_parent, obey};
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    #[cfg(target_os = "linux")]
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, PoisonError};

    /// Sessions of the programs that run now.
    static SESSIONS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    /// Programs that run now.
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    /// The signal that should end this program; 0: none.
    static SIGNAL: AtomicI32 = AtomicI32::new(0);

    /// Exists while a program runs.
    pub struct Family;

    impl Family {
        pub fn new() -> Family {
            RUNNING.fetch_add(1, SeqCst);
            // SAFETY: the handler only uses atomics and `obey`.
            unsafe { catch(&ENDING, on_signal) };
            Family
        }

        pub fn start(&self, command: &mut Command) -> io::Result<Child> {
            // SAFETY: this call is allowed between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    libc::setsid();
                    Ok(())
                });
            }
            end_with_parent(command);
            // SAFETY: this call touches no memory.
            #[cfg(target_os = "linux")]
            unsafe {
                libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
            }
            // A look at this program's children meanwhile must know this one.
            let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            let child = command.spawn()?;
            sessions.push(child.id() as i32);
            Ok(child)
        }

        /// Ends all that `child` has started. It has ended itself.
        pub fn end(self, child: &Child) {
            let session = child.id() as i32;
            end_all(session);
            SESSIONS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|other| *other != session);
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            if RUNNING.fetch_sub(1, SeqCst) == 1 && interrupted() {
                obey(SIGNAL.load(SeqCst));
            }
        }
    }

    /// Whether this program should end.
    pub fn interrupted() -> bool {
        SIGNAL.load(SeqCst) != 0
    }

    extern "C" fn on_signal(signal: i32) {
        SIGNAL.store(signal, SeqCst);
        if RUNNING.load(SeqCst) == 0 {
            obey(signal);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn end_all(session: i32) {
        // SAFETY: this call touches no memory.
        unsafe { libc::kill(-session, libc::SIGKILL) };
    }

    #[cfg(target_os = "linux")]
    fn end_all(session: i32) {
        use std::time::{Duration, Instant};

        let start = Instant::now();
        // A process that the system cannot end at once is left.
        while has_children() && start.elapsed() < Duration::from_secs(2) {
            let sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: these calls touch no memory but `status`.
            let (me, mine) = unsafe { (libc::getpid(), libc::getsid(0)) };
            let is_left = |process: &Process| {
                let orphan = process.parent == me
                    && process.session != mine
                    && !sessions.contains(&process.session);
                process.session == session || orphan
            };
            let left: Vec<Process> = processes().into_iter().filter(is_left).collect();
            if left.is_empty() {
                return;
            }
            for process in left {
                // SAFETY: these calls touch no memory.
                unsafe {
                    libc::kill(process.number, libc::SIGKILL);
                    libc::waitpid(process.number, null_mut(), libc::WNOHANG);
                }
            }
            drop(sessions);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether this program has any child, of which most programs leave none.
    #[cfg(target_os = "linux")]
    fn has_children() -> bool {
        // SAFETY: all bytes zero is a valid `siginfo_t`, which the call fills.
        unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_ALL, 0, &mut about, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
                == 0
        }
    }

    #[cfg(target_os = "linux")]
    struct Process {
        number: i32,
        parent: i32,
        session: i32,
    }

    /// All processes that can be seen.
    #[cfg(target_os = "linux")]
    fn processes() -> Vec<Process> {
        let process = |entry: std::fs::DirEntry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let about = std::fs::read(entry.path().join("stat")).ok()?;
            let about = String::from_utf8_lossy(&about).into_owned();
            // The name in parentheses may hold anything. State, parent, group and session follow
            // it.
            let mut fields = about
                .rsplit_once(')')?
                .1
                .split_whitespace()
                .skip(1)
                .map(|field| field.parse().ok());
            let parent = fields.next()??;
            Some(Process { number, parent, session: fields.nth(1)?? })
        };
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(process)
            .collect()
    }
}

#[cfg(not(unix))]
mod other {
    use std::process::{Child, Command};

    pub struct Family;

    impl Family {
        pub fn new() -> Family {
            Family
        }

        pub fn start(&self, command: &mut Command) -> std::io::Result<Child> {
            command.spawn()
        }

        pub fn end(self, _: &Child) {}
    }

    pub fn interrupted() -> bool {
        false
    }
}
