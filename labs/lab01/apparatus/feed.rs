//! Feeds ranks from files: decides which rank reads which bytes, and when.
//!
//! At each step every rank needs its own batch. Each rank can read its own file, or its slice of
//! one shared file. Or a few ranks read and scatter to the rest, so that the file system gets few
//! large requests instead of many small ones. A rank that reads can read the next batch while the
//! device computes on this one.

use anyhow::{Context, Result};
use shardlab::comm::{Comm, Link};
use shardlab::data::Uniform;
use shardlab::error::BadInput;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The choice of the ranks that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Every rank reads its own file.
    EachFile,
    /// Every rank reads its slice of one file.
    SharedFile,
    /// This many ranks read from one file, and scatter to the ranks after them.
    Readers(usize),
}

impl Feed {
    /// Parses `each-file`, `shared-file`, or `readers` and a number from 1 to `ranks`.
    ///
    /// # Errors
    ///
    /// If the words are none of these, or the number of readers is not from 1 to `ranks`.
    pub fn parse(words: &[String], ranks: usize) -> Result<Feed, BadInput> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = "give each-file, shared-file, or readers and a number, as in --feed readers 2";
        match words[..] {
            ["each-file"] => Ok(Feed::EachFile),
            ["shared-file"] => Ok(Feed::SharedFile),
            ["readers", count] => match count.parse() {
                Ok(count) if (1..=ranks).contains(&count) => Ok(Feed::Readers(count)),
                _ => {
                    let help = format!(
                        "give --feed readers and a number from 1 to {ranks}, the number of ranks"
                    );
                    Err(BadInput::new(format!("--feed readers {count} is not possible"), help))
                }
            },
            _ => Err(BadInput::new(format!("--feed {} is unknown", words.join(" ")), help)),
        }
    }

    /// The number of ranks that read, out of `ranks`.
    pub fn readers(self, ranks: usize) -> usize {
        match self {
            Feed::EachFile | Feed::SharedFile => ranks,
            Feed::Readers(count) => count,
        }
    }
}

/// The batches of all ranks and steps, in files, and the cost of reading them.
#[derive(Clone, Debug)]
pub struct Store {
    pub folder: PathBuf,
    /// Numbers per batch.
    pub batch: usize,
    pub steps: usize,
    /// Simulates one file server for all ranks. It answers requests one after the other, each after
    /// `latency`, and sends `bandwidth` bytes per second in total. `None` reads at this machine's
    /// own speed.
    pub disk: Option<Link>,
}

/// The outcome of feeding one rank.
pub struct Fed {
    /// Seconds from the rank's request for its batch to the batch's arrival, for each step.
    pub waits: Vec<f64>,
    /// Whether every batch belonged to this rank and step.
    pub right: bool,
}

impl Store {
    /// The batch of one rank and step.
    fn numbers(&self, rank: usize, step: usize) -> Vec<f32> {
        Uniform { seed: 1337, rank, batch: 1, width: self.batch }.batch(step)
    }

    fn path(&self, feed: Feed, rank: usize) -> PathBuf {
        match feed {
            Feed::EachFile => self.folder.join(format!("rank-{rank}.f32")),
            Feed::SharedFile | Feed::Readers(_) => self.folder.join("all-ranks.f32"),
        }
    }

    fn batch_bytes(&self) -> usize {
        self.batch * size_of::<f32>()
    }

    /// Writes the files that `feed` reads.
    ///
    /// # Errors
    ///
    /// If a file cannot be written, or a rank does not come to the barrier.
    pub fn write(&self, comm: &Comm, feed: Feed) -> Result<()> {
        let path = self.path(feed, comm.rank());
        let ranks = comm.size();
        if feed == Feed::EachFile {
            self.write_one(&path, (0..self.steps).map(|step| (comm.rank(), step)))?;
        } else if comm.rank() == 0 {
            // The batches of all ranks are side by side within a step.
            self.write_one(
                &path,
                (0..self.steps).flat_map(|step| (0..ranks).map(move |rank| (rank, step))),
            )?;
        }
        Ok(comm.barrier()?)
    }

    fn write_one(&self, path: &Path, batches: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.folder)?;
            let mut file = shardlab::files::create(path)?;
            for (rank, step) in batches {
                file.write_all(bytemuck::cast_slice(&self.numbers(rank, step)))?;
            }
            Ok(())
        };
        let help = "give --out a folder that can be written";
        Ok(write().map_err(|error| {
            BadInput::new(format!("cannot write {}: {error}", path.display()), help)
        })?)
    }

    /// Removes the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be removed, or a rank does not come to the barrier.
    pub fn remove(&self, comm: &Comm, feed: Feed) -> Result<()> {
        comm.barrier()?;
        if feed == Feed::EachFile || comm.rank() == 0 {
            std::fs::remove_file(self.path(feed, comm.rank())).context("removing the batches")?;
        }
        Ok(())
    }

    /// Seconds that the file server needs for one step of all ranks.
    pub fn disk_seconds(&self, feed: Feed, ranks: usize) -> f64 {
        let bytes = (ranks * self.batch_bytes()) as f64;
        self.disk
            .map_or(0.0, |disk| feed.readers(ranks) as f64 * disk.latency + bytes / disk.bandwidth)
    }

    /// Feeds this rank for all steps. In each, the device computes for `compute`. With `preload`,
    /// the rank reads the next batch meanwhile.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or a rank of the group has ended.
    pub fn feed(&self, comm: &Comm, feed: Feed, compute: Duration, preload: bool) -> Result<Fed> {
        let rank = comm.rank();
        let ranks = comm.size();
        // A group has one reader, and all ranks that it reads for.
        let group = comm.split((rank * feed.readers(ranks) / ranks) as u64, rank as i64)?;
        let reader = Reader {
            path: self.path(feed, rank),
            // Offsets in the file count batches. This rank reads `count` of them per step.
            first: if feed == Feed::EachFile { 0 } else { rank },
            stride: if feed == Feed::EachFile { 1 } else { ranks },
            count: group.size(),
            batch_bytes: self.batch_bytes(),
            disk: Duration::from_secs_f64(self.disk_seconds(feed, ranks)),
        };
        let reads = group.rank() == 0;
        let mut next: Option<JoinHandle<Result<Vec<u8>>>> = None;
        let mut fed = Fed { waits: Vec::new(), right: true };
        let mut mine = vec![0u8; self.batch_bytes()];
        for step in 0..self.steps {
            comm.barrier()?;
            let start = Instant::now();
            let read = match next.take() {
                _ if !reads => Vec::new(),
                Some(in_flight) => {
                    in_flight.join().ok().context("the thread that reads ahead has panicked")??
                }
                None => reader.read(step)?,
            };
            group.scatter(&read, &mut mine, 0)?;
            fed.waits.push(start.elapsed().as_secs_f64());

            if preload && reads && step + 1 < self.steps {
                let reader = reader.clone();
                next = Some(thread::spawn(move || reader.read(step + 1)));
            }
            // An accelerator would compute now. The CPU is free.
            thread::sleep(compute);
            fed.right &= mine == bytemuck::cast_slice::<f32, u8>(&self.numbers(rank, step));
        }
        Ok(fed)
    }
}

