//! book: the commands that keep the book true.
//!
//! `cargo build --bins`, then `cargo run --bin book -- outputs`, runs what the book shows and
//! compares; with `--write` it takes over what is printed. `figure NAME` prints a picture as SVG,
//! or with `--terminal` as text. mdBook calls `preprocess` while it builds the book.

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use kit::help;
use kit::show::{Screen, bytes_binary, bytes_decimal, seconds};
use lab01::formula;
use serde_json::{Value, json};
use shardlab::comm::Link;
use shardlab::comm::algorithms::{Collective, Task};
use shardlab::plan::{BytesEach, Network, simulate, zero_memory};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The commands that keep the book true.
#[derive(Parser)]
#[command(name = "book", version)]
#[command(after_long_help = help::examples("book", &[
    ("outputs lab03", "run what lab03's pages show, and compare"),
    ("figure zero-1 --terminal", "a figure of the book, as text"),
]))]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the commands whose output the book shows, and compare; after cargo build --bins
    Outputs {
        /// Only outputs whose name contains this
        #[arg(default_value = "")]
        name: String,
        /// Write what is printed to book/outputs instead
        #[arg(long)]
        write: bool,
        /// Leave the texts as they are, and write their colours to book/colours
        #[arg(long, conflicts_with = "write")]
        colours: bool,
    },
    /// Compute how long each page and path takes, and compare with what they say
    Minutes {
        /// Write the minutes into the pages instead
        #[arg(long)]
        write: bool,
    },
    /// Print a figure as SVG
    Figure {
        name: String,
        /// Print it as text, for the terminal
        #[arg(long)]
        terminal: bool,
    },
    /// Print a run's --metrics, or lab01's --json, as SVG
    Plot { file: PathBuf },
    /// Print the cases of the explorer of pipeline schedules, as JSON
    Schedules,
    /// Print the cases of the explorer of plans, as JSON
    Plans,
    /// Print the numbers that the scripts of interactive figures must compute, as JSON: called by
    /// book/browse.py
    #[command(hide = true)]
    Numbers,
    /// Turn the formulas of the book's pages into MathML: called by mdBook
    #[command(hide = true)]
    Preprocess { args: Vec<String> },
}

fn main() -> ExitCode {
    kit::main(run)
}

fn run(args: Args) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .expect("labs/tools/book is below");
    let screen = Screen::detect(false);
    match args.command {
        What::Outputs { name, write, colours } => match (write, colours) {
            (true, _) => book::write(&screen, root, &name),
            (_, true) => book::colour(&screen, root, &name),
            _ => book::compare(&screen, root, &name),
        },
        What::Minutes { write } => minutes(&screen, root, write),
        What::Figure { name, terminal } => {
            screen.say(book::figure(&name, terminal.then_some(&screen))?);
            Ok(())
        }
        What::Plot { file } => {
            screen.say(book::plot(&file)?);
            Ok(())
        }
        What::Schedules => {
            screen.say(book::cases()?);
            Ok(())
        }
        What::Plans => {
            screen.say(book::plans()?);
            Ok(())
        }
        What::Numbers => {
            screen.say(numbers()?.to_string());
            Ok(())
        }
        What::Preprocess { args } => book::preprocess(&args),
    }
}

/// Compares the minutes that pages and paths say with those computed, or writes these.
fn minutes(screen: &Screen, root: &Path, write: bool) -> Result<()> {
    let mut stale = 0;
    for page in book::stated(root)? {
        let differs = page.is != page.should;
        if differs && write {
            let path = root.join("book/src").join(&page.file);
            std::fs::write(&path, &page.should)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        stale += usize::from(differs);
        let minutes = page
            .minutes
            .map_or(String::new(), |minutes| format!("{:3} {:3}", minutes.short, minutes.full));
        let mark = match (differs, write) {
            (false, _) => "",
            (true, true) => "written",
            (true, false) => "differs",
        };
        screen.say(format!("{:20} {minutes:7} {mark}", page.file));
    }
    ensure!(
        write || stale == 0,
        "{stale} pages say other minutes than those computed\nhelp: cargo run --bin book -- minutes --write"
    );
    Ok(())
}

/// The library's numbers behind the interactive figures, on a grid of what a reader can choose.
fn numbers() -> Result<Value> {
    let mut cost = Vec::new();
    let mut stages = Vec::new();
    for link in Network::presets().map(|network| network.between) {
        // Each message is busy for its latency, too, as on a network card.
        let network = Network { pipelined: false, ..Network::uniform(link) };
        let Link { latency, bandwidth } = link;
        for ranks in [2usize, 3, 4, 5, 7, 8, 12, 64, 96, 768, 4096] {
            // All chunks have the same length.
            let least = ranks * ranks.next_power_of_two();
            for len in [least, 100 * least] {
                for &algorithm in Collective::AllReduce.algorithms() {
                    let task = Task::new(Collective::AllReduce, algorithm, ranks, len, 4, 0)?;
                    let took = simulate(&task, 4, &network);
                    let size = 4 * len;
                    let rounds =
                        formula(&task, 4).context("every all-reduce has a formula")?.rounds;
                    cost.push(json!({
                        "algorithm": algorithm.name(), "ranks": ranks, "size": size, "latency": latency,
                        "bandwidth": bandwidth, "rounds": rounds, "seconds": took,
                        "words": [seconds(took), bytes_binary(size as f64)],
                    }));
                }
            }
        }
    }
    for stage in 0..4 {
        for (precision, each) in [("f32", BytesEach::F32), ("mixed", BytesEach::MIXED)] {
            for parameters in [1, 100_000_001, 7_500_000_000, 1_000_000_000_000] {
                for ranks in [1, 2, 3, 64, 1000] {
                    let bytes = zero_memory(stage, parameters, ranks, each);
                    stages.push(json!({
                        "stage": stage, "precision": precision, "parameters": parameters, "ranks": ranks,
                        "bytes": bytes, "words": bytes.map(|bytes| bytes_decimal(bytes as f64)),
                    }));
                }
            }
        }
    }
    let rings: Vec<_> = (2..=8).map(book::ring).collect();
    Ok(
        json!({ "cost": cost, "stages": stages, "ring": rings, "schedule": book::numbers()?, "plans": book::plan_numbers()?,
            "exposed": book::exposed_numbers(), "mesh": book::mesh_numbers()?, "memory": book::memory_numbers()? }),
    )
}
