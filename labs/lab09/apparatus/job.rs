//! The ranks of a job and how they share the model, as a flag says it: `dp=4,zero=2` or
//! `tp=2,pp=2`.

use shardlab::error::BadInput;
use shardlab::mesh::{Coordinates, Layout, Order};
use shardlab::parallel::TensorParallel;
use shardlab::parallel::pipeline::{Partition, Pipeline, Schedule};
use shardlab::parallel::zero::Stage;
use shardlab::train::{Config, PipelinePlan};
use std::fmt;
use std::str::FromStr;

/// The ranks of a job, and how they share the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub sizes: Coordinates,
    /// The state that data ranks shard.
    pub stage: Stage,
}

const HELP: &str =
    "give ranks along each axis and ZeRO's stage, such as dp=4,zero=2 or dp=2,tp=2 or pp=2";

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Job, String> {
        let mut sizes = Coordinates { data: 1, pipeline: 1, tensor: 1 };
        let mut stage = None;
        for part in text.split(',') {
            let value = |number: &str| number.parse::<usize>().ok();
            match part.split_once('=').map(|(key, number)| (key, value(number))) {
                Some(("dp", Some(ranks @ 1..))) => sizes.data = ranks,
                Some(("tp", Some(ranks @ 1..))) => sizes.tensor = ranks,
                Some(("pp", Some(ranks @ 1..))) => sizes.pipeline = ranks,
                Some(("zero", Some(number @ 0..=3))) => stage = Some(Stage::ALL[number]),
                _ => return Err(format!("{part:?} is no part of a job: {HELP}")),
            }
        }
        let default = if sizes.data > 1 { Stage::One } else { Stage::Ddp };
        let job = Job { sizes, stage: stage.unwrap_or(default) };
        if job.stage >= Stage::Two && sizes.pipeline > 1 {
            return Err("a pipeline adds up gradients of several micro-batches: give zero=0 or zero=1 with pp".into());
        }
        Ok(job)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Coordinates { data, pipeline, tensor } = self.sizes;
        let axes = [("dp", data), ("pp", pipeline), ("tp", tensor)];
        let mut parts: Vec<String> = axes
            .iter()
            .filter(|axis| axis.1 > 1)
            .map(|(axis, ranks)| format!("{axis}={ranks}"))
            .collect();
        if parts.is_empty() {
            parts.push("dp=1".to_string());
        }
        if self.stage != Stage::Ddp {
            parts.push(format!("zero={}", self.stage.number()));
        }
        write!(f, "{}", parts.join(","))
    }
}

impl Job {
    /// Whether ranks hold slices of parameters that follow each other as the ranks do: under ZeRO
    /// from stage 1 on, without axes that divide matrices or layers, and trivially on one rank.
    pub fn slices_follow_each_other(&self) -> bool {
        let divides_the_model = self.sizes.tensor > 1 || self.sizes.pipeline > 1;
        !divides_the_model && (self.sizes.data == 1 || self.stage != Stage::Ddp)
    }

    /// Whether each parameter is also sharded on its own: under ZeRO-3, and trivially on one rank.
    pub fn shards_each_parameter(&self) -> bool {
        self.slices_follow_each_other() && (self.sizes.data == 1 || self.stage == Stage::Three)
    }

    pub fn ranks(&self) -> usize {
        self.layout().ranks()
    }

    pub fn layout(&self) -> Layout {
        Layout { sizes: self.sizes, order: Order::default() }
    }

    /// The settings of this job: the same global batch whatever its ranks are, which `sequences`
    /// says.
    pub fn config(&self, base: &Config, sequences: usize) -> Config {
        let batch = sequences / (self.sizes.data * base.grad_accum);
        Config { ranks: self.sizes.data, batch, ..base.clone() }
    }

    pub fn plan(&self, config: &Config) -> PipelinePlan {
        let pipeline = Pipeline {
            ranks: self.sizes.pipeline,
            chunks: 1,
            micro_batches: config.grad_accum,
        };
        let schedule = Schedule::OneForwardOneBackward;
        PipelinePlan {
            pipeline,
            schedule,
            partition: Partition::Uniform,
            recompute: 0,
        }
    }

    /// Refuses a job that this model or this batch cannot be divided for, before anything runs.
    pub fn check(&self, base: &Config, sequences: usize) -> Result<(), BadInput> {
        let replicas = self.sizes.data * base.grad_accum;
        if !sequences.is_multiple_of(replicas) {
            let what = format!(
                "{self}: {sequences} sequences per step cannot be divided by {} data ranks x {} micro-batches",
                self.sizes.data, base.grad_accum
            );
            return Err(BadInput::new(what, "give a divisor of it, or a different --global-batch"));
        }
        let config = self.config(base, sequences);
        self.plan(&config).check(&config)?;
        TensorParallel::check(&config.shape, self.sizes.tensor, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_and_written() {
        let read = |text: &str| text.parse::<Job>().map(|job| (job.ranks(), job.to_string()));
        assert_eq!(read("dp=4"), Ok((4, "dp=4,zero=1".into())));
        assert_eq!(read("dp=1"), Ok((1, "dp=1".into())));
        assert_eq!(read("dp=4,zero=3"), Ok((4, "dp=4,zero=3".into())));
        assert_eq!(read("tp=2,pp=2,dp=3"), Ok((12, "dp=3,pp=2,tp=2,zero=1".into())));
        for bad in ["", "4", "dp=0", "dp=four", "zero=4", "xp=2", "pp=2,dp=2,zero=2"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
