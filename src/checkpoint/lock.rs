//! One job at a time saves to a folder.
//!
//! Two that did would remove each other's half-written saves. So rank 0 locks the file
//! `writer.lock` before the work begins, and writes into it who it is, for the error of a second
//! job. At its end it removes the file. The operating system ends the lock with the process,
//! however that ends: a file that is left stops nobody.
//!
//! Some file systems of clusters have no locks. Nobody is stopped there.

use super::agree::agree;
use super::files;
use crate::comm::Comm;
use crate::error::BadInput;
use crate::launch;
use anyhow::Result;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the lock in a folder.
const NAME: &str = "writer.lock";

/// How long a job waits for one that is just ending, such as its own attempt before a restart.
const PATIENCE: Duration = Duration::from_secs(2);

/// A folder that only this job saves to, until it is dropped.
#[derive(Debug)]
#[must_use = "a folder is claimed until this is dropped"]
pub struct Claim {
    /// On rank 0.
    _lock: Option<Lock>,
}

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
        Ok(Claim { _lock: agree(comm, lock)?? })
    }

    /// Whether a job that has ended, as a killed one, has left its claim on this folder.
    pub fn is_left(dir: &Path) -> bool {
        let path = dir.join(NAME);
        let is_file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        is_file && File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
    }
}

/// A locked file.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    /// The lock lasts as long as this is open.
    _file: File,
}

impl Lock {
    fn take(dir: &Path) -> Result<Lock, BadInput> {
        files::make(dir)?;
        let path = dir.join(NAME);
        let start = Instant::now();
        loop {
            let mut file = open(&path)?;
            let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            // A job that ends removes the file. Then this one has no name, and keeps nobody out.
            if !taken && is_at(&file, &path) {
                files::failed(&path, sign(&mut file))?;
                return Ok(Lock { path, _file: file });
            }
            if start.elapsed() > PATIENCE {
                let owner = files::read(&path, 1000).unwrap_or_default();
                let owner = String::from_utf8_lossy(&owner);
                return Err(BadInput::new(
                    format!("{} is being written by {owner}", dir.display()),
                    "wait until it has ended, or give this job a folder of its own",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        files::discard(&self.path);
    }
}

/// Opens a lock's own file. Any other that has its name, a link above all, would be overwritten
/// with the text of a lock, wherever it lies.
fn open(path: &Path) -> Result<File, BadInput> {
    let foreign = || {
        let what = format!("{} is a link or no file, so it is no job's lock", path.display());
        BadInput::new(what, "remove it, or give this job a folder of its own")
    };
    // By name, before it is opened: opening may wait, or act.
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(foreign());
    }
    let mut options = OpenOptions::new();
    // What is in it stays for now: another job may have the lock.
    options.read(true).write(true).create(true).truncate(false);
    // What the name means may have changed since.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    let file = files::failed(path, options.open(path))?;
    // A second name is a file that someone has elsewhere, too.
    #[cfg(unix)]
    if file
        .metadata()
        .is_ok_and(|found| std::os::unix::fs::MetadataExt::nlink(&found) > 1)
    {
        return Err(foreign());
    }
    Ok(file)
}

/// Writes into the file who has it.
fn sign(file: &mut File) -> io::Result<()> {
    let owner = format!("process {} on host {}", launch::process_id(), launch::host_name());
    file.set_len(0)?;
    file.write_all(owner.as_bytes())
}

/// Whether the open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::fs::Metadata;
        use std::os::unix::fs::MetadataExt;
        let same = |here: Metadata, there: Metadata| here.ino() == there.ino();
        file.metadata()
            .and_then(|here| Ok(same(here, std::fs::symlink_metadata(path)?)))
            .unwrap_or(false)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        let error = Lock::take(dir.path()).unwrap_err();
        let expected = format!(
            "{} is being written by process {} on host {}",
            dir.path().display(),
            std::process::id(),
            launch::host_name()
        );
        assert_eq!(error.what, expected);
        drop(first);
        assert!(!dir.path().join(NAME).exists());
        drop(Lock::take(dir.path()).unwrap());
    }

    /// A process that was killed leaves the file, and no lock.
    #[test]
    fn a_file_that_is_left_stops_nobody() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "process 1 on host elsewhere, a long name").unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let owner = std::fs::read_to_string(dir.path().join(NAME)).unwrap();
        assert!(
            owner.starts_with(&format!("process {} on host ", std::process::id())),
            "{owner}"
        );
        assert!(!owner.contains("a long name"), "{owner}");
        drop(lock);
    }

    /// Whatever lies under a lock's name, and wherever it leads, nothing else is written or made.
    #[cfg(unix)]
    #[test]
    fn what_is_no_lock_is_refused_and_stays_as_it_is() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        type Make<'a> = (&'a str, &'a dyn Fn(&Path));
        let make: [Make; 6] = [
            ("a link", &|lock| symlink(at("precious"), lock).unwrap()),
            ("a link to a link", &|lock| symlink(at("link"), lock).unwrap()),
            ("a link to nothing", &|lock| symlink(at("nothing"), lock).unwrap()),
            ("a second name", &|lock| std::fs::hard_link(at("precious"), lock).unwrap()),
            ("a folder", &|lock| std::fs::create_dir(lock).unwrap()),
            ("a pipe", &|lock| {
                let made = std::process::Command::new("mkfifo").arg(lock).status();
                assert!(made.unwrap().success());
            }),
        ];
        std::fs::write(at("precious"), "precious").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        for (what, make) in make {
            let saves = at(what);
            std::fs::create_dir(&saves).unwrap();
            make(&saves.join(NAME));
            let error = Lock::take(&saves).unwrap_err();
            assert!(error.what.ends_with("so it is no job's lock"), "{what}: {error}");
            assert!(saves.join(NAME).symlink_metadata().is_ok(), "{what} is gone");
            assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "precious", "{what}");
            assert!(!at("nothing").exists(), "{what}");
        }
    }
}
