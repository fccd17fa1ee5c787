//! The figures of a step: its outcome and its times, as log lines and JSON lines.

use super::events::EventFile;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use shardlab::error::BadInput;
use shardlab::parallel::pipeline::Work;
use shardlab::train::{Config, TakenStep};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One step, in the style of one lab: its fields are the file's, and its line is the log's.
pub trait Record: Clone + Serialize {
    /// The log's line, with this `loss`.
    fn line(&self, loss: f64) -> String;

    /// The rates of one rank, for `--all`.
    fn per_gpu(&self) -> Option<String> {
        None
    }

    /// The loss: the mean over all ranks.
    fn loss(&self) -> f64;
}

/// One training step, as `--metrics` writes it. Times are seconds. `dt` is the whole step, from its
/// batch to the optimizer, without an evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct StepRecord {
    /// The step, counted from 1.
    pub step: usize,
    /// Mean over ranks and micro-steps, before the step's update.
    pub loss: f64,
    pub dt: f64,
    /// Forward pass.
    pub dtf: f64,
    /// Backward pass, averaging of gradients included.
    pub dtb: f64,
    /// Sequences per second, of all ranks. (The source's log counts batches.)
    pub sps: f64,
    /// The same of one rank, under the name that the source's log has for it: here a rank counts as
    /// a GPU.
    pub sps_per_gpu: f64,
    /// Tokens per second, of all ranks.
    pub tps: f64,
    /// The same of one rank.
    pub tps_per_gpu: f64,
    /// Model FLOPs per second, in percent of the measured matmul peak.
    pub mfu: f64,
    /// The evaluation after this step, if there was one.
    pub train_loss: Option<f64>,
    pub val_loss: Option<f64>,
    /// The gradient's global norm before clipping.
    pub grad_norm: f64,
    pub lr: f64,
}

impl Record for StepRecord {
    /// The log line. It fits 80 columns in all runs that take minutes.
    fn line(&self, loss: f64) -> String {
        let StepRecord { step, dt, dtf, dtb, sps, tps, mfu, .. } = self;
        let tps = crate::show::thousands(*tps as u64);
        format!(
            "step={step} loss={loss:.3} dt={dt:.3} dtf={dtf:.3} dtb={dtb:.3} sps={sps:.0} tps={tps} mfu={mfu:.1}"
        )
    }

    fn per_gpu(&self) -> Option<String> {
        let tps = crate::show::thousands(self.tps_per_gpu.round() as u64);
        Some(format!("sps_per_gpu={:.0} tps_per_gpu={tps}", self.sps_per_gpu))
    }

    fn loss(&self) -> f64 {
        self.loss
    }
}

/// The factors that turn a step's seconds into rates.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub ranks: usize,
    /// Tokens that a step learns from, over all ranks.
    pub tokens: usize,
    /// Tokens per sequence.
    pub block: usize,
    pub flops_per_token: u64,
    /// The matmul peak of one thread, in FLOP/s.
    pub peak: f64,
}

impl Rates {
    /// The rates of a run. `peak` is the matmul peak of one thread, in FLOP/s.
    pub fn of(config: &Config, peak: f64) -> Rates {
        let tokens = config.tokens_per_step();
        let block = config.shape.block;
        Rates {
            ranks: config.ranks,
            tokens,
            block,
            flops_per_token: config.shape.flops_per_token(),
            peak,
        }
    }

    /// The record of a step. `loss` is the mean over ranks.
    pub fn record(&self, outcome: StepOutcome, loss: f64, times: &StepTimes) -> StepRecord {
        let dt = times.total();
        let ranks = self.ranks as f64;
        let block = self.block as f64;
        let tps = self.tokens as f64 / dt;
        StepRecord {
            step: outcome.step,
            loss,
            dt,
            dtf: times.forward,
            dtb: times.backward,
            sps: tps / block,
            sps_per_gpu: tps / block / ranks,
            tps,
            tps_per_gpu: tps / ranks,
            mfu: 100.0 * self.flops_per_token as f64 * tps / (ranks * self.peak),
            train_loss: None,
            val_loss: None,
            grad_norm: outcome.grad_norm,
            lr: outcome.lr,
        }
    }
}

/// The outcome of a step on this rank.
#[derive(Clone, Copy, Debug)]
pub struct StepOutcome {
    /// The step, counted from 1.
    pub step: usize,
    /// The loss of this rank's batches.
    pub loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
}

