//! The manifest of a checkpoint: the run that it belongs to, its files with their checksums, and
//! the trainer's own record.
//!
//! A file on a disk can end too early, or have one bit that flipped. So each file's length and
//! SHA-256 are recorded, and no file is used before they have been compared. `manifest.json.sha256`
//! has the manifest's own hash, in the form that `sha256sum --check` reads.

use super::files::{DAMAGED, LIST, read, size, write};
use crate::error::{BadInput, printable};
use crate::parallel::Strategy;
use crate::plan::ModelShape;
use crate::{launch, sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The manifest's name in a checkpoint's folder.
pub const MANIFEST: &str = "manifest.json";
const SUM: &str = "manifest.json.sha256";

/// What a step depends on beside the model and the seed, by the flags' names: the text, the batch,
/// the learning rate and its schedule. A run that changes one of them has to say so.
pub type Settings = BTreeMap<String, serde_json::Value>;

/// The run that a checkpoint belongs to. A different run cannot continue from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The model's shape.
    pub shape: ModelShape,
    /// Decides every batch and every dropout mask. So no random number generator has state that a
    /// checkpoint must store.
    pub seed: u64,
    pub ranks: usize,
    /// How the ranks divide the job.
    pub strategy: Option<Strategy>,
    /// What is not recorded is no difference.
    pub settings: Settings,
}

impl Job {
    /// The settings that `theirs` records and this job has differently, in words.
    pub(super) fn changes(&self, theirs: &Settings) -> Vec<String> {
        let mut changes = Vec::new();
        for (name, ours) in &self.settings {
            if let Some(theirs) = theirs.get(name).filter(|theirs| *theirs != &as_read(ours)) {
                let short = |value| plain(value).chars().take(8).collect::<String>();
                changes.push(match name.as_str() {
                    "data" => format!(
                        "the text with SHA-256 {}.. instead of {}..",
                        short(ours),
                        short(theirs)
                    ),
                    _ => {
                        let setting = name.replace('-', "_");
                        format!("`{setting}` {} instead of {}", plain(ours), plain(theirs))
                    }
                });
            }
        }
        changes
    }
}

/// A value as it follows its name.
fn plain(value: &serde_json::Value) -> String {
    printable(&value.as_str().map_or_else(|| value.to_string(), String::from))
}

/// A value as it comes back from a file: a number's last bit may differ.
fn as_read(value: &serde_json::Value) -> serde_json::Value {
    serde_json::from_str(&value.to_string()).unwrap_or_default()
}

/// One training, from its first step to its last. A resumed training goes on with the run of its
/// checkpoint, if it has the same settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Decides which checkpoints of a folder a run may remove.
    pub id: String,
    /// Settings that this run and those that it continues have changed on the way, in words.
    pub changes: Vec<String>,
}

impl Run {
    /// A run that begins now.
    pub fn new() -> Run {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let unique = format!("{} {} {now}", launch::host_name(), launch::process_id());
        Run {
            id: sha256::hex(unique.as_bytes())[..16].to_string(),
            changes: Vec::new(),
        }
    }
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub job: Job,
    pub run: Run,
    /// Steps that the run has made.
    pub step: usize,
    /// In rank order.
    pub files: Vec<FileEntry>,
    /// Whatever the trainer needs to continue: counters, the loss scaler.
    pub record: serde_json::Value,
}

/// The name of a rank's file in a checkpoint's folder.
pub fn rank_file(rank: usize) -> String {
    format!("rank-{rank:03}.safetensors")
}