/// Reads one rank's bytes.
#[derive(Clone)]
struct Reader {
    path: PathBuf,
    first: usize,
    stride: usize,
    count: usize,
    batch_bytes: usize,
    disk: Duration,
}

impl Reader {
    /// Reads the batches of one step, for all ranks of the reader's group.
    fn read(&self, step: usize) -> Result<Vec<u8>> {
        let start = Instant::now();
        let mut bytes = vec![0; self.count * self.batch_bytes];
        let mut read = || -> std::io::Result<()> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(
                ((step * self.stride + self.first) * self.batch_bytes) as u64,
            ))?;
            file.read_exact(&mut bytes)
        };
        read().with_context(|| format!("cannot read {}", self.path.display()))?;
        thread::sleep(self.disk.saturating_sub(start.elapsed()));
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;

    fn feed(words: &str, ranks: usize) -> Result<Feed, BadInput> {
        Feed::parse(&words.split(' ').map(String::from).collect::<Vec<_>>(), ranks)
    }

    #[test]
    fn every_rank_gets_its_own_batches_in_every_way() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            folder: folder.path().join("a"),
            batch: 33,
            steps: 3,
            disk: None,
        };
        for ranks in [1, 2, 5] {
            let ways = [
                Feed::EachFile,
                Feed::SharedFile,
                Feed::Readers(1),
                Feed::Readers(ranks.min(2)),
                Feed::Readers(ranks),
            ];
            for (feed, preload) in ways.into_iter().flat_map(|feed| [(feed, false), (feed, true)]) {
                let fed = launch::run(ranks, |comm| {
                    store.write(&comm, feed)?;
                    let fed = store.feed(&comm, feed, Duration::ZERO, preload)?;
                    store.remove(&comm, feed)?;
                    Ok(fed)
                });
                for fed in fed.unwrap() {
                    assert!(
                        fed.right && fed.waits.len() == 3,
                        "{feed:?} on {ranks} ranks, preload: {preload}"
                    );
                }
                assert_eq!(std::fs::read_dir(&store.folder).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn a_batch_of_another_rank_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            folder: folder.path().into(),
            batch: 33,
            steps: 2,
            disk: None,
        };
        let fed = launch::run(2, |comm| {
            store.write(&comm, Feed::EachFile)?;
            if comm.rank() == 1 {
                std::fs::copy(store.path(Feed::EachFile, 0), store.path(Feed::EachFile, 1))?;
            }
            store.feed(&comm, Feed::EachFile, Duration::ZERO, true)
        });
        assert_eq!(fed.unwrap().iter().map(|fed| fed.right).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn the_disk_takes_its_time_and_reading_ahead_hides_it() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Link { latency: 0.5, bandwidth: 1e6 };
        let store = Store {
            folder: folder.path().into(),
            batch: 2500,
            steps: 2,
            disk: Some(disk),
        };
        assert!((store.disk_seconds(Feed::EachFile, 2) - 1.02).abs() < 1e-12);
        assert!((store.disk_seconds(Feed::Readers(1), 2) - 0.52).abs() < 1e-12);
        let fed = launch::run(2, |comm| {
            store.write(&comm, Feed::Readers(1))?;
            store.feed(&comm, Feed::Readers(1), Duration::from_millis(600), true)
        });
        let waits = &fed.unwrap()[0].waits;
        // Nothing was read ahead of the first batch. Of the second, which had been read, only a
        // stall takes so long.
        assert!(waits[0] >= 0.52 && waits[1] < 0.5, "{waits:?}");
    }

    #[test]
    fn feeds_are_read_as_people_write_them() {
        assert_eq!(feed("each-file", 4), Ok(Feed::EachFile));
        assert_eq!(feed("readers 2", 4), Ok(Feed::Readers(2)));
        for (words, what) in [
            ("readers 0", "--feed readers 0 is not possible"),
            ("readers 5", "--feed readers 5 is not possible"),
            ("readers x", "--feed readers x is not possible"),
            ("readers", "--feed readers is unknown"),
            ("each-file 2", "--feed each-file 2 is unknown"),
            ("tape", "--feed tape is unknown"),
        ] {
            assert_eq!(feed(words, 4).unwrap_err().what, what);
        }
    }
}
