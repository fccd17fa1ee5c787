//! A program on real ranks, and what it cost.

use crate::clock::{Event, replay};
use crate::job::Job;
use crate::log::Update;
use crate::rank::Rank;
use crate::text::Text;
use anyhow::Result;
use kit::show::Interval;
use shardlab::{comm, launch};

/// One rank after a run.
#[derive(Clone, Debug)]
pub struct Trained {
    /// What the program returned: what the rank has of each layer.
    pub weights: Vec<Vec<f32>>,
    /// Step, part, mean loss.
    pub losses: Vec<(usize, usize, f64)>,
    /// The most bytes that it held.
    pub peak: u64,
    /// Bytes that left the rank in a step: over the link between nodes, and inside its node.
    pub far: u64,
    pub near: u64,
    pub(crate) events: Vec<Event>,
    /// The layers that ran backward, each with the gradients of its parameters.
    pub gradients: Vec<(usize, Vec<f32>)>,
    pub updates: Vec<Update>,
}

/// All ranks after a run.
#[derive(Clone, Debug)]
pub struct Run {
    pub job: Job,
    pub ranks: Vec<Trained>,
}

/// What a step of a run costs. Less is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The most bytes that a rank held, of all ranks.
    pub peak: u64,
    /// Bytes that left a rank over the link between nodes, per step: the most of all ranks.
    pub sent: u64,
    /// Seconds of a step, on the devices and links of `clock.rs`.
    pub seconds: f64,
}

impl Score {
    /// The names of its three figures in a reader's record, in the order of [`Score::figures`].
    pub const FIGURES: [&str; 3] = [
        "peak bytes per rank",
        "bytes sent per rank and step",
        "microseconds per step on a slow link",
    ];

    /// The place of the time in the list.
    pub const TIME: usize = 2;

    /// Peak bytes, bytes sent, microseconds.
    pub fn figures(&self) -> [u64; 3] {
        [self.peak, self.sent, self.micros()]
    }

    pub fn micros(&self) -> u64 {
        (self.seconds * 1e6).round() as u64
    }
}

impl Run {
    pub fn score(&self) -> Score {
        let most = |of: fn(&Trained) -> u64| self.ranks.iter().map(of).max().unwrap_or_default();
        Score {
            peak: most(|rank| rank.peak),
            sent: most(|rank| rank.far),
            seconds: self.seconds() / self.job.steps as f64,
        }
    }

    /// What each rank would do when, on slower devices and a slower link.
    pub(crate) fn timeline(&self) -> Vec<Vec<Interval>> {
        let events: Vec<Vec<Event>> = self.ranks.iter().map(|rank| rank.events.clone()).collect();
        replay(&events)
    }

    /// When the last rank is done.
    pub(crate) fn seconds(&self) -> f64 {
        self.timeline().iter().flatten().map(|one| one.end).fold(0.0, f64::max)
    }
}

/// Runs `train` on every rank of a job.
///
/// # Errors
/// The first one of any rank.
pub fn run(job: Job, train: impl Fn(&Rank) -> comm::Result<Vec<Vec<f32>>> + Sync) -> Result<Run> {
    let text = &Text::new()?;
    let ranks = launch::run(job.ranks, |world| {
        // A rank's messages inside its node are those of its tensor group.
        let rank = Rank::new(job, text, world.clone())?;
        let total = world.total_traffic();
        let tensor = rank.sent_near();
        let weights = train(&rank)?;
        let near = rank.sent_near() - tensor;
        let far = (world.total_traffic() - total).bytes - near;
        let log = rank.log.into_inner();
        Ok(Trained {
            weights,
            losses: log.losses,
            peak: log.held.peak(),
            far: far / job.steps as u64,
            near: near / job.steps as u64,
            events: log.events,
            gradients: log.gradients,
            updates: log.updates,
        })
    })?;
    Ok(Run { job, ranks })
}
