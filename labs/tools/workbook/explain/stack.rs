//! What `py-spy dump` printed of a rank: where its main thread is.

use super::dump::place;

const MAIN: &str = "\"MainThread\"";

/// The reader's own line that the main thread is at, or the first one where none is called so:
/// `train.py:17 in step`.
pub fn read(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is neither a pickle nor text")?;
    let has_main = text.contains(MAIN);
    let is_it = |line: &&str| line.starts_with("Thread ") && (!has_main || line.contains(MAIN));
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let other = "it is no dump of a flight recorder, and nothing that py-spy printed";
    lines.find(is_it).ok_or(other)?;
    // Deeper lines are local variables.
    let frames = lines.take_while(|line| line.starts_with("    "));
    let mut frames = frames.filter(|line| !line.starts_with("     "));
    Ok(frames.find_map(own).unwrap_or_else(|| "a line that is not yours".to_string()))
}

/// Of `    step (train.py:17)`.
fn own(frame: &str) -> Option<String> {
    let (function, at) = frame.trim().strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = at.rsplit_once(':')?;
    place(file, line, function)
}
