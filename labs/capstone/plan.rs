//! What is trained, and what happens to it.

use crate::parts::batches::Draw;
use shardlab::data::Corpus;
use shardlab::mesh::Coordinates;
use shardlab::plan::ModelShape;
use shardlab::train::{Config, LrSchedule};

/// A run's settings. Steps are counted from 1.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its ranks are the streams of data.
    pub config: Config,
    /// Life 1 saves after every so many steps.
    pub save_every: usize,
    /// The step whose tokens are random.
    pub poison: usize,
    /// The last step that life 1 takes.
    pub killed_after: usize,
}

/// The most steps of a run that is compared with the library's. Right parts may round elsewhere,
/// and a training doubles such a difference every few steps: after 240 losses differ by 3e-6, after
/// 1,000 (at their higher learning rates) by 0.05, and so they would if a part was wrong.
pub const COMPARED: usize = 240;

/// Streams of data: one for each data rank of life 1. Life 2's one replica draws both.
pub const STREAMS: usize = 2;

/// Ranks of life 1, all of them along the data axis.
pub const RANKS_1: usize = STREAMS;

/// The mesh of life 2.
pub const SIZES_2: Coordinates = Coordinates { data: 1, pipeline: 2, tensor: 2 };

/// Ranks of life 2.
pub const RANKS_2: usize = SIZES_2.data * SIZES_2.pipeline * SIZES_2.tensor;

/// Numbers in a page of 4 KiB: each slice of a block fills whole pages, and padding follows it.
pub const PAGE: usize = 1024;

impl Plan {
    /// The run that readers see.
    pub fn story(corpus: &Corpus) -> Plan {
        let small = Config::small(STREAMS, corpus);
        let shape = ModelShape { block: 64, layers: 4, heads: 4, embd: 128, ..small.shape };
        Plan::of_steps(Config { shape, batch: 4, ..small }, COMPARED)
    }

    /// The same story of a small model in a few steps.
    pub fn quick(corpus: &Corpus) -> Plan {
        Plan::of_steps(Config::small(STREAMS, corpus), 16)
    }

    /// The same story in `steps` steps, at least 12: it saves four times or more often, and the
    /// step that is poisoned comes after the save in the middle.
    pub fn of_steps(config: Config, steps: usize) -> Plan {
        let steps = steps.max(12);
        let save_every = (steps / 4).clamp(1, 40);
        let last_save = steps / 2 / save_every * save_every;
        let poison = last_save + (save_every / 2).clamp(2, 5);
        let schedule = LrSchedule {
            lr: 3e-3,
            min_lr: 3e-4,
            warmup: (steps / 12).max(1),
            decay_steps: steps,
        };
        Plan {
            config: Config { grad_accum: 2, steps, schedule, ..config },
            save_every,
            poison,
            killed_after: poison + (save_every / 4).clamp(1, 5) - 1,
        }
    }

    /// The last step of life 1 after which it saved.
    pub fn saved(&self) -> usize {
        self.killed_after / self.save_every * self.save_every
    }

    /// Whether the library's run beside it says which parts are wrong.
    pub fn is_compared(&self) -> bool {
        self.config.steps <= COMPARED
    }

    /// What the part `batches` knows of a run on a text of so many tokens.
    pub fn draw(&self, tokens: usize) -> Draw {
        let Config { seed, ranks, batch, shape, .. } = self.config;
        Draw { seed, ranks, batch, block: shape.block, tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long a run is: it saves, trains on, is poisoned and killed before it saves again.
    #[test]
    fn every_story_has_its_incidents() {
        let corpus = Corpus::embedded().unwrap();
        for steps in 0..400 {
            let plan = Plan::of_steps(Plan::quick(&corpus).config, steps);
            let saved = plan.saved();
            assert!(saved > 0 && saved + 1 < plan.poison, "{plan:?}");
            assert!(
                plan.poison <= plan.killed_after && plan.killed_after < saved + plan.save_every,
                "{plan:?}"
            );
            assert!(plan.killed_after < plan.config.steps, "{plan:?}");
        }
    }
}