impl Manifest {
    /// Writes the manifest and its checksum.
    pub fn write(&self, folder: &Path) -> Result<(), BadInput> {
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            BadInput::new(format!("cannot write {MANIFEST}: {error}"), "store plain numbers")
        })?;
        write(&folder.join(MANIFEST), text.as_bytes())?;
        write(
            &folder.join(SUM),
            format!("{}  {MANIFEST}\n", sha256::hex(text.as_bytes())).as_bytes(),
        )
    }

    /// Reads the manifest's file in `folder`, and compares it with its checksum.
    pub fn text(folder: &Path) -> Result<Vec<u8>, BadInput> {
        let path = folder.join(MANIFEST);
        let text = read(&path, LIST)?;
        let sum = read(&folder.join(SUM), 1000)?;
        let expected = String::from_utf8_lossy(&sum);
        let found = sha256::hex(&text);
        if expected.split_whitespace().next() != Some(&found) {
            return Err(BadInput::new(
                format!("{} is damaged: its SHA-256 is not the one in {SUM}", path.display()),
                DAMAGED,
            ));
        }
        Ok(text)
    }

    /// The manifest in the file of `folder` that has this text.
    pub fn parse(text: &[u8], folder: &Path) -> Result<Manifest, BadInput> {
        serde_json::from_slice(text).map_err(|error| {
            let path = folder.join(MANIFEST);
            BadInput::new(format!("{} is no manifest: {error}", path.display()), DAMAGED)
        })
    }

    /// The run that saved the checkpoint in `folder`, if it says so.
    pub fn run_of(folder: &Path) -> Option<String> {
        #[derive(Deserialize)]
        struct OnlyRun {
            run: Run,
        }
        let text = read(&folder.join(MANIFEST), LIST).ok()?;
        let found: OnlyRun = serde_json::from_slice(&text).ok()?;
        Some(found.run.id)
    }

    /// Refuses a checkpoint of a different run.
    pub fn ensure_of(&self, job: &Job, folder: &Path) -> Result<(), BadInput> {
        let Job { shape, seed, ranks, strategy, .. } = &self.job;
        let refuse = |what: &str, theirs: String, ours: String, help: &str| {
            let path = folder.join(MANIFEST);
            Err(BadInput::new(
                format!(
                    "{} is a checkpoint of {what}: it has {theirs}, and this run {ours}",
                    path.display()
                ),
                help,
            ))
        };
        let model = |shape: &ModelShape| {
            let ModelShape { vocabulary, block, layers, heads, embd, .. } = shape;
            format!(
                "{layers} layers, {heads} heads, width {embd}, block {block}, {vocabulary} tokens"
            )
        };
        let help = "give the settings of the run that saved it, or a different folder";
        if *shape != job.shape {
            return refuse("a different model", model(shape), model(&job.shape), help);
        }
        if *ranks != job.ranks {
            let help = format!(
                "give `ranks` {ranks}: each rank reads the file that its predecessor wrote; lab09 shows how a checkpoint goes on with other ranks"
            );
            return refuse("a different world size", count(*ranks), count(job.ranks), &help);
        }
        if let (Some(theirs), Some(ours)) = (strategy, &job.strategy)
            && theirs != ours
        {
            return refuse("a different strategy", theirs.to_string(), ours.to_string(), help);
        }
        if *seed != job.seed {
            let help = format!("give `seed` {seed}: the seed decides which batches come next");
            return refuse(
                "a different run",
                format!("seed {seed}"),
                format!("seed {}", job.seed),
                &help,
            );
        }
        Ok(())
    }

    /// Refuses a checkpoint whose settings are not this run's.
    pub fn ensure_settings(&self, job: &Job, folder: &Path) -> Result<(), BadInput> {
        let changes = job.changes(&self.job.settings);
        if changes.is_empty() {
            return Ok(());
        }
        let what = format!(
            "{} has other settings than this run: {}",
            folder.join(MANIFEST).display(),
            changes.join(", ")
        );
        Err(BadInput::new(what, self.other_settings(job)))
    }

    fn other_settings(&self, job: &Job) -> String {
        const END: &str = "lr-decay-steps";
        let same = "give the settings of the run that saved it";
        let on_purpose = format!("to change them on purpose: {ANYWAY}");
        let end = self.job.settings.get(END).filter(|end| end.is_u64());
        match end.filter(|end| job.settings.get(END).is_some_and(|ours| ours != *end)) {
            Some(end) => format!(
                "{same} (`lr_decay_steps` {end}: without it the cosine ends with `steps`); {on_purpose}"
            ),
            None => format!("{same}; {on_purpose}"),
        }
    }

    /// Reads a rank's file, and compares it with its length and checksum.
    pub fn rank(&self, folder: &Path, rank: usize) -> Result<Vec<u8>, BadInput> {
        let path = folder.join(rank_file(rank));
        let damaged =
            |how: String| BadInput::new(format!("{} is damaged: {how}", path.display()), DAMAGED);
        let entry = self
            .files
            .get(rank)
            .ok_or_else(|| damaged("the manifest does not list it".to_string()))?;
        let found = size(&path)?;
        let expected = entry.bytes;
        if found != expected {
            let how = if found < expected {
                "it is truncated"
            } else {
                "it is too long"
            };
            return Err(damaged(format!(
                "{how}, with {found} bytes where the manifest says {expected}"
            )));
        }
        let contents = read(&path, expected)?;
        if sha256::hex(&contents) != entry.sha256 {
            return Err(damaged(
                "its SHA-256 is not the one in the manifest, so at least one bit differs"
                    .to_string(),
            ));
        }
        Ok(contents)
    }
}

/// The setting of a run that continues with other settings.
pub(super) const ANYWAY: &str = "`resume_anyway`";

fn count(ranks: usize) -> String {
    format!("{ranks} rank{}", if ranks == 1 { "" } else { "s" })
}
