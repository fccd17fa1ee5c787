//! Checkpoints of a training: what it needs to continue as if it had not been interrupted.
//!
//! Each rank writes its own state, so a save takes as long as the largest rank's, whatever the
//! number of ranks. The ranks write into a folder beside the complete checkpoints. When all files
//! are on the disk, rank 0 writes the manifest and renames the folder. So a kill at any moment
//! leaves the earlier checkpoints, and never half of one that looks whole.
//!
//! A save stops the training only while it copies the state ([`Checkpoints::start`]). Threads write
//! the copy and complete the checkpoint while the training continues ([`Writing::advance`]), and
//! [`Writing::finish`] waits for them.

use super::agree::{agree, broadcast_bytes, broadcast_text};
use super::lock::Claim;
use super::manifest::{FileEntry, Job, Manifest, Run, rank_file};
use super::shard::{self, Shard};
use super::{files, saves};
use crate::comm::Comm;
use crate::error::{BadInput, printable};
use crate::parallel::Zero;
use crate::sha256;
use anyhow::{Result, anyhow};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread::JoinHandle;

/// The name of all runs whose checkpoints nobody else reads.
const SCRATCH: &str = "scratch";

/// The checkpoint that a run begins with, as `--resume` names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// None: a fresh start.
    None,
    /// The newest one that is whole and of this run.
    #[default]
    Auto,
    /// The one in this folder.
    Path(PathBuf),
}

impl FromStr for Resume {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Resume, Infallible> {
        Ok(match text {
            "none" => Resume::None,
            "auto" => Resume::Auto,
            path => Resume::Path(path.into()),
        })
    }
}

/// The checkpoints of one run, in one folder that all ranks can reach.
///
/// A new training takes the third step of the one that was saved after two, bit for bit:
///
/// ```
/// use shardlab::checkpoint::{Checkpoints, Resume};
/// use shardlab::comm::Comm;
/// use shardlab::data::Corpus;
/// use shardlab::parallel::Strategy;
/// use shardlab::train::{Config, Training};
///
/// let corpus = Corpus::embedded()?;
/// let begin = || Training::new(&Config::default(), &Strategy::default(), &Comm::alone());
/// let dir = tempfile::tempdir()?; // it is removed at the end
///
/// let mut training = begin()?;
/// let checkpoints = Checkpoints::new(dir.path(), 3, training.job(&corpus.train), &Comm::alone());
/// for step in 0..2 {
///     training.step(&corpus.train, step)?;
/// }
/// checkpoints.save(2, &mut training.zero, &"my own record")?;
///
/// let mut resumed = begin()?;
/// let saved = checkpoints.resume::<String>(&Resume::Auto, &mut resumed.zero)?;
/// assert_eq!(saved.map(|saved| saved.step), Some(2));
/// let third = training.step(&corpus.train, 2)?.loss;
/// assert_eq!(resumed.step(&corpus.train, 2)?.loss, third);
/// # anyhow::Ok(())
/// ```
pub struct Checkpoints {
    /// The folder of all of them.
    pub dir: PathBuf,
    /// Complete checkpoints of this run that stay; older ones are removed. Those of other runs stay
    /// in any case.
    pub keep: usize,
    pub job: Job,
    /// All ranks of the run.
    pub comm: Comm,
    /// Whether the run may continue from a checkpoint of other settings.
    pub anyway: bool,
    /// Whether rank 0 alone reads checkpoints, and the others get their state from it. Otherwise
    /// each rank reads its own file.
    pub rank0_reads: bool,
    /// Bytes of checkpoints that this rank has read.
    pub bytes_read: Cell<usize>,
    claim: OnceCell<Claim>,
    run: RefCell<Run>,
}

/// A state from which a run continues.
#[derive(Debug)]
pub struct Resumed<R> {
    pub folder: PathBuf,
    /// Steps that the run had made.
    pub step: usize,
    /// The trainer's own state, as [`Checkpoints::start`] got it.
    pub record: R,
    /// Settings that the run has changed, now or when it was resumed before.
    pub changes: Vec<String>,
    /// Newer checkpoints that could not be used, and why.
    pub rejected: Vec<BadInput>,
}

impl Checkpoints {
    /// The checkpoints of a job in a folder. It is claimed by [`Checkpoints::claim`] or by the
    /// first save.
    pub fn new(dir: impl Into<PathBuf>, keep: usize, job: Job, comm: &Comm) -> Checkpoints {
        Checkpoints {
            dir: dir.into(),
            keep,
            job,
            comm: comm.clone(),
            anyway: false,
            rank0_reads: false,
            bytes_read: Cell::new(0),
            claim: OnceCell::new(),
            run: RefCell::new(Run::new()),
        }
    }

