//! What a reader may choose, and what is refused before anything runs.

use anyhow::Result;
use clap::Parser;
use kit::flags::{MuonFlags, Preset, positive, read_strategy, without};
use kit::{ModelFlags, RunFlags, TrainFlags, help};
use shardlab::error::BadInput;
use shardlab::model::Gpt;
use shardlab::parallel::Strategy;
use shardlab::train::Config;
use std::path::PathBuf;

/// Universal checkpoints: save on N ranks, resume on M.
#[derive(Parser)]
#[command(name = "lab09", version)]
#[command(mut_arg("init_from", |flag| without::<PathBuf>(flag, "this lab trains a few steps: leave it out")))]
#[command(mut_arg("batch", |flag| flag.hide(true)), mut_arg("sampler", |flag| flag.hide(true)))]
#[command(after_long_help = help::examples("lab09", &[
    ("--from dp=4,zero=3 --to dp=5,zero=1 tp=2", "another job saves, and two resume"),
    ("--padding", "a conversion that failed on 768 ranks"),
    ("--break first-data", "a mistake, and the check that notices"),
]))]
pub struct Args {
    /// How the ranks that save divide the job
    #[arg(long, value_name = "STRATEGY", default_value = "dp=4,zero=1", value_parser = read_strategy, help_heading = help::STRATEGY)]
    pub from: Strategy,
    /// How ranks divide the jobs that resume
    #[arg(long, value_name = "STRATEGY", num_args = 1.., default_values = ["dp=4,zero=1", "dp=2,zero=1", "dp=3,zero=3", "dp=1", "tp=2", "pp=2"], value_parser = read_strategy, help_heading = help::STRATEGY)]
    pub to: Vec<Strategy>,
    /// Training steps in all
    #[arg(long, default_value_t = 20, value_parser = positive(), help_heading = help::TRAINING)]
    pub steps: usize,
    /// Save after this many steps
    #[arg(long, default_value_t = 10, help_heading = help::TRAINING)]
    pub save_after: usize,
    /// Also show the slices of these parameters, for example of blocks.0.fc.weight
    #[arg(long, value_name = "NAME", num_args = 1.., help_heading = help::INSTEAD)]
    pub slices: Vec<String>,
    /// Rebuild a conversion that failed, with the files of 768 ranks
    #[arg(long, help_heading = help::INSTEAD)]
    pub padding: bool,
    /// Plot for which numbers of ranks it fails
    #[arg(long, conflicts_with = "padding", help_heading = help::INSTEAD)]
    pub plot: bool,
    /// Break it on purpose, and see which check notices
    #[arg(long = "break", value_enum, conflicts_with = "plot", help_heading = help::BREAK)]
    pub broken: Option<Break>,
    #[command(flatten)]
    pub train: TrainFlags,
    #[command(flatten)]
    pub muon: MuonFlags,
    #[command(flatten)]
    pub run: RunFlags,
}

/// Ways to break it, for `--break`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// The resumed jobs take the data of the first steps once more
    FirstData,
    /// The converter strips the padding that 768 ranks have recorded
    Strip,
}

/// Makes the default model small, where the flags leave the choice: what is shown does not depend
/// on its size.
pub(crate) fn small(model: &mut ModelFlags) {
    if model.preset == Preset::Baby {
        model.layers = model.layers.or(Some(2));
        model.embd = model.embd.or(Some(64));
        model.block = model.block.or(Some(32));
    }
}

/// Refuses a run that never saves, or never resumes.
pub(crate) fn ensure_saves(args: &Args) -> Result<(), BadInput> {
    if args.save_after == 0 || args.save_after >= args.steps {
        let what = format!(
            "--save-after {} of {} steps: nothing would be saved or resumed",
            args.save_after, args.steps
        );
        return Err(BadInput::new(what, "give a number from 1 to --steps minus 1"));
    }
    Ok(())
}

/// Refuses names of parameters that the model does not have.
pub(crate) fn ensure_known(slices: &[String], config: &Config) -> Result<()> {
    let gpt = Gpt::new(&config.shape)?;
    let names: Vec<&str> = gpt.params.specs().iter().map(|spec| spec.name.as_str()).collect();
    match slices.iter().find(|slice| !names.contains(&slice.as_str())) {
        None => Ok(()),
        Some(name) => Err(BadInput::new(
            format!("the model has no {name}"),
            format!("choose of {}", names.join(", ")),
        )
        .into()),
    }
}
