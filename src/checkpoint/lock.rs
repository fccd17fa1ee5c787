//! One job at a time saves to a folder.
//!
//! Two that did would remove each other's half-written saves. So rank 0 locks the file
//! `writer.lock` before the work begins, and writes into it who it is. At its end it removes the
//! file, also after an error or Ctrl-C. The operating system ends the lock with the process,
//! however that ends: after a `kill -9` the file is still there, and stops nobody.
//!
//! Some file systems of clusters have no locks, or locks that other nodes do not see. There the
//! text in the file decides. On the same host it names a process that runs or does not. Nobody can
//! see a process of a different host, so a job refuses to start then, and names the file to remove.
//! Only a job that Slurm has started again knows that its earlier attempt is over.

use super::agree::agree;
use super::files;
use super::tidy::Remembered;
use crate::comm::Comm;
use crate::error::BadInput;
use crate::launch;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The name of the lock in a folder.
const NAME: &str = "writer.lock";

/// How long a job waits for one that is just ending, such as its own attempt before a restart.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a job waits before it reads its own name once more, where the file system has no locks.
const DOUBT: Duration = Duration::from_millis(200);

/// A folder that only this job saves to, until it is dropped.
#[derive(Debug)]
#[must_use = "a folder is claimed until this is dropped"]
pub struct Claim(Option<Lock>);

impl Claim {
    /// Claims a folder. Rank 0 locks it, and all ranks get the same error if it belongs to a
    /// different job. All ranks call it.
    ///
    /// # Errors
    /// If a different job saves to the folder, or rank 0 cannot write there.
    pub fn take(comm: &Comm, dir: &Path) -> Result<Claim> {
        let lock = if comm.rank() == 0 {
            Lock::take(dir).map(Some)
        } else {
            Ok(None)
        };
        Ok(Claim(agree(comm, lock)??))
    }

    /// Refuses to go on if someone has removed the lock, and a different job has taken the folder.
    pub(super) fn ensure_held(&self) -> Result<(), BadInput> {
        match &self.0 {
            Some(lock) => lock.ensure_held(),
            None => Ok(()),
        }
    }
}

/// The process that saves to a folder, as `writer.lock` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    process: u32,
    host: String,
    /// When the process started, in seconds since 1970. Numbers of processes are used again.
    started: Option<u64>,
    /// When it took the folder.
    since: u64,
    /// Slurm's number of the job, and how often Slurm has started it again: perhaps on other hosts,
    /// when it has ended here.
    slurm: Option<(String, u64)>,
}

impl Owner {
    fn this_process() -> Owner {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let attempt = variable("SLURM_RESTART_COUNT")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0);
        let process = std::process::id();
        Owner {
            process,
            host: launch::host_name(),
            started: launch::process_start(process),
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            slurm: variable("SLURM_JOB_ID").map(|job| (job, attempt)),
        }
    }

    /// Whether this is a later attempt of the same Slurm job. Slurm ends one before it starts the
    /// next.
    fn follows(&self, other: &Owner) -> bool {
        match (&self.slurm, &other.slurm) {
            (Some((job, attempt)), Some((same, earlier))) => job == same && attempt > earlier,
            _ => false,
        }
    }

    /// Whether the process still runs, on this host.
    fn runs(&self) -> bool {
        match (launch::process_start(self.process), self.started) {
            // The system computes the time of a start, and may be off by a second.
            (Some(found), Some(started)) => found.abs_diff(started) <= 2,
            (found, _) => found.is_some(),
        }
    }

    fn refuse(&self, me: &Owner, dir: &Path, path: &Path) -> BadInput {
        let Owner { process, host, since, .. } = self;
        let dir = dir.display();
        let path = path.display();
        let what = format!(
            "{dir} is being written by process {process} on host {host} since {}",
            utc(*since)
        );
        if *host == me.host {
            return BadInput::new(
                what,
                "wait until it has ended, or give this job a folder of its own",
            );
        }
        let help = format!(
            "if it has ended, remove {path}: {} cannot see. Or give this job a folder of its own",
            me.host
        );
        BadInput::new(what, help)
    }
}

