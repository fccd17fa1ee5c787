//! Files and folders that flags name: what cannot be written is refused before work starts.

use anyhow::{Result, anyhow};
use shardlab::error::BadInput;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Refuses a file that `flag` names and that cannot be written. What is in it stays.
pub fn ensure_writable(flag: &str, path: &Path) -> Result<(), BadInput> {
    open(OpenOptions::new().write(true).create(true).truncate(false), flag, path).map(drop)
}

/// Refuses files that flags name, if one cannot be written or two are the same. What is in them
/// stays.
pub fn ensure_all_writable(files: &[(&str, Option<&Path>)]) -> Result<(), BadInput> {
    let mut seen: Vec<(&str, &Path)> = Vec::new();
    for (flag, path) in files.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        if let Some((other, _)) = seen.iter().find(|(_, other)| *other == path) {
            let what = format!("--{other} and --{flag} name the same file, {}", path.display());
            return Err(BadInput::new(what, "give each a file of its own"));
        }
        ensure_writable(flag, path)?;
        seen.push((flag, path));
    }
    Ok(())
}

/// Creates the file that `flag` names, empty.
pub(super) fn create(flag: &str, path: &Path) -> Result<File, BadInput> {
    open(OpenOptions::new().write(true).create(true).truncate(true), flag, path)
}

fn open(how: &OpenOptions, flag: &str, path: &Path) -> Result<File, BadInput> {
    how.open(path).map_err(|error| {
        let what = format!("cannot write --{flag} {}: {error}", path.display());
        BadInput::new(what, help(&error, "name a file in a folder that exists"))
    })
}

/// Writes a file that could be opened before, such as a picture.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| unwritten(path, &error))
}

/// The error of a file that could be opened before.
pub(super) fn unwritten(path: &Path, error: &io::Error) -> anyhow::Error {
    let what = format!("cannot write to {}: {error}", path.display());
    anyhow!("{what}\nhelp: {}", help(error, "name another file"))
}

/// Makes the folder that `flag` names, and those around it.
pub fn make_folder(flag: &str, path: &Path) -> Result<(), BadInput> {
    std::fs::create_dir_all(path).map_err(|error| {
        let what = format!("cannot make the folder --{flag} {}: {error}", path.display());
        BadInput::new(what, help(&error, "name a folder that can be written"))
    })
}

/// What to do about an error in writing; `other` where it says no more.
pub fn help<'a>(error: &io::Error, other: &'a str) -> &'a str {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            "name one on a disk that can be written: this one is mounted read-only"
        }
        ErrorKind::PermissionDenied => "name one in a folder that is yours to write",
        ErrorKind::IsADirectory => "it is a folder: name a file in it",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space there, or name another"
        }
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No file system has to be mounted read-only for this.
    #[test]
    fn a_help_fits_what_is_wrong_with_the_place() {
        let other = "name a file in a folder that exists";
        for (kind, says) in [
            (ErrorKind::ReadOnlyFilesystem, "mounted read-only"),
            (ErrorKind::PermissionDenied, "yours to write"),
            (ErrorKind::IsADirectory, "name a file in it"),
            (ErrorKind::StorageFull, "free some space"),
            (ErrorKind::QuotaExceeded, "free some space"),
            (ErrorKind::NotFound, other),
        ] {
            let said = help(&io::Error::from(kind), other);
            assert!(said.contains(says), "{kind:?}: {said}");
            assert_eq!(said == other, kind == ErrorKind::NotFound, "{kind:?}");
        }
    }
}
