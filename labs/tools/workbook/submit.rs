//! A participant's document in the folder of a room.
//!
//! Everyone writes there at the same time, and on a hub everyone has the same user name. So a
//! file's name has a number that belongs to the participant's own folder: two people never share a
//! file, and who submits again replaces what they submitted before.

use super::desk::Desk;
use super::document::Document;
use shardlab::error::BadInput;
use shardlab::{files, launch};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// The file in the participant's folder that keeps the number.
const NUMBER: &str = ".participant";

/// Writes the document to `folder`, and returns the path of its file. A report that is made
/// meanwhile reads the old file or the new one, and never a half of it.
///
/// # Errors
/// If a file cannot be written, in the folder or on the desk.
pub fn submit(folder: &Path, desk: &Desk, document: &Document) -> Result<PathBuf, BadInput> {
    let number = number(&desk.my).map_err(|error| {
        let what = format!("cannot write {}: {error}", desk.my.join(NUMBER).display());
        BadInput::new(what, "set SHARDLAB_MY to a folder that you can write")
    })?;
    let name = [document.who.as_str(), &launch::host_name()].map(plain);
    let name = format!("{}-{}-{number}.json", name[0], name[1]);
    let path = folder.join(&name);
    let text = serde_json::to_string_pretty(document).unwrap_or_default() + "\n";
    files::replace(&path, text.as_bytes()).map_err(|error| {
        BadInput::new(
            format!("cannot write {}: {error}", path.display()),
            "give the folder that the instructor named; everyone must be able to write there",
        )
    })?;
    remove_older(folder, &name, &number);
    Ok(path)
}

/// Removes what this participant has submitted under a different name, or from a different host.
/// Without the right to remove it, it stays.
fn remove_older(folder: &Path, name: &str, number: &str) {
    let own = format!("-{number}.json");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.ends_with(&own) && file != name {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// The number of this folder's participant: a random one, which stays.
fn number(my: &Path) -> io::Result<String> {
    let path = my.join(NUMBER);
    let is_number = |text: &String| text.len() == 16 && text.chars().all(|c| c.is_ascii_hexdigit());
    if let Some(number) = files::text(&path, files::LIST).ok().filter(is_number) {
        return Ok(number);
    }
    let number = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
    std::fs::create_dir_all(my)?;
    std::fs::write(path, &number)?;
    Ok(number)
}

/// The part of a name that is safe in a file's name.
fn plain(name: &str) -> String {
    let keep = |c: char| {
        if c.is_alphanumeric() || c == '_' { c } else { '-' }
    };
    let plain: String = name.chars().take(40).map(keep).collect();
    if plain.is_empty() { "nobody".to_string() } else { plain }
}
