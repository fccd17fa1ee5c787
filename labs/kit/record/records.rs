//! The records of a run's steps: its log lines, and the files of `--metrics` and `--trace`.

use super::clock::{Clock, StepTimes};
use super::metrics::MetricsFile;
use super::output;
use super::trace::Trace;
use crate::flags::LogFlags;
use crate::show::{Screen, folded, significant, thousands};
use anyhow::Result;
use serde::Serialize;
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::Averaged;
use shardlab::tensor::Precision;
use shardlab::train::Config;
use std::ops::Deref;
use std::path::Path;

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
        let tps = thousands(*tps as u64);
        format!(
            "step={step} loss={loss:.3} dt={dt:.3} dtf={dtf:.3} dtb={dtb:.3} sps={sps:.0} tps={tps} mfu={mfu:.1}"
        )
    }

    fn per_gpu(&self) -> Option<String> {
        let tps = thousands(self.tps_per_gpu.round() as u64);
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
    /// The type of its products.
    pub precision: Precision,
}

impl Rates {
    /// What to say of an MFU that is above 100%, at most `highest`: the peak was disturbed when it
    /// was measured. `again` measures it once more.
    pub(super) fn remark(&self, highest: f64, again: impl FnOnce() -> f64) -> Option<String> {
        if highest.is_nan() || highest <= 100.0 || self.peak <= 0.0 {
            return None;
        }
        let now = again();
        let [then, later] = [self.peak, now].map(|peak| significant(peak / 1e9, 3));
        Some(format!(
            "{highest:.1}% of a peak of {then} GFLOP/s per thread, which was measured before the run: \
             other work disturbed it, or a core was slower. Now it is {later} GFLOP/s"
        ))
    }

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
            precision: config.precision,
        }
    }

    /// The record of step number `step`, counted from 1. `loss` is the mean over ranks.
    pub(super) fn record(
        &self,
        step: usize,
        loss: f64,
        times: &StepTimes,
        (grad_norm, lr): (f64, f64),
    ) -> StepRecord {
        let dt = times.total();
        let ranks = self.ranks as f64;
        let block = self.block as f64;
        let tps = self.tokens as f64 / dt;
        StepRecord {
            step,
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
            grad_norm,
            lr,
        }
    }
}

/// One rank's records, one for each step. Only rank 0 prints and writes files, unless
/// `--log-all-ranks` is given.
pub struct Records<'a, R> {
    all: Vec<R>,
    screen: &'a Screen,
    comm: Comm,
    log_all_ranks: bool,
    /// Whether the rates of one rank follow a step's line.
    per_gpu: bool,
    metrics: MetricsFile,
    pub(super) trace: Trace,
}

impl<'a, R: Record> Records<'a, R> {
    /// Opens the files, so that a file that cannot be written is an error before work starts.
    /// Without `log` there are none. All ranks call it.
    pub fn open(comm: &Comm, screen: &'a Screen, log: Option<&LogFlags>) -> Result<Records<'a, R>> {
        let metrics = log.and_then(|log| log.metrics.as_deref());
        let trace = log.and_then(|log| log.trace.as_deref());
        if comm.rank() == 0 {
            output::ensure_all_writable(&[("metrics", metrics), ("trace", trace)])?;
        }
        let metrics = MetricsFile::create(metrics.filter(|_| comm.rank() == 0))?;
        Ok(Records {
            all: Vec::new(),
            screen,
            comm: comm.clone(),
            log_all_ranks: log.is_some_and(|log| log.log_all_ranks),
            per_gpu: log.is_some_and(|log| log.all),
            metrics,
            trace: Trace::new(comm, trace)?,
        })
    }

    /// The mean of all ranks' losses. All ranks call it.
    pub fn mean_loss(&self, own: f64) -> Result<f64> {
        Ok(self.comm.reduced(own, Reduce::Mean)?)
    }

    /// Adds a step's record. If the step `is_logged`, prints its line, with `--log-all-ranks` on
    /// every rank with its `own` loss, and with `--all` the rates of one rank below it.
    pub fn add(&mut self, record: R, own: f64, is_logged: bool) {
        let rank = self.comm.rank();
        if is_logged && (self.log_all_ranks || rank == 0) {
            let line = if self.log_all_ranks {
                let number = self.screen.rank(rank, format!("[{rank}]"));
                format!("{number} {}", record.line(own))
            } else {
                record.line(record.loss())
            };
            let rates = record.per_gpu().filter(|_| self.per_gpu);
            let rates = rates.map_or(String::new(), |rates| format!("\n    {rates}"));
            // A file's or a usual terminal's lines stay as they are, so that programs can read
            // them.
            let line = if self.screen.width < Screen::plain().width {
                folded(&line, self.screen.width)
            } else {
                line
            };
            self.screen.say(line + &rates);
        }
        self.all.push(record);
    }

    /// The last step's record, to be completed before it is written.
    pub fn last_mut(&mut self) -> Option<&mut R> {
        self.all.last_mut()
    }

    /// Writes the last step's record to the file of `--metrics`.
    pub fn write_last(&mut self) -> Result<()> {
        if let Some(record) = self.all.last() {
            self.metrics.write(record)?;
        }
        Ok(())
    }

    /// Records the times of a step's parts and all-reduces, for `--trace`.
    pub fn trace(&mut self, step: usize, clock: &Clock, averaged: &[Averaged]) {
        self.trace.step(step, &clock.laps, averaged);
    }

    /// Writes the trace, and returns its path on rank 0. All ranks call it at the end.
    pub fn write_trace(&self) -> Result<Option<&Path>> {
        self.trace.write(&self.comm)
    }
}

impl<R> Deref for Records<'_, R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of step 10 in the source's log: four GPUs, each with a batch of 64 sequences of
    /// 1,024 tokens. Its `sps` counts batches, of which each rank has one per step.
    #[test]
    fn rates_are_those_of_the_sources_log() {
        let rates = Rates {
            ranks: 4,
            tokens: 4 * 64 * 1024,
            block: 1024,
            flops_per_token: 6 * 85_003_776,
            peak: 312e12,
            precision: Precision::F32,
        };
        let times = StepTimes { forward: 0.282_833, ..StepTimes::default() };
        let record = rates.record(10, 3.154_31, &times, (1.5, 1e-3));
        let near = |ours: f64, source: f64| {
            assert!((ours / source - 1.0).abs() < 2e-6, "{ours} and {source}");
        };
        near(record.tps, 926_851.609_409);
        near(record.tps_per_gpu, 231_712.902_352);
        near(record.sps / 64.0, 14.142_633);
        near(record.sps_per_gpu / 64.0, 3.535_658);
        assert_eq!(record.per_gpu().unwrap(), "sps_per_gpu=226 tps_per_gpu=231,713");
        // More than everything is never printed without a word.
        let remark = rates.remark(100.6, || 400e12).unwrap();
        assert!(remark.starts_with("100.6% of a peak of 312,000 GFLOP/s"), "{remark}");
        assert!(remark.ends_with("Now it is 400,000 GFLOP/s"), "{remark}");
        for usual in [0.0, 70.2, 100.0, f64::NAN] {
            assert_eq!(rates.remark(usual, || panic!("measured for nothing")), None);
        }
    }
}
