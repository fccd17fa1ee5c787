//! The metrics file of a run whose steps can be skipped.

use super::Job;
use crate::skipping::{AttemptedStep, Outcome};
use anyhow::Result;
use kit::{MetricsFile, output};
use serde::Serialize;
use shardlab::comm::Comm;
use std::path::PathBuf;

/// The default name of a run's metrics, in the run's folder.
pub const METRICS: &str = "metrics.jsonl";

/// One step. A skipped step has no loss and no norm, so it stays out of averages.
#[derive(Serialize)]
struct Line {
    step: usize,
    loss: Option<f64>,
    grad_norm: Option<f64>,
    lr: Option<f64>,
    skipped: bool,
}

/// Rank 0's metrics file.
pub struct Metrics {
    pub path: PathBuf,
    file: MetricsFile,
}

impl Metrics {
    /// Creates an empty file, on rank 0.
    pub fn create(job: &Job, comm: &Comm) -> Result<Metrics> {
        let asked = job.flags.metrics.clone();
        let is_first = comm.rank() == 0;
        if is_first && asked.is_none() {
            output::make_folder("out", &job.folder)?;
        }
        let path = asked.unwrap_or_else(|| job.folder.join(METRICS));
        let file = MetricsFile::create(Some(&*path).filter(|_| is_first))?;
        Ok(Metrics { path, file })
    }

    /// Appends a step.
    pub fn write(&mut self, step: &AttemptedStep) -> Result<()> {
        let (loss, grad_norm, lr) = match step.outcome {
            Outcome::Taken { loss, grad_norm, lr } => (Some(loss), Some(grad_norm), Some(lr)),
            _ => (None, None, None),
        };
        self.file.write(&Line {
            step: step.step,
            loss,
            grad_norm,
            lr,
            skipped: loss.is_none(),
        })
    }
}
