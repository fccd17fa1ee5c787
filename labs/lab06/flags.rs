//! The flags of a pipeline, and what they choose.

use super::{Break, pipeline_of};
use clap::Parser;
use kit::flags::{Preset, StrategyFlag, one_micro_step, one_of, positive, whole, without};
use kit::{Order, RunFlags, TrainFlags, help};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Partition, Schedule};
use shardlab::parallel::strategy::Recompute;
use shardlab::tensor::Precision;
use std::path::PathBuf;

/// A pipeline: ranks that hold different layers, and micro-batches that travel through them.
#[derive(Parser)]
#[command(name = "lab06", version)]
#[command(mut_arg("grad_accum", |flag| flag.hide(true).value_parser(one_micro_step)))]
#[command(mut_arg("strategy", |flag| flag.conflicts_with_all(["compare", "dynamic", "bench"])))]
#[command(mut_arg("dtype", |flag| flag.hide_short_help(true)))]
#[command(mut_arg("reduce_dtype", |flag| flag.hide(true).value_parser(no_sums)))]
#[command(mut_arg("global_batch", |flag| without::<usize>(flag, "give --micro-batches, and --batch for the size of each")))]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(after_long_help = help::examples("lab06", &[
    ("--compare", "all schedules, side by side"),
    ("--schedule interleaved --trace step.json", "another schedule, and a timeline of every rank"),
    ("--recompute 1", "less memory for more time"),
]))]
pub struct Args {
    /// Training steps of each schedule
    #[arg(long, default_value_t = 3, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: usize,
    #[command(flatten)]
    pub pipeline: PipelineFlags,
    #[command(flatten)]
    pub strategy: StrategyFlag,
    /// Run all schedules, and put them side by side
    #[arg(long, help_heading = help::INSTEAD)]
    pub compare: bool,
    /// Print every rank's order, or one rank's, as Megatron-LM's log has it
    #[arg(long, value_name = "RANK", conflicts_with = "trace", help_heading = help::INSTEAD)]
    pub print_order: Option<Option<usize>>,
    /// Let ranks choose the next pass: each by itself, until two disagree, and together
    #[arg(long, conflicts_with = "trace", help_heading = help::INSTEAD)]
    pub dynamic: bool,
    /// Make a mistake, and see what notices
    #[arg(long = "break", value_enum, conflicts_with = "compare", help_heading = help::BREAK)]
    pub broken: Option<Break>,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub run: RunFlags,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", conflicts_with = "bench", help_heading = help::OUTPUT)]
    pub trace: Option<PathBuf>,
    /// Measure a pipeline's speed beside one rank's
    #[arg(long, conflicts_with_all = ["broken", "compare"], help_heading = help::INSTEAD)]
    pub bench: bool,
}

/// Refuses `--reduce-dtype`: each gradient has one rank.
fn no_sums(text: &str) -> Result<Precision, &'static str> {
    match text {
        "f32" => Ok(Precision::F32),
        _ => Err("no ranks add up gradients in this lab: leave it out"),
    }
}

/// How a model is divided into stages, and in which order micro-batches go through them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::STRATEGY)]
pub struct PipelineFlags {
    /// Ranks of the pipeline: threads of this process, or the launcher's processes [default: 4]
    #[arg(long, value_name = "RANKS", visible_alias = "ranks", help_heading = help::RANKS)]
    pub stages: Option<usize>,
    /// Stages per rank [default: 1, or 2 with --schedule interleaved]
    #[arg(long, value_parser = whole(1..=1 << 8))]
    pub chunks: Option<usize>,
    /// Micro-batches per step
    #[arg(long, default_value_t = 8, value_parser = whole(1..=1 << 12))]
    pub micro_batches: usize,
    /// The order of the passes
    #[arg(long, value_enum, default_value_t = Order::OneForwardOneBackward)]
    pub schedule: Order,
    /// Micro-batches that go through one chunk before the next chunk's turn, with --schedule
    /// interleaved [default: as many as ranks]
    #[arg(long, hide_short_help = true)]
    pub group: Option<usize>,
    /// How layers are divided among stages
    #[arg(long, value_parser = one_of::<Partition>(), default_value = Partition::Uniform.name(), hide_short_help = true)]
    pub partition: Partition,
    /// Keep only the input of every K blocks, and compute the rest again in the backward pass
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub recompute: usize,
    /// The least time of a rank's forward pass, as in 5ms; a backward pass takes twice as long; 0 =
    /// off [default: 5ms if there are more ranks than cores]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub pace: Option<f64>,
}

