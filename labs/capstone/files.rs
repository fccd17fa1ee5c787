//! A checkpoint of life 1: each rank's slices in files of its own, what every rank has in rank 0's,
//! and a record of the run.
//!
//! ```text
//! step-120/  rank0.values  rank1.values      slices of blocks 0, 1, ...: f32, little-endian
//!            rank0.exp_avg ...               the same of Adam's first and second moments
//!            ends.values ...                 token table, positions, last norm
//!            run.json                        counters, loss scale, lengths
//! ```

use crate::parts::load::Files;
use crate::parts::{Counters, Scaler};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
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
    /// The ranks that have slices.
    pub ranks: usize,
    /// Numbers in each rank's slice of each block, padding included.
    pub slices: Vec<usize>,
}

/// The folder of a checkpoint.
pub fn folder(run: &Path, step: usize) -> PathBuf {
    run.join(format!("step-{step}"))
}

/// Writes numbers to a file of a checkpoint that is being written.
pub fn write(folder: &Path, owner: &str, kind: &str, lines: &[&[f32]]) -> Result<()> {
    let path = folder.join(format!("{owner}.{kind}"));
    let bytes: Vec<u8> = lines
        .iter()
        .flat_map(|line| bytemuck::cast_slice::<f32, u8>(line))
        .copied()
        .collect();
    fs::write(&path, bytes).with_context(|| path.display().to_string())
}

/// All numbers that [`write()`] has written.
pub fn read(folder: &Path, owner: &str, kind: &str) -> Result<Vec<f32>> {
    let path = folder.join(format!("{owner}.{kind}"));
    Ok(numbers(&fs::read(&path).with_context(|| path.display().to_string())?))
}

/// Removes the checkpoints of a run of so many steps, and its last weights. A folder that is empty
/// then goes, too.
pub fn clear(run: &Path, steps: usize) {
    for step in 1..=steps {
        fs::remove_dir_all(folder(run, step)).ok();
        fs::remove_dir_all(folder(run, step).with_extension("part")).ok();
    }
    fs::remove_file(run.join(format!("final.{}", KINDS[0]))).ok();
    fs::remove_dir(run).ok();
}

/// Ends a checkpoint: it gets its name when all of it is there, so that a rank that is killed
/// leaves no half of one.
pub fn finish(part: &Path, folder: &Path, record: &Record) -> Result<()> {
    fs::write(part.join("run.json"), serde_json::to_vec_pretty(record)?)?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(part, folder).with_context(|| folder.display().to_string())
}

pub fn read_record(folder: &Path) -> Result<Record> {
    let path = folder.join("run.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

/// One line of numbers in the old ranks' files: a block, or the ends in one file.
pub struct Line {
    files: Vec<PathBuf>,
    /// Where the line begins in each file, in numbers.
    start: usize,
    numel: usize,
    /// Bytes that were read.
    pub read: usize,
}

impl Line {
    /// A block.
    pub fn block(folder: &Path, record: &Record, kind: &str, block: usize) -> Line {
        let file = |rank| folder.join(format!("rank{rank}.{kind}"));
        Line {
            files: (0..record.ranks).map(file).collect(),
            start: record.slices[..block].iter().sum(),
            numel: record.slices[block],
            read: 0,
        }
    }

    /// What every old rank had.
    pub fn ends(folder: &Path, kind: &str, numel: usize) -> Line {
        Line {
            files: vec![folder.join(format!("ends.{kind}"))],
            start: 0,
            numel,
            read: 0,
        }
    }
}

impl Files for Line {
    fn ranks(&self) -> usize {
        self.files.len()
    }

    fn numel(&self) -> usize {
        self.numel
    }

    fn read(&mut self, rank: usize, range: Range<usize>) -> Vec<f32> {
        assert!(
            range.start <= range.end && range.end <= self.numel,
            "a file with {} numbers of this line was asked for {range:?}",
            self.numel
        );
        let bytes = self.files.get(rank).map(|path| {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(4 * (self.start + range.start) as u64))?;
            let mut bytes = vec![0; 4 * range.len()];
            file.read_exact(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        });
        self.read += 4 * range.len();
        match bytes {
            Some(Ok(bytes)) => numbers(&bytes),
            Some(Err(error)) => panic!("the file of rank {rank}: {error}"),
            None => {
                panic!("there is no file of rank {rank}: {} ranks have saved", self.files.len())
            }
        }
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|&four| f32::from_le_bytes(four)).collect()
}