/// The locked file.
#[derive(Debug)]
struct Lock {
    dir: PathBuf,
    path: PathBuf,
    me: Owner,
    /// The operating system's lock lasts as long as this is open.
    _file: File,
    _on_signal: Remembered,
}

impl Lock {
    fn take(dir: &Path) -> Result<Lock, BadInput> {
        files::make(dir)?;
        let path = dir.join(NAME);
        let me = Owner::this_process();
        let start = Instant::now();
        loop {
            ensure_no_link(&path)?;
            let mut file = files::failed(&path, open(&path))?;
            let locked = file.try_lock();
            let text = files::failed(&path, read(&mut file))?;
            let owner: Option<Owner> = serde_json::from_str(&text).ok();
            let free = match (&locked, &owner) {
                (Err(TryLockError::WouldBlock), _) => false,
                // No process of this host has it, so its owner here has ended.
                (Ok(()), Some(owner)) => owner.host == me.host || me.follows(owner),
                (Ok(()), None) => true,
                (Err(TryLockError::Error(_)), owner) => is_free(&text, owner.as_ref(), &me),
            };
            // An owner that ends removes the file. Then this one has no name, and locks nothing.
            if free && is_at(&file, &path) {
                files::failed(&path, replace(&mut file, &me))?;
                let lock = Lock {
                    dir: dir.to_path_buf(),
                    path: path.clone(),
                    me: me.clone(),
                    _file: file,
                    _on_signal: Remembered::new(&path),
                };
                if locked.is_err() {
                    std::thread::sleep(DOUBT);
                }
                if lock.is_mine() {
                    return Ok(lock);
                }
            }
            if start.elapsed() > PATIENCE {
                let unknown = || {
                    let what = format!("{} is being written by a different job", dir.display());
                    BadInput::new(
                        what,
                        format!("wait until it has ended, or remove {} if it has", path.display()),
                    )
                };
                return Err(owner.map_or_else(unknown, |owner| owner.refuse(&me, dir, &path)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the file still has this process's name.
    fn is_mine(&self) -> bool {
        self.owner().is_some_and(|owner| owner == self.me)
    }

    fn owner(&self) -> Option<Owner> {
        serde_json::from_slice(&files::read(&self.path, 10_000).ok()?).ok()
    }

    fn ensure_held(&self) -> Result<(), BadInput> {
        match self.owner() {
            Some(owner) if owner != self.me => Err(owner.refuse(&self.me, &self.dir, &self.path)),
            _ => Ok(()),
        }
    }
}

/// The end of the job, or an error that ends it.
impl Drop for Lock {
    fn drop(&mut self) {
        if self.is_mine() {
            files::discard(&self.path);
        }
    }
}

/// Whether a folder can be taken where the file system has no locks.
fn is_free(text: &str, owner: Option<&Owner>, me: &Owner) -> bool {
    match owner {
        Some(owner) => me.follows(owner) || (owner.host == me.host && !owner.runs()),
        None => text.is_empty(),
    }
}

/// Refuses a link: what is written to a lock would replace the file that the link names.
fn ensure_no_link(path: &Path) -> Result<(), BadInput> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        let what = format!("{} is no regular file, so it is no job's lock", path.display());
        return Err(BadInput::new(what, "remove it"));
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // What the name means may have changed since.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    options.open(path)
}

fn read(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(10_000).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn replace(file: &mut File, me: &Owner) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all((serde_json::json!(me).to_string() + "\n").as_bytes())?;
    file.sync_all()
}

/// Whether the open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        match (file.metadata(), std::fs::symlink_metadata(path)) {
            (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
            _ => false,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// A time of day, as people read it. `seconds` are counted since 1970.
fn utc(seconds: u64) -> String {
    let mut day = seconds / 86_400;
    let second = seconds % 86_400;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_827_696, "2000-02-29 12:34:56 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn one_at_a_time_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        let error = Lock::take(dir.path()).unwrap_err();
        let expected = format!(
            "{} is being written by process {} on host {} since ",
            dir.path().display(),
            std::process::id(),
            launch::host_name()
        );
        assert!(error.what.starts_with(&expected), "{error}");
        first.ensure_held().unwrap();
        drop(first);
        assert!(names(dir.path()).is_empty());
        drop(Lock::take(dir.path()).unwrap());
    }

    /// The file of a process that was killed. Nobody holds the system's lock.
    fn left(dir: &Path, change: impl Fn(&mut Owner)) {
        let mut owner = Owner::this_process();
        change(&mut owner);
        std::fs::write(dir.join(NAME), serde_json::json!(owner).to_string()).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_stops_nobody_on_this_host() {
        let dir = tempfile::tempdir().unwrap();
        left(dir.path(), |_| ());
        drop(Lock::take(dir.path()).unwrap());
        std::fs::write(dir.path().join(NAME), "{\"process\":47").unwrap();
        drop(Lock::take(dir.path()).unwrap());
        assert!(names(dir.path()).is_empty());
    }

    /// Somebody's file that a link names is no lock, whatever is in it.
    #[cfg(unix)]
    #[test]
    fn a_link_is_refused_and_what_it_names_stays_as_it_is() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let [victim, lock] = ["victim", NAME].map(|name| dir.path().join(name));
        for text in ["precious", ""] {
            std::fs::write(&victim, text).unwrap();
            symlink(&victim, &lock).unwrap();
            let error = Lock::take(dir.path()).unwrap_err();
            let expected = format!("{} is no regular file", lock.display());
            assert!(error.what.starts_with(&expected), "{error}");
            open(&lock).unwrap_err();
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), text);
            std::fs::remove_file(&lock).unwrap();
        }
        symlink(dir.path().join("nothing"), &lock).unwrap();
        Lock::take(dir.path()).unwrap_err();
        assert!(!dir.path().join("nothing").exists());
        std::fs::remove_file(&lock).unwrap();
        drop(Lock::take(dir.path()).unwrap());
    }

    #[test]
    fn a_process_of_a_different_host_may_still_run() {
        let dir = tempfile::tempdir().unwrap();
        left(dir.path(), |owner| owner.host = "elsewhere".to_string());
        let error = Lock::take(dir.path()).unwrap_err();
        assert!(error.what.contains(" on host elsewhere since "), "{error}");
        assert!(
            error.help.contains(&format!("remove {}", dir.path().join(NAME).display())),
            "{error}"
        );
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        drop(Lock::take(dir.path()).unwrap());
    }

    /// Someone removes the lock of a job that still runs, and starts a different one.
    #[test]
    fn a_job_that_lost_its_lock_saves_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        left(dir.path(), |owner| owner.process += 1);
        assert!(first.ensure_held().unwrap_err().what.contains("is being written by process"));
        drop(first);
        assert_eq!(names(dir.path()), [NAME], "it is another's");
    }

    #[test]
    fn where_no_lock_exists_a_process_is_known_by_its_number_and_start() {
        let me = Owner::this_process();
        assert!(me.runs());
        assert!(
            !Owner { started: me.started.map(|at| at - 100), ..me.clone() }.runs(),
            "the number was used again"
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        child.wait().unwrap();
        let ended = Owner { process, ..me.clone() };
        assert!(!ended.runs());
        let elsewhere = Owner { host: "elsewhere".to_string(), ..ended.clone() };
        assert!(is_free("", None, &me) && is_free("{", Some(&ended), &me));
        assert!(
            !is_free("{", None, &me)
                && !is_free("{", Some(&me), &me)
                && !is_free("{", Some(&elsewhere), &me)
        );
    }

    #[test]
    fn a_requeued_job_follows_its_own_earlier_attempt() {
        let at = |job: &str, attempt| Owner {
            slurm: Some((job.to_string(), attempt)),
            ..Owner::this_process()
        };
        assert!(at("7", 1).follows(&at("7", 0)));
        assert!(!at("7", 1).follows(&at("7", 1)) && !at("7", 1).follows(&at("8", 0)));
        assert!(!at("7", 1).follows(&Owner { slurm: None, ..Owner::this_process() }));
    }
}
