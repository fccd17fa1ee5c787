//! book: the commands that keep the book true.
//!
//! `cargo build --bins`, then `cargo run --bin book -- outputs`, runs what the book shows and
//! compares; with `--write` it takes over what is printed. `figure NAME` prints a picture as SVG.
//! mdBook calls `preprocess` while it builds the book.

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use kit::help;
use kit::reader::Folders;
use kit::show::{Screen, bytes_binary, bytes_decimal, seconds};
use labs::lab01::formula;
use serde_json::{Value, json};
use shardlab::comm::Link;
use shardlab::comm::algorithms::{Collective, Task};
use shardlab::error::BadInput;
use shardlab::plan::{BytesEach, Network, simulate, zero_memory};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The commands that keep the book true.
#[derive(Parser)]
#[command(name = "book", version)]
#[command(after_long_help = help::examples("book", &[
    ("outputs lab03", "run what lab03's pages show, and compare"),
    ("figure zero-1", "a figure of the book, as SVG"),
]))]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the commands whose output the book shows, and compare; after cargo build --bins
    Outputs {
        /// Only outputs whose name contains one of these, or which such a program makes
        names: Vec<String>,
        /// Write what is printed to book/outputs instead
        #[arg(long)]
        write: bool,
        /// Compute without wide vectors, which takes longer and must print the same
        #[arg(long, conflicts_with = "write")]
        portable: bool,
    },
    /// Build the book and its labs into target/book, for `workbook serve` or any static host
    Build,
    /// Compare what a notebook's cells print after a run with what is written: called by
    /// notebooks/run.py
    #[command(hide = true)]
    Notebook { written: PathBuf, run: PathBuf },
    /// Print a figure as SVG
    Figure { name: String },
    /// Print a run's --metrics, or lab01's --json, as SVG
    Plot { file: PathBuf },
    /// Print the cases of an interactive figure for its script, as JSON
    Cases { name: String },
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
    let Folders { root, .. } = Folders::find().map_err(|built_from| {
        let what = format!("there is no checkout here, nor in {}", built_from.display());
        BadInput::new(what, "run this inside a checkout of shardlab")
    })?;
    let root = &root;
    let screen = Screen::detect(false);
    screen.say(match args.command {
        What::Outputs { names, write: true, .. } => return book::write(&screen, root, &names),
        What::Outputs { names, portable, .. } => {
            return book::compare(&screen, root, &names, portable);
        }
        What::Build => return book::build(&screen, root),
        What::Notebook { written, run } => return notebook(&written, &run),
        What::Preprocess { args } => return book::preprocess(&args),
        What::Figure { name } => book::figure(&name)?,
        What::Plot { file } => book::plot(&file)?,
        What::Cases { name } => book::cases(&name)?,
        What::Numbers => numbers()?.to_string(),
    });
    Ok(())
}

/// Fails if a notebook's cells have printed something else.
fn notebook(written: &Path, run: &Path) -> Result<()> {
    let differ = book::compare_notebooks(written, run)?;
    ensure!(differ.is_empty(), "{}", differ.join("\n"));
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
        json!({ "cost": cost, "stages": stages, "ring": rings, "schedule": book::numbers()?, 
            "exposed": book::exposed_numbers(), "mesh": book::mesh_numbers(), "memory": book::memory_numbers()?,
            "steps": book::steps()?,
            "bad-batch": book::bad_batch_numbers()?, "typed": book::typed_numbers() }),
    )
}
