//! The records of a run's steps: its log lines, and the files of `--metrics` and `--trace`.

use super::flags::LogFlags;
use super::metrics::{Clock, MetricsFile, Record};
use super::trace::Trace;
use crate::show::{Screen, folded};
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::parallel::Averaged;
use shardlab::parallel::zero::Event;
use std::ops::Deref;
use std::path::Path;

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
    trace: Trace,
}

impl<'a, R: Record> Records<'a, R> {
    /// Opens the files, so that a file that cannot be written is an error before work starts.
    /// Without `log` there are none. All ranks call it.
    pub fn open(comm: &Comm, screen: &'a Screen, log: Option<&LogFlags>) -> Result<Records<'a, R>> {
        let metrics = log.and_then(|log| log.metrics.as_deref());
        let metrics = MetricsFile::create(metrics.filter(|_| comm.rank() == 0))?;
        Ok(Records {
            all: Vec::new(),
            screen,
            comm: comm.clone(),
            log_all_ranks: log.is_some_and(|log| log.log_all_ranks),
            per_gpu: log.is_some_and(|log| log.all),
            metrics,
            trace: Trace::new(comm, log.and_then(|log| log.trace.as_deref()))?,
        })
    }

    /// The mean of all ranks' losses. All ranks call it.
    pub fn mean_loss(&self, own: f64) -> Result<f64> {
        let mut mean = [own];
        self.comm.all_reduce(&mut mean, Reduce::Mean)?;
        Ok(mean[0])
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

    /// Records the times of a step's gathers, for `--trace`.
    pub fn trace_gathers(&mut self, step: usize, events: &[Event]) {
        self.trace.gathers(step, events);
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
