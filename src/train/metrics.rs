//! What a step did and how long it took: log lines, JSON lines, totals.

use crate::error::BadInput;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One training step, as `--metrics` writes it. Seconds; `dt` is the step alone, from its batch to the optimizer.
#[derive(Clone, Debug, Serialize)]
pub struct StepRecord {
    /// From 1.
    pub step: usize,
    /// Mean over ranks and micro-steps, before the step's update.
    pub loss: f64,
    pub dt: f64,
    /// Forward and backward pass; the backward pass includes the averaging of gradients.
    pub dtf: f64,
    pub dtb: f64,
    /// Sequences a second, of all ranks and of one. (The seed's log counts batches.)
    pub sps: f64,
    pub sps_per_rank: f64,
    /// Tokens a second.
    pub tps: f64,
    pub tps_per_rank: f64,
    /// Model FLOPs over the matmul peak measured here, in percent.
    pub mfu: f64,
    /// Only of steps after which the model was evaluated.
    pub train_loss: Option<f64>,
    pub val_loss: Option<f64>,
    /// The gradient's global norm before clipping.
    pub grad_norm: f64,
    pub lr: f64,
}

impl StepRecord {
    /// The log line: it fits 80 columns in all runs of minutes.
    pub fn line(&self) -> String {
        let StepRecord { step, loss, dt, dtf, dtb, sps, tps, mfu, .. } = self;
        let tps = crate::show::thousands(*tps as u64);
        format!("step={step} loss={loss:.3} dt={dt:.3} dtf={dtf:.3} dtb={dtb:.3} sps={sps:.0} tps={tps} mfu={mfu:.1}")
    }
}

/// What makes rates of a step's seconds.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub ranks: usize,
    /// Tokens that a step learns from, over all ranks.
    pub tokens: usize,
    /// Tokens in a sequence.
    pub block: usize,
    pub flops_per_token: u64,
    /// The matmul peak of one thread, FLOP/s.
    pub peak: f64,
}

impl Rates {
    /// A step of these seconds; `loss` is the mean over ranks.
    pub fn record(&self, outcome: StepOutcome, loss: f64, times: &StepTimes) -> StepRecord {
        let (dt, ranks, block) = (times.total(), self.ranks as f64, self.block as f64);
        let tps = self.tokens as f64 / dt;
        StepRecord {
            step: outcome.step,
            loss,
            dt,
            dtf: times.forward,
            dtb: times.backward,
            sps: tps / block,
            sps_per_rank: tps / block / ranks,
            tps,
            tps_per_rank: tps / ranks,
            mfu: 100.0 * self.flops_per_token as f64 * tps / (ranks * self.peak),
            train_loss: None,
            val_loss: None,
            grad_norm: outcome.grad_norm,
            lr: outcome.lr,
        }
    }
}

/// What a step came to, on this rank.
#[derive(Clone, Copy, Debug)]
pub struct StepOutcome {
    /// From 1.
    pub step: usize,
    /// Of this rank's batches.
    pub loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
}

/// The meaning of the names in a log line and in `--metrics`, in the seed's order.
pub const LEGEND: [(&str, &str); 10] = [
    ("step", "Training step"),
    ("loss", "Mean training loss of all ranks, nats a token"),
    ("dt", "Seconds a step, from its batch to the optimizer"),
    ("dtf", "Seconds of the forward pass"),
    ("dtb", "Seconds of the backward pass, averaging of gradients included"),
    ("sps", "Sequences a second, all ranks (the seed's log counts batches)"),
    ("tps", "Tokens a second, all ranks: sps x block"),
    ("mfu", "Model FLOPs in percent of the matmul peak measured here"),
    ("train_loss", "Loss on fixed batches of the training split"),
    ("val_loss", "Loss on fixed batches of the validation split"),
];

/// The file of `--metrics`.
pub struct MetricsFile(Option<(PathBuf, File)>);

impl MetricsFile {
    /// Opens and empties the file, or stands for none.
    pub fn create(path: Option<&Path>) -> Result<MetricsFile, BadInput> {
        let Some(path) = path else { return Ok(MetricsFile(None)) };
        let file = File::create(path).map_err(|error| {
            BadInput::new(
                format!("cannot write --metrics {}: {error}", path.display()),
                "name a file in a folder that exists",
            )
        })?;
        Ok(MetricsFile(Some((path.to_path_buf(), file))))
    }

    /// Appends a line; it is on its way to the disk when this returns, so a run that dies keeps what it did.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let Some((path, file)) = &mut self.0 else { return Ok(()) };
        let line = serde_json::to_string(record)? + "\n";
        file.write_all(line.as_bytes()).with_context(|| format!("cannot write to {}", path.display()))
    }
}

/// A step's clock: each call of [`Clock::lap`] gives the time since the one before to a part of the step.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    pub laps: Vec<Lap>,
    pub parts: StepTimes,
}

/// A stretch of a step that belongs to one part of it.
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

impl Clock {
    pub fn start() -> Clock {
        Clock { start: Instant::now(), laps: Vec::new(), parts: StepTimes::default() }
    }

    /// Seconds from the clock's start to `moment`.
    pub fn at(&self, moment: Instant) -> f64 {
        moment.saturating_duration_since(self.start).as_secs_f64()
    }

    /// Does `work`, which is part of `part`, as is all since the last lap.
    pub fn time<R>(&mut self, part: Part, work: impl FnOnce() -> R) -> R {
        let result = work();
        self.lap(part);
        result
    }

    /// Adds the time since the last lap to `part`.
    pub fn lap(&mut self, part: Part) {
        let lap = Lap { part, start: self.laps.last().map_or(self.start, |last| last.end), end: Instant::now() };
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
