//! `workbook explain`: which rank is missing in a PyTorch job that stands, as its own records say.
//!
//! When ranks wait, PyTorch's flight recorder can write the last calls of each rank, as a pickle or
//! as JSON, and `py-spy dump` the place where a rank is. None of these files is trusted: what is no
//! dump, or a broken one, is refused by its name, and no pickle runs.
//!
//! Reading order: `dump.rs` (one rank's calls), `stack.rs`
//! (where py-spy saw it), `job.rs` (all ranks, and who is in which group), `differ.rs` (calls of
//! one number that do not fit together), `find.rs` (where the job stands, and the verdict),
//! `tell.rs` (the screen).

mod differ;
mod dump;
mod find;
mod job;
mod stack;
mod tell;
#[cfg(test)]
mod tests;

use dump::Dump;
use job::Job;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::files;
use stack::Stack;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of one file. A dump of 2,000 calls with their stacks has one million.
const FILE: u64 = 32 << 20;

const HELP: &str = "give the flight recorder's dumps, as pickle or JSON, and what `py-spy dump` \
    printed: one file a rank, with its rank in the name (rank2.json)";

/// Says what the files of a job's ranks show. The first line is the verdict.
///
/// # Errors
/// The file that cannot be read, is none that PyTorch or py-spy writes, or has no rank in its name.
pub fn explain(screen: &Screen, paths: &[PathBuf]) -> Result<String, BadInput> {
    let mut dumps: BTreeMap<usize, Dump> = BTreeMap::new();
    let mut stacks: BTreeMap<usize, Stack> = BTreeMap::new();
    for path in paths {
        let refuse = |how: String| BadInput::new(format!("{}: {how}", path.display()), HELP);
        let rank = rank_of(path).ok_or_else(|| refuse("its name has no rank".to_string()))?;
        let bytes = files::read(path, FILE)
            .map_err(|error| refuse(format!("it cannot be read: {error}")))?;
        let dump = match read(&bytes).map_err(refuse)? {
            File::Stack(stack) => {
                stacks.insert(rank, stack);
                continue;
            }
            File::Dump(dump) => dump,
        };
        // The same calls in both formats: the pickle has their lines.
        match dumps.get(&rank).map(|other| (other.has_lines(), dump.has_lines())) {
            Some((true, false)) => {}
            None | Some((false, true)) => drop(dumps.insert(rank, dump)),
            _ => return Err(refuse(format!("another file is of rank {rank}, too"))),
        }
    }
    if dumps.is_empty() {
        let what = "these are py-spy's stacks alone, which do not say which call a rank is in";
        return Err(BadInput::new(what, HELP));
    }
    let job = Job::new(dumps, stacks);
    Ok(tell::found(screen, &job, &find::find(&job)))
}

/// The number after `rank` in a file's name, or else its last number.
fn rank_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let after = name.split_once("rank").map_or("", |(_, after)| after);
    let after = after.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_number = |part: &&str| !part.is_empty();
    let mut parts = name.split(|c: char| !c.is_ascii_digit()).filter(is_number);
    let number = match after.split(|c: char| !c.is_ascii_digit()).next().filter(is_number) {
        Some(number) => number,
        None => parts.next_back()?,
    };
    number.parse().ok().filter(|rank| *rank < dump::RANKS)
}

enum File {
    Dump(Dump),
    Stack(Stack),
}

fn read(bytes: &[u8]) -> Result<File, String> {
    if bytes.starts_with(b"\x80") {
        let graph = deepspeed::torch::read_pickle(bytes)?;
        let value = dump::plain(graph.root(), &mut { dump::VALUES })?;
        return Dump::read(value).map(File::Dump);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is neither a pickle nor text")?;
    if text.trim_start().starts_with('{') {
        let value = serde_json::from_str(text).map_err(|error| format!("broken JSON: {error}"))?;
        return Dump::read(value).map(File::Dump);
    }
    Stack::read(text).map(File::Stack)
}
