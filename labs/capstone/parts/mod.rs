//! The trainer's twelve parts. Each comes in three versions: yours, the library's, and the one that
//! leaves it out.
//!
//! Every file of this folder has the interface of one part, the library's version, and the version
//! `without`. The interfaces are those of the exercises.

pub mod average;
pub mod batches;
pub mod gather;
pub mod load;
pub mod mesh;
pub mod mlp;
pub mod norm;
pub mod order;
pub mod ring;
pub mod scaler;
pub mod schedule;
pub mod skip;

pub use gather::Blocks;
pub use load::Files;
pub use mesh::Place;
pub use scaler::Scaler;
pub use skip::{Counters, Trainer};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use shardlab::named::named;

/// One version of each part.
#[derive(Clone, Copy)]
pub struct Parts {
    pub ring: ring::Ring,
    pub average: average::Average,
    pub batches: batches::Batches,
    pub schedule: schedule::LearningRate,
    pub gather: gather::Gather,
    pub norm: norm::Norm,
    pub scaler: scaler::Step,
    pub skip: skip::Iteration,
    pub load: load::Load,
    pub mesh: mesh::Mesh,
    pub order: order::Order,
    pub mlp: mlp::SequenceMlp,
}

impl Parts {
    pub fn library() -> Parts {
        Parts {
            ring: ring::library,
            average: average::library,
            batches: batches::library,
            schedule: schedule::library,
            gather: gather::library,
            norm: norm::library,
            scaler: scaler::library,
            skip: skip::library,
            load: load::library,
            mesh: mesh::library,
            order: order::library,
            mlp: mlp::LIBRARY,
        }
    }

    /// Every part left out.
    pub fn without() -> Parts {
        Parts {
            ring: ring::without,
            average: average::without,
            batches: batches::without,
            schedule: schedule::without,
            gather: gather::without,
            norm: norm::without,
            scaler: scaler::without,
            skip: skip::without,
            load: load::without,
            mesh: mesh::without,
            order: order::without,
            mlp: mlp::WITHOUT,
        }
    }

    /// Takes one part from other versions.
    pub fn take(&mut self, part: Part, from: &Parts) {
        match part {
            Part::Ring => self.ring = from.ring,
            Part::Average => self.average = from.average,
            Part::Batches => self.batches = from.batches,
            Part::Schedule => self.schedule = from.schedule,
            Part::Gather => self.gather = from.gather,
            Part::Norm => self.norm = from.norm,
            Part::Scaler => self.scaler = from.scaler,
            Part::Skip => self.skip = from.skip,
            Part::Load => self.load = from.load,
            Part::Mesh => self.mesh = from.mesh,
            Part::Order => self.order = from.order,
            Part::Mlp => self.mlp = from.mlp,
        }
    }
}

named! {
    /// A part of the trainer, in the order of the labs, with its word for flags.
    #[derive(Serialize, Deserialize, ValueEnum)]
    #[serde(rename_all = "lowercase")]
    pub enum Part {
        Ring = "ring",
        Average = "average",
        Batches = "batches",
        Schedule = "schedule",
        Gather = "gather",
        Norm = "norm",
        Mlp = "mlp",
        Order = "order",
        Mesh = "mesh",
        Skip = "skip",
        Scaler = "scaler",
        Load = "load",
    }
}

impl Part {
    /// The exercise in which a reader writes it.
    pub fn exercise(self) -> &'static str {
        match self {
            Part::Ring => "lab01-ring",
            Part::Average => "lab02-average",
            Part::Batches => "lab03-batches",
            Part::Schedule => "lab03-schedule",
            Part::Gather => "lab04-gather",
            Part::Norm => "lab04-norm",
            Part::Mlp => "lab05-sequence",
            Part::Order => "lab06-order",
            Part::Mesh => "lab07-mesh",
            Part::Skip => "lab08-skip",
            Part::Scaler => "lab08-scaler",
            Part::Load => "lab09-overlap",
        }
    }
}

/// Whose version of a part a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    Yours,
    Library,
    Without,
}

/// Whose version each part has, in the order of [`Part::ALL`].
pub type Versions = [Whose; Part::ALL.len()];
