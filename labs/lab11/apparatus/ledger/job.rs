//! What the entries are made from.

use super::super::report::{Found, tokens};
use super::super::strategy::{Stage, Strategy, TrainingJob};
use kit::show::{Screen, bytes_decimal, significant};

pub const HOUR: f64 = 3600.0;
pub const YEAR: f64 = 365.25 * 24.0 * HOUR;
/// Device hours from one unexpected interruption to the next: Llama 3's 54 days on 16,384 devices
/// had 419 (arXiv 2407.21783, section 3.3.4).
pub const HOURS_TO_A_FAILURE: f64 = 54.0 * 24.0 * 16_384.0 / 419.0;

/// A figure, and how it comes about.
pub struct Line {
    pub what: String,
    pub how: String,
    pub figure: String,
}

pub fn line(what: impl Into<String>, how: impl Into<String>, figure: impl Into<String>) -> Line {
    Line { what: what.into(), how: how.into(), figure: figure.into() }
}

/// The job, as the entries ask about it.
pub struct Ledger<'a> {
    pub screen: &'a Screen,
    pub found: &'a Found,
    pub job: &'a TrainingJob,
    /// Tokens of the whole training.
    pub tokens: f64,
}

/// `70.6 billion x 18 bytes`.
pub fn per_parameter(job: &TrainingJob, bytes: u64) -> String {
    format!("{} x {bytes} bytes", tokens(job.model.parameters() as f64))
}

pub fn years(time: f64) -> String {
    let years = time / YEAR;
    if years >= 1.0 {
        format!("{} years", significant(years, 3))
    } else {
        format!("{} days", significant(365.25 * years, 3))
    }
}

impl Ledger<'_> {
    pub fn parameters(&self) -> f64 {
        self.job.model.parameters() as f64
    }

    /// Bytes of all weights, gradients and the optimizer's state.
    pub fn state(&self) -> f64 {
        self.parameters() * self.state_bytes() as f64
    }

    pub fn state_bytes(&self) -> u64 {
        let each = self.job.bytes;
        each.parameter + each.gradient + each.optimizer
    }

    /// Tokens of a step.
    pub fn step_tokens(&self) -> f64 {
        (self.job.batch * self.job.model.block) as f64
    }

    pub fn steps(&self) -> f64 {
        self.tokens / self.step_tokens()
    }

    /// One device that trains alone, as if it had room for everything.
    pub fn one_device_seconds(&self) -> f64 {
        let alone = TrainingJob { devices: 1, ..self.job.clone() };
        self.steps() * alone.time(&Strategy::SINGLE).total()
    }

    /// All devices as replicas.
    pub fn replicas(&self, zero: usize) -> Strategy {
        Strategy::data(self.job.devices, Stage::ALL[zero])
    }

    /// As many tensor ranks as a node has devices, as far as heads and devices divide.
    pub fn tensor_ranks(&self) -> usize {
        let divides = |t: &usize| {
            self.job.devices.is_multiple_of(*t) && self.job.model.kv_heads().is_multiple_of(*t)
        };
        let node = self.job.cluster.network.ranks_per_node;
        (1..=node).rev().find(divides).unwrap_or(1)
    }

    /// Four stages, or two, if devices and layers allow it.
    pub fn stages(&self, tensor: usize) -> usize {
        let rest = self.job.devices / tensor;
        let divides = |p: &usize| rest.is_multiple_of(*p) && self.job.model.layers >= *p;
        [4, 2].into_iter().find(divides).unwrap_or(1)
    }

    /// Tensor ranks within a node, stages, and ZeRO-1 between the replicas.
    pub fn three_axes(&self) -> Strategy {
        let tensor = self.tensor_ranks();
        let pipeline = self.stages(tensor);
        Strategy {
            data: self.job.devices / (tensor * pipeline),
            tensor,
            pipeline,
            zero: Stage::One,
            sequence: tensor > 1,
            ..Strategy::SINGLE
        }
    }

    /// Whether so many bytes are too many for a device.
    pub fn verdict(&self, bytes: f64) -> &'static str {
        if bytes <= self.job.cluster.device.room() {
            "fits"
        } else {
            "too large"
        }
    }

    pub fn bytes_and_verdict(&self, bytes: f64) -> String {
        format!("{}, {}", bytes_decimal(bytes), self.verdict(bytes))
    }

    /// The best plan's seconds of a step, or those of the three axes where nothing fits.
    pub fn step_seconds(&self) -> f64 {
        match self.found.best() {
            Some(plan) => plan.time.total(),
            None => self.job.time(&self.three_axes()).total(),
        }
    }
}
