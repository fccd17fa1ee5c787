//! What `py-spy dump` printed of a rank: where its main thread is.

use super::dump::{name, place};

pub struct Stack {
    /// The call of PyTorch that the rank waits in, if it is in one.
    pub op: Option<String>,
    /// `train.py:17 in step`.
    pub line: Option<String>,
}

impl Stack {
    /// Reads the frames of the main thread, or of the first where none is called so.
    pub fn read(text: &str) -> Result<Stack, String> {
        let has_main = text.contains("\"MainThread\"");
        let is_it = |line: &&str| {
            line.starts_with("Thread ") && (!has_main || line.contains("\"MainThread\""))
        };
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        lines
            .find(is_it)
            .ok_or("it is no dump of a flight recorder, and nothing that py-spy printed")?;
        // Deeper lines are local variables.
        let frames: Vec<_> = lines
            .take_while(|line| line.starts_with("    "))
            .filter(|line| !line.starts_with("     "))
            .filter_map(frame)
            .collect();
        frames.first().ok_or("py-spy printed no frame of its main thread")?;
        let theirs = frames.iter().filter(|(_, file, _)| file.ends_with("distributed_c10d.py"));
        let mut theirs = theirs.filter(|(function, _, _)| !function.contains("wrapper"));
        Ok(Stack {
            op: theirs.next_back().map(|(function, _, _)| name(function)),
            line: frames.iter().find_map(|(function, file, line)| place(file, line, function)),
        })
    }
}

/// `    step (train.py:17)`: function, file and line.
fn frame(text: &str) -> Option<(&str, &str, &str)> {
    let (function, place) = text.trim().strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    Some((function, file, line))
}
