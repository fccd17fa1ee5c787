//! Files that survive the end of the process, the machine's power included: what is renamed into
//! view is complete.
//!
//! An operating system keeps written bytes in memory and stores them later, in its own order. So a
//! rename may reach the disk before the bytes of the file that it renames. `sync_all` waits for the
//! bytes. A folder is also a file, whose bytes are names.

use super::cause;
use crate::error::BadInput;
pub use crate::files::{LIST, open};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The end of every name under which something incomplete lies.
pub(super) const PARTIAL: &str = ".partial";

/// What is true after a write that has failed: earlier checkpoints are in their own folders.
const KEPT: &str = "earlier checkpoints are as they were";

/// Help for a checkpoint that cannot be read.
pub(super) const DAMAGED: &str =
    "give `resume` auto, which takes the newest checkpoint that is whole";

/// The size of a regular file, in bytes.
///
/// # Errors
/// If there is none, or it is no regular file.
pub fn size(path: &Path) -> Result<u64, BadInput> {
    open(path).map(|(_, size)| size).map_err(|error| unreadable(path, &error))
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// If there is none, it is no regular file, or it is longer.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, BadInput> {
    crate::files::read(path, most).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> BadInput {
    let help = cause::unread(error, DAMAGED);
    BadInput::new(format!("cannot read {}: {error}", path.display()), help)
}

/// Reads `len` bytes of a file, from `offset` on.
///
/// # Errors
/// If there is none, it is no regular file, or it ends before.
pub fn read_at(path: &Path, offset: u64, len: usize) -> Result<Vec<u8>, BadInput> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open(path)?.0;
        let mut bytes = vec![0; len];
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| unreadable(path, &error))
}

/// Makes an empty folder beside `to`, whose name it will get. Removes what an interrupted
/// conversion has left there.
///
/// # Errors
/// If that cannot be removed, or the folder cannot be made.
pub fn beside(to: &Path) -> Result<PathBuf, BadInput> {
    let side = to.with_file_name(format!(
        ".{}{PARTIAL}",
        to.file_name().unwrap_or_default().to_string_lossy()
    ));
    discard(&side);
    if side.symlink_metadata().is_ok() {
        let what = format!(
            "{} cannot be removed, which an interrupted conversion has left",
            side.display()
        );
        return Err(BadInput::new(what, "remove it, or name a different folder"));
    }
    make(&side)?;
    Ok(side)
}

/// Makes a folder, and those that it is in.
///
/// # Errors
/// If the disk refuses.
pub fn make(folder: &Path) -> Result<(), BadInput> {
    failed(folder, std::fs::create_dir_all(folder))
}

/// Makes a complete folder visible under its final name.
///
/// # Errors
/// If there is something else of that name, or the disk refuses.
pub fn rename(side: &Path, to: &Path) -> Result<(), BadInput> {
    let parent = to.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let rename = || -> io::Result<()> {
        sync_names(side)?;
        std::fs::rename(side, to)?;
        sync_names(parent)
    };
    failed(to, rename())
}

/// Writes a file. Returns when the disk has it.
///
/// # Errors
/// If the disk refuses.
pub fn write(path: &Path, contents: &[u8]) -> Result<(), BadInput> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(contents)?;
        file.sync_all()
    };
    failed(path, write())
}

/// Says which file could not be written, and what to do about it.
///
/// # Errors
/// If `result` is one.
pub fn failed<T>(path: &Path, result: io::Result<T>) -> Result<T, BadInput> {
    result.map_err(|error| cause::unwritten(path, &error, KEPT))
}

/// Returns when the disk has the names in a folder.
pub(super) fn sync_names(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened as a file.
    if cfg!(unix) {
        File::open(folder)?.sync_all()
    } else {
        Ok(())
    }
}

/// Removes an incomplete save. If that fails, the next save tries again.
pub fn discard(path: &Path) {
    let removed = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    drop(removed);
}