/// The meaning of the names in a log line and in `--metrics`, in the order of the source.
pub const LEGEND: [(&str, &str); 12] = [
    ("step", "Training step"),
    ("loss", "Mean training loss of all ranks, nats per token"),
    ("dt", "Seconds per step, from its batch to the optimizer"),
    ("dtf", "Seconds of the forward pass"),
    ("dtb", "Seconds of the backward pass, averaging of gradients included"),
    ("sps", "Sequences per second, all ranks (the source's log counts batches)"),
    ("sps_per_gpu", "Sequences per second of one rank: a rank counts as a GPU"),
    ("tps", "Tokens per second, all ranks: sps x block"),
    ("tps_per_gpu", "Tokens per second of one rank"),
    ("mfu", "Model FLOPs in percent of the measured matmul peak"),
    ("train_loss", "Loss on fixed batches of the training split"),
    ("val_loss", "Loss on fixed batches of the validation split"),
];

/// Creates the file that `flag` names.
pub(super) fn create(flag: &str, path: &Path) -> Result<File, BadInput> {
    File::create(path).map_err(|error| unwritable(flag, path, &error))
}

fn unwritable(flag: &str, path: &Path, error: &io::Error) -> BadInput {
    let what = format!("cannot write --{flag} {}: {error}", path.display());
    BadInput::new(what, "name a file in a folder that exists")
}

/// The file of `--metrics`, and TensorBoard's event file beside it.
pub struct MetricsFile(Option<Files>);

struct Files {
    path: PathBuf,
    lines: File,
    events: Option<EventFile>,
}

impl MetricsFile {
    /// Creates empty files. Without a path, nothing is written. What is no regular file, like a
    /// pipe or `/dev/stdout`, has no events beside it.
    pub fn create(path: Option<&Path>) -> Result<MetricsFile, BadInput> {
        let Some(path) = path else {
            return Ok(MetricsFile(None));
        };
        let failed = |error| unwritable("metrics", path, &error);
        // An earlier run's lines stay until everything of this one can be written.
        let mut open = OpenOptions::new();
        let lines = open.write(true).create(true).truncate(false).open(path);
        let lines = lines.map_err(failed)?;
        let is_plain = path.symlink_metadata().is_ok_and(|file| file.is_file());
        let events = if is_plain { Some(EventFile::create(path)?) } else { None };
        if lines.metadata().is_ok_and(|file| file.is_file()) {
            lines.set_len(0).map_err(failed)?;
        }
        Ok(MetricsFile(Some(Files { path: path.to_path_buf(), lines, events })))
    }

    /// Creates an empty file, with no events for TensorBoard: for what a run writes unasked.
    pub fn without_events(path: &Path) -> Result<MetricsFile, BadInput> {
        Ok(MetricsFile(Some(Files {
            path: path.to_path_buf(),
            lines: create("metrics", path)?,
            events: None,
        })))
    }

    /// Appends a line, and an event. The operating system has them when this returns, so they
    /// survive the end of the process.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let Some(files) = &mut self.0 else {
            return Ok(());
        };
        let line = serde_json::to_string(record)? + "\n";
        files
            .lines
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot write to {}", files.path.display()))?;
        if let Some(events) = &mut files.events
            && let Value::Object(record) = serde_json::to_value(record)?
        {
            events.write(&record)?;
        }
        Ok(())
    }
}

/// A step's clock. Each call of [`Clock::lap`] assigns the time since the previous call to a part
/// of the step.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    pub laps: Vec<Lap>,
    pub parts: StepTimes,
}

/// An interval that belongs to one part of a step.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    pub part: Part,
    pub start: Instant,
    pub end: Instant,
}

/// The parts of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Data,
    Forward,
    Backward,
    Optimizer,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Forward => "forward",
            Part::Backward => "backward",
            Part::Optimizer => "optimizer",
        }
    }
}

/// Seconds by part of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    pub optimizer: f64,
}

impl StepTimes {
    pub fn total(&self) -> f64 {
        self.data + self.forward + self.backward + self.optimizer
    }

    pub fn add(&mut self, other: &StepTimes) {
        self.data += other.data;
        self.forward += other.forward;
        self.backward += other.backward;
        self.optimizer += other.optimizer;
    }
}