    /// Checkpoints that only this run reads. A later run of the same kind removes them.
    pub fn scratch(self) -> Checkpoints {
        self.run.replace(Run { id: SCRATCH.to_string(), changes: Vec::new() });
        self
    }

    /// Refuses a folder to which a different job saves, and keeps other jobs out of it until this
    /// is dropped. All ranks call it, before the work begins. Who only reads needs no claim.
    ///
    /// # Errors
    /// On every rank, if a different job saves to the folder, or rank 0 cannot write there.
    pub fn claim(&self) -> Result<()> {
        if self.claim.get().is_none() {
            self.claim.set(Claim::take(&self.comm, &self.dir)?).ok();
        }
        Ok(())
    }

    /// The run's name, which its checkpoints have.
    pub fn run(&self) -> String {
        self.run.borrow().id.clone()
    }

    /// Saves the state after `step` steps. Returns the checkpoint's folder. All ranks call it.
    ///
    /// # Errors
    /// On every rank, if any of them cannot write. Earlier checkpoints stay.
    pub fn save(&self, step: usize, zero: &mut Zero, record: &impl Serialize) -> Result<PathBuf> {
        self.start(step, zero, record)?.finish()
    }

    /// Copies the state, and begins to write the copy. All ranks call it, and [`Writing::finish`]
    /// before the next save. `record` is the trainer's own state; it must be the same on all ranks.
    ///
    /// # Errors
    /// On every rank, if the folder belongs to a different job, or rank 0 cannot write there.
    pub fn start(
        &self,
        step: usize,
        zero: &mut Zero,
        record: &impl Serialize,
    ) -> Result<Writing<'_>> {
        self.claim()?;
        let first = self.comm.rank() == 0;
        let comm = &self.comm;
        let side = if first {
            saves::begin(&self.dir)
        } else {
            Ok(Default::default())
        };
        let (folder, number) = agree(comm, side)?.map_err(|error| anyhow!("{error}"))?;
        let folder = broadcast_text(comm, folder.to_string_lossy().into_owned(), 0)?;
        let folder = PathBuf::from(folder);
        let name = rank_file(comm.rank());
        let path = folder.join(&name);
        let bytes = shard::encode(zero)?;
        let write = move || {
            files::write(&path, &bytes)?;
            Ok(FileEntry { name, bytes: bytes.len() as u64, sha256: sha256::hex(&bytes) })
        };
        let record = serde_json::to_value(record)?;
        Ok(Writing {
            all: self,
            folder,
            number,
            step,
            record,
            work: Work::File(std::thread::spawn(write)),
        })
    }

    /// Puts the state of a checkpoint back. `None`: there is none, or none was asked for. All ranks
    /// call it, before the first step.
    ///
    /// # Errors
    /// On every rank, if the named checkpoint cannot be used by any of them: it is damaged,
    /// incomplete, or of a different run. With [`Resume::Auto`], if there are some and none can be
    /// used.
    pub fn resume<R: DeserializeOwned>(
        &self,
        resume: &Resume,
        zero: &mut Zero,
    ) -> Result<Option<Resumed<R>>> {
        match resume {
            Resume::None => Ok(None),
            Resume::Path(folder) => match self.load(folder, zero) {
                Ok(resumed) => Ok(Some(resumed)),
                Err(error) => Err(self.with_next_good(folder, error.downcast()?, zero)?.into()),
            },
            Resume::Auto => self.newest(zero),
        }
    }

    /// The newest checkpoint that all ranks can read.
    fn newest<R: DeserializeOwned>(&self, zero: &mut Zero) -> Result<Option<Resumed<R>>> {
        let mut rejected = Vec::new();
        for folder in self.candidates()? {
            match self.load(&folder, zero) {
                Ok(mut resumed) => {
                    resumed.rejected = rejected;
                    return Ok(Some(resumed));
                }
                Err(error) => rejected.push(error.downcast::<BadInput>()?),
            }
        }
        let Some(newest) = rejected.first() else {
            return Ok(None);
        };
        let reasons: Vec<String> =
            rejected.iter().map(|error| format!("\n  {}", error.what)).collect();
        let what =
            format!("no checkpoint in {} can be used:{}", self.dir.display(), reasons.concat());
        let again = "`resume` none starts again from step 1";
        // A damaged one's help is what was tried here.
        let help = if newest.help == files::DAMAGED {
            "give `resume` none to start again from step 1, or name a different folder".to_string()
        } else {
            format!("{}; {again}", newest.help)
        };
        Err(BadInput::new(what, help).into())
    }

    /// Folders to try, as rank 0 sees them.
    fn candidates(&self) -> Result<Vec<PathBuf>> {
        let names = if self.comm.rank() == 0 {
            saves::candidates(&self.dir).join("\n")
        } else {
            String::new()
        };
        let names = broadcast_text(&self.comm, names, 0)?;
        Ok(names.lines().map(|name| self.dir.join(name)).collect())
    }

    /// Adds the next good checkpoint to an error about the one in `folder`.
    fn with_next_good(&self, folder: &Path, error: BadInput, zero: &mut Zero) -> Result<BadInput> {
        for next in self
            .candidates()?
            .into_iter()
            .filter(|next| next.file_name() != folder.file_name())
        {
            if let Err(error) = self.read(&next, zero) {
                error.downcast::<BadInput>()?;
                continue;
            }
            let next = next.display();
            let help = format!("{}\n      a good checkpoint: `resume` {next}", error.help);
            return Ok(BadInput { help, ..error });
        }
        Ok(error)
    }

    /// Puts the state in `folder` back. If a rank cannot use its part, all get its [`BadInput`],
    /// and no rank changes anything.
    fn load<R: DeserializeOwned>(&self, folder: &Path, zero: &mut Zero) -> Result<Resumed<R>> {
        let (manifest, shard) = self.read(folder, zero)?;
        let Manifest { step, run, job, .. } = manifest;
        let record = serde_json::from_value(manifest.record).map_err(|error| {
            BadInput::new(format!("{}: {error}", folder.display()), files::DAMAGED)
        });
        let record = agree(&self.comm, record)??;
        shard.restore(zero)?;
        let run = self.goes_on(run, &job, step);
        let changes = run.changes.clone();
        self.run.replace(run);
        Ok(Resumed {
            folder: folder.to_path_buf(),
            step,
            record,
            changes,
            rejected: Vec::new(),
        })
    }

    /// The run of a checkpoint, as this job continues it after `step` steps.
    fn goes_on(&self, run: Run, saved: &Job, step: usize) -> Run {
        let new = self.job.changes(&saved.settings);
        // Other settings make a new run, so that the old one's checkpoints stay. Nor does a name go
        // on that many runs share.
        let same = new.is_empty() && run.id != SCRATCH;
        let mut changes: Vec<String> = run.changes.iter().map(|change| printable(change)).collect();
        changes.extend(
            new.into_iter()
                .map(|change| format!("from step {} on {change}", step.saturating_add(1))),
        );
        Run { id: if same { run.id } else { self.run() }, changes }
    }

    /// Reads and checks each rank's part of the checkpoint in `folder`. If that fails on a rank,
    /// all get its [`BadInput`].
    fn read(&self, folder: &Path, zero: &mut Zero) -> Result<(Manifest, Shard)> {
        let comm = &self.comm;
        let rank = comm.rank();
        let mut text = self.bytes(|| Manifest::text(folder))?;
        if self.rank0_reads {
            text = broadcast_bytes(comm, text, 0)?;
        }
        let fitting = Manifest::parse(&text, folder).and_then(|manifest| {
            manifest.ensure_of(&self.job, folder)?;
            if !self.anyway {
                manifest.ensure_settings(&self.job, folder)?;
            }
            Ok(manifest)
        });
        let manifest = agree(comm, fitting)??;
        let bytes = if self.rank0_reads {
            self.deal(&manifest, folder)?
        } else {
            self.bytes(|| manifest.rank(folder, rank))?
        };
        let shard = Shard::decode(bytes, zero).map_err(|error| {
            let path = folder.join(rank_file(rank));
            BadInput::new(
                format!("{} is not this rank's state: {error:#}", path.display()),
                files::DAMAGED,
            )
        });
        Ok((manifest, agree(comm, shard)??))
    }

    /// This rank's file, which rank 0 reads. If all files have one checksum, as in plain data
    /// parallelism, rank 0 reads one and broadcasts it. Otherwise it reads one after the other, and
    /// sends each to its rank.
    fn deal(&self, manifest: &Manifest, folder: &Path) -> Result<Vec<u8>> {
        let comm = &self.comm;
        let files = &manifest.files;
        let alike = files.iter().all(|file| file.sha256 == files[0].sha256);
        let mut mine = Vec::new();
        for (rank, file) in files.iter().enumerate().take(comm.size()) {
            let bytes = self.bytes(|| manifest.rank(folder, rank))?;
            if alike {
                return Ok(broadcast_bytes(comm, bytes, 0)?);
            }
            if rank == 0 {
                mine = bytes;
            } else if comm.rank() == 0 {
                comm.send(&bytes, rank)?;
            } else if comm.rank() == rank {
                mine.resize(file.bytes as usize, 0);
                comm.recv(&mut mine, 0)?;
            }
        }
        Ok(mine)
    }

    /// The bytes of a file, on the ranks that read it. All ranks wait for them, and get the error
    /// of one that cannot read.
    fn bytes(&self, read: impl FnOnce() -> Result<Vec<u8>, BadInput>) -> Result<Vec<u8>> {
        let reads = self.comm.rank() == 0 || !self.rank0_reads;
        let bytes = agree(&self.comm, if reads { read() } else { Ok(Vec::new()) })??;
        self.bytes_read.set(self.bytes_read.get() + bytes.len());
        Ok(bytes)
    }
}

