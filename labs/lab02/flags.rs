//! lab02's flags.

use crate::apparatus::MlpConfig;
use clap::Parser;
use kit::flags::{COUNTS, is_positive, number, whole};
use kit::{Break, LogFlags, RunFlags, help};
use shardlab::error::BadInput;

/// The smallest training job: data parallelism on five linear layers.
#[derive(Parser)]
#[command(name = "lab02", version)]
#[command(after_long_help = help::examples("lab02", &[
    ("--ranks 4 --all", "four ranks, with all curves"),
    ("--metrics steps.jsonl --trace steps.json", "files for your own plots and for a timeline"),
    ("--break no-average", "ranks that train apart, and the check that notices"),
]))]
pub struct Args {
    #[command(flatten)]
    pub train: MlpFlags,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

/// The smallest job's flags. Flags that [`TrainFlags`](kit::TrainFlags) has too have the same
/// names.
#[derive(Clone, Debug, clap::Args)]
pub struct MlpFlags {
    /// Ranks that train together: threads of this process [default: 2], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Iterations
    // The loss cannot fall within one iteration.
    #[arg(long, default_value_t = 100, value_parser = whole(2..=*COUNTS.end()), help_heading = help::TRAINING)]
    pub steps: usize,
    /// Iterations at the start that train but are neither logged nor timed
    #[arg(long, default_value_t = 1, hide_short_help = true, help_heading = help::TRAINING)]
    pub warmup_iters: usize,
    /// Samples per rank and iteration
    #[arg(long, default_value_t = 64, value_parser = whole(COUNTS), help_heading = help::TRAINING)]
    pub batch: usize,
    /// Learning rate of Adam
    #[arg(long, default_value_t = 1e-3, value_parser = number::<f64>(is_positive, "a finite number above 0"), help_heading = help::TRAINING)]
    pub lr: f64,
    /// Random seed of weights and data
    #[arg(long, default_value_t = 1337, help_heading = help::TRAINING)]
    pub seed: u64,
    #[command(flatten)]
    pub log: LogFlags,
    #[command(flatten)]
    pub run: RunFlags,
}

impl MlpFlags {
    /// Checks the flags before allocating memory. `ranks` is the result of `launch::ranks`. `lab`
    /// is the name of the default folder.
    pub fn resolve(&self, ranks: usize, lab: &str) -> Result<MlpConfig, BadInput> {
        let MlpFlags { steps, warmup_iters, batch, lr, seed, .. } = *self;
        if warmup_iters >= steps {
            let what = format!(
                "--warmup-iters {warmup_iters} leaves none of {steps} iterations to measure"
            );
            return Err(BadInput::new(
                what,
                format!("give at most {}, or more --steps", steps - 1),
            ));
        }
        let out = self.run.folder(lab);
        Ok(MlpConfig {
            ranks,
            steps,
            warmup_iters,
            log_interval: self.log.interval(steps),
            batch,
            lr,
            seed,
            out,
        })
    }
}
