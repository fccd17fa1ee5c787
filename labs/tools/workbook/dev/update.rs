//! Writes what follows from `labs/labs.toml` into the checkout's files.

use super::{BLOCKS, course, in_checkout, paths, read};
use kit::Course;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Writes all blocks, and the minutes of pages and paths.
pub(super) fn update(screen: &Screen, root: &Path) -> Result<(), BadInput> {
    let course = course(root)?;
    let mut all = BTreeSet::new();
    // Twice: a timetable has the minutes of its path, which may have been written just now.
    for _ in 0..2 {
        for (file, text) in stale(root, &course)? {
            replace(root, &file, &text)?;
            all.insert(file);
        }
    }
    for file in &all {
        screen.say(screen.row("written", file));
    }
    if all.is_empty() {
        screen.say(screen.row("blocks", "all were up to date"));
    }
    Ok(())
}

/// The files that are not what follows from `labs/labs.toml`, as they should be.
///
/// # Errors
/// If a part of one cannot be made.
pub fn stale(root: &Path, course: &Course) -> Result<BTreeMap<String, String>, BadInput> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let is = |texts: &mut BTreeMap<String, String>, file: &str| match texts.remove(file) {
        Some(text) => Ok(text),
        None => read(root, file),
    };
    for block in BLOCKS {
        let before = is(&mut texts, block.file)?;
        texts.insert(block.file.into(), block.put(root, course, &before)?);
    }
    for file in in_checkout(root, paths::PAGES.trim_end_matches('/'))? {
        let before = is(&mut texts, &file)?;
        texts.insert(file.clone(), paths::put(course, &file, &before)?);
    }
    let mut stale = BTreeMap::new();
    for (file, text) in texts {
        if text != read(root, &file)? {
            stale.insert(file, text);
        }
    }
    Ok(stale)
}

/// Writes a file of the checkout, completely or not at all.
pub(super) fn replace(root: &Path, file: &str, text: &str) -> Result<(), BadInput> {
    files::replace(&root.join(file), text.as_bytes()).map_err(|error| {
        BadInput::new(format!("cannot write {file}: {error}"), "make the checkout yours to write")
    })
}