/// A save in progress.
#[must_use = "a save is complete only after `finish`"]
pub struct Writing<'a> {
    all: &'a Checkpoints,
    /// Beside the complete checkpoints.
    folder: PathBuf,
    /// On rank 0.
    number: usize,
    step: usize,
    record: serde_json::Value,
    work: Work,
}

/// The thread that works on a save.
enum Work {
    /// It writes this rank's file.
    File(JoinHandle<Result<FileEntry, BadInput>>),
    /// All ranks have written. Rank 0's thread completes the checkpoint, and returns its name.
    Publish(JoinHandle<Result<String, BadInput>>),
}

impl<'a> Writing<'a> {
    /// Takes the save as far as it goes without waiting for a disk. Returns whether it is on the
    /// disk, so that [`finish`](Writing::finish) does not wait either. All ranks call it, after
    /// each step for example.
    ///
    /// # Errors
    /// If the communication fails: a rank that could not write says so in `finish`.
    pub fn advance(self) -> Result<(Writing<'a>, bool)> {
        let done = match &self.work {
            Work::File(thread) => thread.is_finished(),
            Work::Publish(thread) => thread.is_finished(),
        };
        let done = !self.all.comm.any(!done)?;
        match self.work {
            Work::File(_) if done => Ok((self.publish()?, false)),
            _ => Ok((self, done)),
        }
    }

