//! A participant's document in the folder of a room.
//!
//! Everyone writes there at the same time, and on a hub everyone has the same user name. So a
//! file's name is a number that belongs to the participant's own folder: two people never share a
//! file, and who submits again replaces what they submitted before.

use super::desk::Desk;
use super::document::Document;
use shardlab::error::BadInput;
use shardlab::files;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// The file in the participant's folder that keeps the number.
const NUMBER: &str = ".participant";

/// Writes the document to `folder`, and returns the path of its file. A report that is made
/// meanwhile reads the old file or the new one, and never a half of it.
///
/// # Errors
/// If a file cannot be written, in the folder or on the desk.
pub fn submit(folder: &Path, desk: &Desk, document: &Document) -> Result<PathBuf, BadInput> {
    let kept = desk.my.join(NUMBER);
    let number = match std::fs::read_to_string(&kept) {
        Ok(number) => number,
        Err(_) => {
            let number = format!("{:08x}", RandomState::new().hash_one(()) as u32);
            desk.write(&kept, number.as_bytes())?;
            number
        }
    };
    let path = folder.join(format!("{number}.json"));
    let text = serde_json::to_string_pretty(document).expect("plain records") + "\n";
    files::replace(&path, text.as_bytes()).map_err(|error| {
        BadInput::new(
            format!("cannot write {}: {error}", path.display()),
            "give the folder that the instructor named; everyone must be able to write there",
        )
    })?;
    Ok(path)
}
