//! The numbers of a training step, and what 16 and 8 bits make of them.
//!
//! `seen.rs` collects the numbers of a step. `line.rs` draws them beside the formats. `zeros.rs`,
//! `master.rs`, `sums.rs` and `blocks.rs` are an experiment each: what small gradients, small
//! updates, the sums of many ranks, and numbers that share a scale lose.

mod blocks;
mod line;
mod master;
mod picture;
mod seen;
mod sums;
mod zeros;

use anyhow::Result;
use clap::Parser;
use kit::help;
use kit::show::Screen;
use shardlab::data::Corpus;
use std::process::ExitCode;

/// The numbers of a training step, and what 16 and 8 bits make of them.
#[derive(Parser)]
#[command(name = "formats", version)]
#[command(after_long_help = help::examples("formats", &[
    ("", "a step of lab03's model, in numbers"),
    ("--step 200", "a later step"),
]))]
struct Args {
    /// The step whose numbers are looked at
    #[arg(long, default_value_t = 20, value_parser = kit::flags::whole(1..=5000), help_heading = help::TRAINING)]
    step: usize,
    /// Print the number line alone, as SVG
    #[arg(long, help_heading = help::OUTPUT)]
    svg: bool,
    /// Draw with ASCII characters
    #[arg(long, help_heading = help::OUTPUT)]
    ascii: bool,
}

/// Runs it, with this process's command line.
pub fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let screen = Screen::detect(args.ascii);
    let corpus = Corpus::embedded()?;
    let config = seen::config(&corpus)?;
    shardlab::launch::one_compute_thread_a_rank();
    if !args.svg {
        // A late step takes its time.
        screen.say(format!("Where the numbers of step {} lie", args.step));
    }
    let step = seen::step(&config, &corpus.train, args.step)?;
    if args.svg {
        screen.say(picture::svg(&step, args.step));
        return Ok(());
    }
    screen.say(line::drawn(&screen, &step));
    screen.say(zeros::table(&screen, &step));
    screen.say(master::table(&screen, &step, &config, &corpus)?);
    screen.say(sums::table(&screen, &corpus)?);
    screen.say(blocks::table(&screen, &step));
    Ok(())
}
