//! Why a file could not be written or opened, and what to do about it. One function for all of
//! `checkpoint`: a process with too many open files, or a folder without permission, needs other
//! help than a full disk.

use crate::error::BadInput;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The number of Linux, macOS and the BSDs for too many open files in this process. Rust has no
/// `ErrorKind` for it.
const PROCESS_FILES: i32 = 24;

/// An error about a file or folder that could not be written. `and` says what is true besides, such
/// as what is still there.
pub fn unwritten(path: &Path, error: &io::Error, and: &str) -> BadInput {
    let help = cause(error).unwrap_or("name a folder on a different disk");
    let and = if and.is_empty() {
        String::new()
    } else {
        format!("; {and}")
    };
    BadInput::new(format!("cannot write {}: {error}", path.display()), format!("{help}{and}"))
}

/// What to do about a file that could not be opened or read. `otherwise` is the help if the file
/// itself is to blame.
pub fn unread<'a>(error: &io::Error, otherwise: &'a str) -> &'a str {
    match error.kind() {
        // A file that is missing, or that is no file, is the caller's to explain.
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => otherwise,
        _ => cause(error).unwrap_or(otherwise),
    }
}

/// What to do about the cause of an error, if the operating system names one.
fn cause(error: &io::Error) -> Option<&'static str> {
    if cfg!(unix) && error.raw_os_error() == Some(PROCESS_FILES) {
        return Some(
            "this process may open no more files: allow it more with `ulimit -n`, or use fewer workers",
        );
    }
    let help = match error.kind() {
        ErrorKind::StorageFull => "make room on the disk, or name a folder on a different one",
        ErrorKind::QuotaExceeded => {
            "your quota on this disk is used up: remove files, or name a folder on a different one"
        }
        ErrorKind::FileTooLarge => {
            "files of this size are not allowed here: raise `ulimit -f`, or name a folder on a different disk"
        }
        ErrorKind::PermissionDenied => {
            "ask for the right to use this file or folder, or name a different one"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "the disk can only be read: name a folder on a different one"
        }
        ErrorKind::NotFound => {
            "its folder is gone: did a different program remove or rename it? Start again without that one"
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            "something of a different kind is in its place: move that away, or name a different folder"
        }
        _ => return None,
    };
    Some(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a full disk is called full.
    #[test]
    fn the_help_is_about_the_cause() {
        let help = |number| {
            unwritten(Path::new("a"), &io::Error::from_raw_os_error(number), "b is left").help
        };
        for (number, about) in [
            (24, "ulimit -n"),
            (28, "make room"),
            (27, "ulimit -f"),
            (13, "right"),
            (30, "only be read"),
            (2, "gone"),
        ] {
            let help = help(number);
            assert!(help.contains(about) && help.ends_with("; b is left"), "{number}: {help}");
            assert_eq!(help.contains("make room"), number == 28, "{help}");
        }
        let unknown = unwritten(Path::new("a"), &io::Error::other("odd"), "");
        assert_eq!(
            unknown,
            BadInput::new("cannot write a: odd", "name a folder on a different disk")
        );
        // A missing file is explained by the caller that looked for it.
        assert_eq!(unread(&io::Error::from_raw_os_error(2), "use a copy"), "use a copy");
        assert!(unread(&io::Error::from_raw_os_error(24), "use a copy").contains("ulimit -n"));
    }
}
