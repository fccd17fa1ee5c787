//! A folder of checkpoints: which of them are complete, and which is the newest. It looks like
//! this:
//!
//! ```text
//! latest                        the name of the newest complete checkpoint
//! writer.lock                   who saves to the folder now
//! save-0001-step-20/            manifest.json, manifest.json.sha256, rank-000.safetensors, …
//! save-0002-step-40/
//! .save-0003.partial/           a save that is not complete; the next save removes it
//! ```

use super::files::{PARTIAL, discard, failed, read, sync_names, write};
use super::manifest::Manifest;
use crate::error::BadInput;
use std::io;
use std::path::{Path, PathBuf};

const LATEST: &str = "latest";

/// A complete checkpoint in a folder of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Saved {
    /// Saves are numbered. A run that was set back saves its steps once more, under new numbers.
    number: usize,
    pub name: String,
}

/// The complete checkpoints in `dir`, the oldest first.
pub fn list(dir: &Path) -> Vec<Saved> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let saved = |name: String| Some(Saved { number: number(&name)?, name });
    let mut all: Vec<Saved> = entries
        .filter_map(|entry| saved(entry.file_name().to_string_lossy().into_owned()))
        .collect();
    all.sort();
    all
}

fn name(number: usize, step: usize) -> String {
    format!("save-{number:04}-step-{step}")
}

/// The number of a save with this name. The folder may have files that no save has written, so the
/// form is exact.
fn number(text: &str) -> Option<usize> {
    let (number, step) = text.strip_prefix("save-")?.split_once("-step-")?;
    let number = number.parse().ok()?;
    let step = step.parse().ok()?;
    (name(number, step) == text).then_some(number)
}

/// Whether a file or folder of this name is what an incomplete save has left.
fn is_partial(name: &str) -> bool {
    [".save-", ".latest"].iter().any(|start| name.starts_with(start)) && name.ends_with(PARTIAL)
}

/// The names of complete checkpoints in the order in which they should be tried: the one that
/// `latest` names, followed by the others, the newest first.
pub fn candidates(dir: &Path) -> Vec<String> {
    let latest = read(&dir.join(LATEST), 1000).unwrap_or_default();
    let latest = String::from_utf8_lossy(&latest);
    let mut names: Vec<String> = list(dir).into_iter().rev().map(|saved| saved.name).collect();
    names.sort_by_key(|name| name != latest.trim());
    names
}

/// Makes an empty folder for the next save, beside the complete ones, and removes what incomplete
/// saves left. Returns the folder and the save's number.
pub fn begin(dir: &Path) -> Result<(PathBuf, usize), BadInput> {
    let number = list(dir).pop().map_or(1, |last| last.number.saturating_add(1));
    let make = || -> io::Result<(PathBuf, usize)> {
        std::fs::create_dir_all(dir)?;
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| is_partial(&name.to_string_lossy())) {
                discard(&path);
            }
        }
        let side = dir.join(format!(".save-{number:04}{PARTIAL}"));
        std::fs::create_dir(&side)?;
        Ok((side, number))
    };
    failed(dir, make())
}

// ANCHOR: publish
/// Makes the checkpoint in `side` visible, when all its files are on the disk: renames its folder,
/// then names it in `latest`. Returns its name.
pub fn publish(dir: &Path, side: &Path, number: usize, step: usize) -> Result<String, BadInput> {
    let name = name(number, step);
    let publish = || -> io::Result<()> {
        sync_names(side)?;
        std::fs::rename(side, dir.join(&name))?;
        sync_names(dir)
    };
    failed(&dir.join(&name), publish())?;
    let beside = dir.join(format!(".{LATEST}{PARTIAL}"));
    write(&beside, name.as_bytes())?;
    let replace = || -> io::Result<()> {
        std::fs::rename(&beside, dir.join(LATEST))?;
        sync_names(dir)
    };
    failed(&dir.join(LATEST), replace())?;
    Ok(name)
}
// ANCHOR_END: publish

/// Removes all but the newest `keep` checkpoints of a run. Those of other runs stay, also if a run
/// cannot be read.
pub fn keep(dir: &Path, keep: usize, run: &str) {
    let of_the_run =
        |saved: &Saved| Manifest::run_of(&dir.join(&saved.name)).is_some_and(|found| found == run);
    let all: Vec<Saved> = list(dir).into_iter().filter(of_the_run).collect();
    for old in &all[..all.len().saturating_sub(keep.max(1))] {
        // Renamed first: a name without `.partial` always means a complete checkpoint.
        let hidden = dir.join(format!(".{}{PARTIAL}", old.name));
        if std::fs::rename(dir.join(&old.name), &hidden).is_ok() {
            discard(&hidden);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A person's own files are neither listed nor removed.
    #[test]
    fn only_saves_are_taken_for_saves() {
        let dir = tempfile::tempdir().unwrap();
        // A save of this run, with as much of a manifest as `keep` reads.
        let save = |name: &str, run: &str| {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            let manifest = serde_json::json!({ "run": { "id": run, "changes": [] } }).to_string();
            std::fs::write(dir.path().join(name).join(super::super::MANIFEST), manifest).unwrap();
        };
        for (name, run) in [
            ("save-0002-step-40", "mine"),
            ("save-0009-step-1", "another"),
            ("save-0010-step-5", "mine"),
        ] {
            save(name, run);
        }
        for name in ["save-2020-photos", "save-0008-step-9", "film.partial", ".save-0011.partial"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let (side, number) = begin(dir.path()).unwrap();
        assert_eq!((side.file_name().unwrap().to_str(), number), (Some(".save-0011.partial"), 11));
        assert_eq!(publish(dir.path(), &side, number, 60), Ok("save-0011-step-60".to_string()));
        save("save-0011-step-60", "mine");
        let newest_first = [
            "save-0011-step-60",
            "save-0010-step-5",
            "save-0009-step-1",
            "save-0008-step-9",
            "save-0002-step-40",
        ];
        assert_eq!(candidates(dir.path()), newest_first);
        keep(dir.path(), 1, "mine");
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let others = ["save-0008-step-9", "save-0009-step-1"];
        assert_eq!(
            left,
            [
                &["film.partial", "latest"][..],
                &others,
                &["save-0011-step-60", "save-2020-photos"]
            ]
            .concat()
        );
    }
    #[test]
    fn latest_goes_first_and_one_that_is_gone_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["save-0001-step-5", "save-0002-step-10", "save-0003-step-15"] {
            let manifest = dir.path().join(name).join(super::super::MANIFEST);
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(manifest, "{}").unwrap();
        }
        for (latest, first) in [
            ("save-0002-step-10", "save-0002-step-10"),
            ("save-0001-step-5\n", "save-0001-step-5"),
            ("save-0009-step-45", "save-0003-step-15"),
            ("../save-0001-step-5", "save-0003-step-15"),
            ("", "save-0003-step-15"),
        ] {
            std::fs::write(dir.path().join(LATEST), latest).unwrap();
            let all = candidates(dir.path());
            assert_eq!((all.len(), &*all[0]), (3, first), "{latest:?}");
        }
    }
}
