//! A checkpoint of life 1: each rank's slices of the model in files of its own, and a record of the
//! run.
//!
//! ```text
//! step-120/  rank0.values  rank1.values      slices of blocks 0, 1, ... and of the ends: f32
//!            rank0.exp_avg ...               the same of Adam's first and second moments
//!            run.json                        counters, loss scale, lengths: written last
//! ```
//!
//! The library's checkpoints have a reader of their own. Here the part `load` is the reader.

use crate::parts::load::Files;
use crate::parts::{Counters, Scaler};
use crate::plan::RANKS_1;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use shardlab::checkpoint::files::read_at;
use shardlab::files;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is saved of each parameter: its values, and Adam's two moments.
pub const KINDS: [&str; 3] = ["values", "exp_avg", "exp_avg_sq"];

/// The run, as a checkpoint records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub counters: Counters,
    pub scaler: Scaler,
    pub optimizer_steps: u64,
    /// Numbers in each rank's slice of each line, padding included.
    pub slices: Vec<usize>,
}

/// The folder of a checkpoint.
pub fn folder(run: &Path, step: usize) -> PathBuf {
    run.join(format!("step-{step}"))
}

fn file(folder: &Path, rank: usize, kind: &str) -> PathBuf {
    folder.join(format!("rank{rank}.{kind}"))
}

/// Writes a rank's numbers of one kind.
pub fn write(folder: &Path, rank: usize, kind: &str, numbers: &[f32]) -> Result<()> {
    let path = file(folder, rank, kind);
    fs::create_dir_all(folder)
        .and_then(|()| files::create(&path)?.write_all(bytemuck::cast_slice(numbers)))
        .with_context(|| path.display().to_string())
}

/// The numbers that [`write()`] has written; none if there is no such file.
pub fn read(folder: &Path, rank: usize, kind: &str) -> Vec<f32> {
    numbers(&fs::read(file(folder, rank, kind)).unwrap_or_default())
}

/// Removes what a run of so many steps has saved. A folder that is empty then goes, too.
pub fn clear(run: &Path, steps: usize) {
    for step in 1..=steps {
        fs::remove_dir_all(folder(run, step)).ok();
    }
    fs::remove_dir(run).ok();
}

/// Ends a checkpoint. A rank that is killed before leaves no record, and so no checkpoint.
pub fn finish(folder: &Path, record: &Record) -> Result<()> {
    Ok(shardlab::files::replace(
        &folder.join("run.json"),
        &serde_json::to_vec_pretty(record)?,
    )?)
}

pub fn read_record(folder: &Path) -> Result<Record> {
    let path = folder.join("run.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

/// One line of the old ranks' files: a block, or the ends.
pub struct Saved {
    files: Vec<PathBuf>,
    /// Where the line begins in each file, in numbers.
    start: usize,
    numel: usize,
}

impl Saved {
    pub fn new(folder: &Path, record: &Record, kind: &str, line: usize) -> Saved {
        Saved {
            files: (0..RANKS_1).map(|rank| file(folder, rank, kind)).collect(),
            start: record.slices[..line].iter().sum(),
            numel: record.slices[line],
        }
    }
}

impl Files for Saved {
    fn ranks(&self) -> usize {
        self.files.len()
    }

    fn numel(&self) -> usize {
        self.numel
    }

    fn read(&mut self, rank: usize, range: Range<usize>) -> Vec<f32> {
        let offset = 4 * (self.start + range.start) as u64;
        match read_at(&self.files[rank], offset, 4 * range.len()) {
            Ok(bytes) => numbers(&bytes),
            Err(error) => panic!("the file of rank {rank}: {error}"),
        }
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|&four| f32::from_le_bytes(four)).collect()
}
