//! Writes what follows from `labs/labs.toml` into the checkout's files.

use super::{BLOCKS, course, read};
use anyhow::Result;
use kit::Course;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::files;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Writes all blocks, then the minutes of pages and paths.
pub(super) fn update(screen: &Screen, root: &Path) -> Result<(), BadInput> {
    let course = course(root)?;
    let mut written = write(root, &course)?;
    minutes(root)?;
    // A timetable has the minutes of its path.
    let after = write(root, &course)?;
    if !after.is_empty() {
        minutes(root)?;
    }
    written.extend(after);
    for file in &written {
        screen.say(screen.row("written", file));
    }
    if written.is_empty() {
        screen.say(screen.row("blocks", "all were up to date"));
    }
    Ok(())
}

/// Writes the blocks that are not up to date, and returns their files. Nothing is written if one of
/// them cannot be made.
pub(super) fn write(root: &Path, course: &Course) -> Result<Vec<&'static str>, BadInput> {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for block in BLOCKS {
        let before = match texts.remove(block.file) {
            Some(text) => text,
            None => read(root, block.file)?,
        };
        texts.insert(block.file, block.put(root, course, &before)?);
    }
    let mut written = Vec::new();
    for (file, text) in texts {
        if text != read(root, file)? {
            replace(root, file, &text)?;
            written.push(file);
        }
    }
    Ok(written)
}

/// Writes a file of the checkout, completely or not at all.
pub(super) fn replace(root: &Path, file: &str, text: &str) -> Result<(), BadInput> {
    files::replace(&root.join(file), text.as_bytes()).map_err(|error| {
        BadInput::new(format!("cannot write {file}: {error}"), "make the checkout yours to write")
    })
}

/// What pages and paths say about minutes, which another program writes: it runs labs. Cargo builds
/// it with the labs as they are now.
fn minutes(root: &Path) -> Result<(), BadInput> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let arguments = ["run", "--quiet", "--bin", "book", "--", "minutes"];
    let ended = Command::new(cargo).args(arguments).current_dir(root).status();
    let why = match ended {
        Ok(ended) if ended.success() => return Ok(()),
        Ok(ended) => ended.to_string(),
        Err(error) => error.to_string(),
    };
    let what = format!("the blocks are written, but not the minutes of pages and paths: {why}");
    Err(BadInput::new(
        what,
        "mend what is said above, then:  cargo run --bin book -- minutes",
    ))
}
