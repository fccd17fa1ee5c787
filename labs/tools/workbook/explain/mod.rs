//! `workbook explain`: which rank is missing in a PyTorch job that stands, as its own records say.
//!
//! When ranks wait, PyTorch's flight recorder can write the last calls of each rank, as a pickle or
//! as JSON, and `py-spy dump` the place where a rank is. None of these files is trusted: what is no
//! dump, or a broken one, is refused by its name, and no pickle runs.
//!
//! Reading order: `dump.rs` (one rank's calls), `stack.rs` (where py-spy saw it), `job.rs` (all
//! ranks, and who is in which group), `differ.rs` (calls of one number that do not fit together),
//! `find.rs` (where the job stands, and the verdict), `tell.rs` (the screen).

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
    let mut stacks: BTreeMap<usize, String> = BTreeMap::new();
    for path in paths {
        let refuse = |how: String| BadInput::new(format!("{}: {how}", path.display()), HELP);
        let rank = rank_of(path).ok_or_else(|| refuse("its name has no rank".to_string()))?;
        let bytes = files::read(path, FILE)
            .map_err(|error| refuse(format!("it cannot be read: {error}")))?;
        let is_second = if is_dump(&bytes) {
            dumps.insert(rank, read(&bytes).map_err(refuse)?).is_some()
        } else {
            stacks.insert(rank, stack::read(&bytes).map_err(refuse)?).is_some()
        };
        if is_second {
            return Err(refuse(format!("another file is of rank {rank}, too")));
        }
    }
    let job = Job::new(&dumps, &stacks);
    let [verdict, others] = find::find(&job);
    Ok(tell::found(screen, &job, &verdict, &others))
}

/// The number after `rank` in a file's name, or else its last number.
fn rank_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let numbers =
        |text| str::split(text, |c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let after = name.split_once("rank").and_then(|(_, after)| numbers(after).next());
    let number = after.or_else(|| numbers(&name).next_back())?;
    number.parse().ok().filter(|rank| *rank < dump::RANKS)
}

fn is_dump(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x80") || bytes.trim_ascii_start().starts_with(b"{")
}

fn read(bytes: &[u8]) -> Result<Dump, String> {
    if bytes.starts_with(b"\x80") {
        let graph = deepspeed::torch::read_pickle(bytes)?;
        return Dump::read(dump::plain(graph.root(), &mut { dump::VALUES })?);
    }
    Dump::read(serde_json::from_slice(bytes).map_err(|error| format!("broken JSON: {error}"))?)
}