/// Reads a time such as 5ms, 200us or 0.
fn seconds(text: &str) -> Result<f64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[end..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if text == "0" => 0.0,
        _ => return Err("give a time such as 5ms or 200us, or 0".to_string()),
    };
    let seconds =
        text[..end].parse::<f64>().map_err(|_| "give a time such as 5ms".to_string())? * factor;
    if seconds > 10.0 {
        Err("a pass of more than 10 s is not for reading along".to_string())
    } else {
        Ok(seconds)
    }
}

impl PipelineFlags {
    /// The strategy of a run, not yet checked: the given one, or what the flags say. Under a
    /// launcher, its processes are the ranks.
    pub fn strategy(&self, given: Option<Strategy>) -> Result<Strategy, BadInput> {
        if let Some(given) = given {
            launch::ranks(Some(given.ranks()), 4)?;
            let micro_batches = given.micro_batches.or(Some(self.micro_batches));
            return Ok(Strategy { micro_batches, ..given });
        }
        let ranks = launch::ranks(self.stages, 4)?;
        let interleaved = self.schedule == Order::Interleaved && ranks > 1;
        let chunks = self.chunks.unwrap_or(if interleaved { 2 } else { 1 });
        if self.group.is_some() && self.schedule != Order::Interleaved {
            return Err(BadInput::new(
                "--group is for --schedule interleaved",
                "give both, or leave --group out",
            ));
        }
        let interleaved = Schedule::Interleaved { group: self.group.unwrap_or(ranks) };
        Ok(self.with(ranks, chunks, self.schedule.schedule(interleaved)))
    }

    fn with(&self, pipeline: usize, chunks: usize, schedule: Schedule) -> Strategy {
        Strategy {
            pipeline,
            chunks,
            micro_batches: Some(self.micro_batches),
            schedule: Some(schedule),
            partition: self.partition,
            recompute: Recompute::every(self.recompute),
            ..Strategy::SINGLE
        }
    }

    /// All schedules that --compare runs, as far as they accept the micro-batches: those with one
    /// stage per rank, then interleaved ones, then ZB-H1.
    pub fn all(&self, ranks: usize) -> Vec<Strategy> {
        let chunks = self.chunks.unwrap_or(2);
        let with = |chunks, schedule| self.with(ranks, chunks, schedule);
        let mut all = vec![with(1, Schedule::GPipe), with(1, Schedule::OneForwardOneBackward)];
        if ranks > 1 && chunks > 1 {
            let groups = match self.group {
                Some(group) => vec![group],
                None if self.micro_batches > ranks => vec![ranks, self.micro_batches],
                None => vec![ranks],
            };
            let interleaved = |group| with(chunks, Schedule::Interleaved { group });
            all.extend(groups.into_iter().map(interleaved));
        }
        all.push(with(1, Schedule::ZeroBubble));
        all.retain(|one| one.schedule().check(&pipeline_of(one)).is_ok());
        all
    }

    /// The least time of a rank's forward pass over one micro-batch; 0 is none.
    pub fn pace(&self, strategy: &Strategy) -> f64 {
        let crowded = launch::ranks_here(strategy.ranks()) > launch::cores();
        // A pass that sleeps hides what recomputation costs.
        let sleeps = crowded && strategy.recompute == Recompute::None;
        self.pace.unwrap_or(if sleeps { 5e-3 } else { 0.0 })
    }

    /// Chooses two ranks without a pace, and lab03's larger model with one sequence per
    /// micro-batch, where the flags leave the choice.
    pub fn for_benchmark(&mut self, train: &mut TrainFlags) {
        self.stages = self.stages.or(Some(2));
        self.pace = self.pace.or(Some(0.0));
        if train.model.preset == Preset::Baby {
            train.model.preset = Preset::Char;
            train.data.batch = train.data.batch.or(Some(1));
        }
    }

    /// Default to at least 8 blocks of width 64, equally many per stage. Flags override.
    pub fn default_to_many_small_blocks(&self, train: &mut TrainFlags, stages: usize) {
        let TrainFlags { model, data, .. } = train;
        if model.preset == Preset::Baby && model.init_from.is_none() {
            model.layers = model.layers.or(Some(8usize.next_multiple_of(stages.clamp(1, 1 << 12))));
            model.embd = model.embd.or(Some(64));
            model.block = model.block.or(Some(32));
            data.batch = data.batch.or(Some(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in
            [("5ms", 5e-3), ("0", 0.0), ("200us", 200e-6), ("0.5s", 0.5), ("1.5ms", 1.5e-3)]
        {
            assert!((seconds(text).unwrap() - expected).abs() < 1e-15, "{text}");
        }
        for text in ["", "5", "ms", "-1ms", "1h", "1.2.3s", "11s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