    /// Waits until all ranks have written, and completes the save. If a rank could not write, every
    /// rank gets its error, and the earlier checkpoints stay. All ranks call it. Returns the
    /// checkpoint's folder.
    ///
    /// # Errors
    /// On every rank, if any of them could not write.
    pub fn finish(self) -> Result<PathBuf> {
        let all = self.all;
        let Writing { folder, work, .. } = self.publish()?;
        let published = match work {
            Work::Publish(thread) => joined(thread, &folder),
            Work::File(_) => unreachable!("it is published"),
        };
        let name = agree(&all.comm, published)?.map_err(|error| anyhow!("{error}"))?;
        Ok(all.dir.join(broadcast_text(&all.comm, name, 0)?))
    }

    /// Waits for all ranks' files, and begins to complete the checkpoint, or to remove it if a rank
    /// could not write.
    fn publish(self) -> Result<Writing<'a>> {
        let Work::File(file) = self.work else {
            return Ok(self);
        };
        let all = self.all;
        let comm = &all.comm;
        let files = match agree(comm, joined(file, &self.folder))? {
            Ok(mine) => Ok(gather(comm, &mine)?),
            Err(error) => Err(error),
        };
        let first = comm.rank() == 0;
        let dir = all.dir.clone();
        let keep = all.keep;
        let job = all.job.clone();
        let run = all.run.borrow().clone();
        let folder = self.folder.clone();
        let number = self.number;
        let step = self.step;
        let record = self.record.clone();
        let work = move || {
            if !first {
                return files.map(|_| String::new());
            }
            let published = files.and_then(|files| {
                let manifest = Manifest { job, run: run.clone(), step, files, record };
                manifest.write(&folder)?;
                saves::publish(&dir, &folder, number, step)
            });
            match &published {
                Ok(_) => saves::keep(&dir, keep, &run.id),
                Err(_) => files::discard(&folder),
            }
            published
        };
        Ok(Writing { work: Work::Publish(std::thread::spawn(work)), ..self })
    }
}

/// A thread's result.
fn joined<T>(thread: JoinHandle<Result<T, BadInput>>, folder: &Path) -> Result<T, BadInput> {
    let panicked =
        || BadInput::new(format!("the thread that writes {} ended", folder.display()), "try again");
    thread.join().unwrap_or_else(|_| Err(panicked()))
}

/// All ranks' files, in rank order.
fn gather(comm: &Comm, mine: &FileEntry) -> Result<Vec<FileEntry>> {
    let mine = serde_json::to_string(mine)?;
    let of_rank = |rank| {
        let entry = broadcast_text(comm, mine.clone(), rank)?;
        Ok(serde_json::from_str(&entry)?)
    };
    (0..comm.size()).map(of_rank).collect()
}
