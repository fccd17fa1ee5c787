//! The flags of a training that outlives a kill.

use kit::flags::{in_range, positive};
use kit::restart_count;
use shardlab::checkpoint::Resume;
use shardlab::error::BadInput;
use shardlab::train::Config;
use std::path::PathBuf;

/// Who reads a checkpoint when a training resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LoadOn {
    /// Each rank reads its own file
    Each,
    /// Only rank 0 reads, and the others get weights and the optimizer's state from it
    Rank0,
}

/// The checkpoints of one training, and the death of a rank.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Restarts")]
pub struct RestartFlags {
    /// Train once, and begin with this checkpoint: the newest (auto), the one in this folder, or
    /// none [default: auto; with --kill-rank none, and auto after a restart]
    #[arg(long, value_name = "auto|PATH|none", hide_short_help = true)]
    pub resume: Option<Resume>,
    /// Continue from a checkpoint that has another text, batch, learning rate or schedule than this
    /// run's flags: for a change on purpose, such as a lower --lr after a spike. What changes is
    /// printed, and recorded in later checkpoints
    #[arg(long, hide_short_help = true)]
    pub resume_anyway: bool,
    /// Train once, and load the checkpoint that it begins with in this way [default: each]
    #[arg(long, value_enum, value_name = "WHO", hide_short_help = true)]
    pub load_on: Option<LoadOn>,
    /// Train once, and keep the newest N checkpoints of this run [default: 3]. Those of other runs
    /// stay
    #[arg(long, value_name = "N", value_parser = positive(), hide_short_help = true)]
    pub keep: Option<usize>,
    /// Train once, with the checkpoints in this folder, to which one job at a time may save
    /// [default: restart in the run's folder]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub checkpoints: Option<PathBuf>,
    /// Train once, and kill this rank's process by SIGKILL: in the first attempt only, under
    /// `launch --max-restarts`
    #[arg(
        long,
        value_name = "RANK",
        requires = "at_step",
        hide_short_help = true
    )]
    pub kill_rank: Option<usize>,
    /// Kill it before this step
    #[arg(
        long,
        value_name = "STEP",
        requires = "kill_rank",
        hide_short_help = true
    )]
    pub at_step: Option<usize>,
}

impl RestartFlags {
    /// Whether the flags ask for one training with checkpoints.
    pub fn asked(&self) -> bool {
        let RestartFlags {
            resume, resume_anyway, load_on, keep, checkpoints, kill_rank, ..
        } = self;
        resume.is_some()
            || *resume_anyway
            || load_on.is_some()
            || keep.is_some()
            || checkpoints.is_some()
            || kill_rank.is_some()
    }

    /// Refuses a kill of a rank or before a step that the training does not have.
    pub fn check(&self, config: &Config) -> Result<(), BadInput> {
        if cfg!(target_family = "wasm") && self.kill_rank.is_some() {
            let help = "run the lab in a terminal, or press Stop: a run without --kill-rank resumes the newest checkpoint";
            return Err(BadInput::new(
                "--kill-rank ends a process, and a page has none to lose",
                help,
            ));
        }
        in_range("kill-rank", self.kill_rank.unwrap_or(0), 0..=config.ranks - 1)?;
        in_range("at-step", self.at_step.unwrap_or(1), 1..=config.steps)
    }

    /// The checkpoint that this attempt begins with. A restart continues its own run, however that
    /// began.
    pub fn begin(&self) -> Resume {
        match (&self.resume, self.kill_rank) {
            _ if restart_count() > 0 => Resume::Auto,
            (Some(resume), _) => resume.clone(),
            (None, Some(_)) => Resume::None,
            (None, None) => Resume::Auto,
        }
    }
}