impl StepOutcome {
    /// The outcome of step number `step`, counted from 1.
    pub fn of(taken: &TakenStep, step: usize) -> StepOutcome {
        let TakenStep { loss, grad_norm, lr, .. } = *taken;
        StepOutcome { step, loss, grad_norm, lr }
    }
}

impl Clock {
    /// The parts of a step that the library has taken.
    pub fn of(taken: &TakenStep) -> Clock {
        let times = &taken.times;
        let mut clock = Clock {
            start: times.begun,
            laps: Vec::new(),
            parts: StepTimes::default(),
        };
        clock.lap_until(Part::Data, times.drawn);
        for pass in &taken.ran.passes {
            let part = match pass.op.work {
                Work::Forward => Part::Forward,
                Work::Backward | Work::Weights => Part::Backward,
            };
            clock.lap_until(part, pass.end);
        }
        clock.lap_until(Part::Backward, times.averaged);
        clock.lap_until(Part::Optimizer, times.updated);
        clock
    }

    pub fn start() -> Clock {
        Clock {
            start: Instant::now(),
            laps: Vec::new(),
            parts: StepTimes::default(),
        }
    }

    /// Seconds from the clock's start to `moment`.
    pub fn at(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.start).as_secs_f64()
    }

    /// Runs `work`, and adds the time since the last lap to `part`.
    pub fn time<R>(&mut self, part: Part, work: impl FnOnce() -> R) -> R {
        let result = work();
        self.lap(part);
        result
    }

    /// Adds the time since the last lap to `part`.
    pub fn lap(&mut self, part: Part) {
        self.lap_until(part, Instant::now());
    }

    fn lap_until(&mut self, part: Part, end: Instant) {
        let start = self.laps.last().map_or(self.start, |last| last.end);
        let lap = Lap { part, start, end };
        let sum = match part {
            Part::Data => &mut self.parts.data,
            Part::Forward => &mut self.parts.forward,
            Part::Backward => &mut self.parts.backward,
            Part::Optimizer => &mut self.parts.optimizer,
        };
        *sum += (lap.end - lap.start).as_secs_f64();
        self.laps.push(lap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: usize) -> StepRecord {
        let outcome = StepOutcome { step, loss: 3.154_31, grad_norm: 1.5, lr: 1e-3 };
        let times = StepTimes { forward: 0.282_833, ..StepTimes::default() };
        rates().record(outcome, outcome.loss, &times)
    }

    /// The run of the source's log: four GPUs, each with a batch of 64 sequences of 1,024 tokens.
    fn rates() -> Rates {
        Rates {
            ranks: 4,
            tokens: 4 * 64 * 1024,
            block: 1024,
            flops_per_token: 6 * 85_003_776,
            peak: 312e12,
        }
    }

    #[test]
    fn events_are_written_only_where_they_were_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        MetricsFile::without_events(&dir.path().join("m.jsonl")).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_earlier_runs_lines_stay_if_this_ones_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.jsonl");
        std::fs::write(&path, "earlier").unwrap();
        std::fs::write(dir.path().join("m.events"), "no folder").unwrap();
        assert!(MetricsFile::create(Some(&path)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "earlier");
        std::fs::remove_file(dir.path().join("m.events")).unwrap();
        MetricsFile::create(Some(&path)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    /// `/dev/stdout` is a link, to a regular file where a shell redirects it.
    #[cfg(unix)]
    #[test]
    fn a_device_and_a_link_have_no_events_beside_them() {
        let mut file = MetricsFile::create(Some(Path::new("/dev/null"))).unwrap();
        file.write(&record(1)).unwrap();
        assert!(!Path::new("/dev/null.events").exists());
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("log"), &link).unwrap();
        MetricsFile::create(Some(&link)).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    /// The line of step 10 in the source's log. Its `sps` counts batches, of which each rank has
    /// one per step.
    #[test]
    fn rates_are_those_of_the_sources_log() {
        let record = record(10);
        let near = |ours: f64, source: f64| {
            assert!((ours / source - 1.0).abs() < 2e-6, "{ours} and {source}");
        };
        near(record.tps, 926_851.609_409);
        near(record.tps_per_gpu, 231_712.902_352);
        near(record.sps / 64.0, 14.142_633);
        near(record.sps_per_gpu / 64.0, 3.535_658);
        assert_eq!(record.per_gpu().unwrap(), "sps_per_gpu=226 tps_per_gpu=231,713");
    }
}
