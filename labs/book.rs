//! book: the commands that keep the book true.
//!
//! `cargo build --features figures --bins`, then `cargo run --features figures --bin book -- outputs`, runs what the book
//! shows and compares; with `--write` it takes over what is printed. `figure NAME` prints a picture as SVG, or with
//! `--terminal` as text. mdBook calls `preprocess` while it builds the book.

use anyhow::Result;
use clap::{Parser, Subcommand};
use shardlab::book;
use shardlab::launch;
use shardlab::show::Screen;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The commands that keep the book true.
#[derive(Parser)]
#[command(name = "book", version)]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Run the commands whose output the book shows, and compare; after cargo build --features figures --bins
    Outputs {
        /// Only outputs whose name contains this
        #[arg(default_value = "")]
        name: String,
        /// Write what is printed to book/outputs instead
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
    /// Print a run's --metrics, or lab01's --json, as SVG; for a build with --features figures
    Plot { file: PathBuf },
    /// Print the numbers that the scripts of interactive figures must compute, as JSON: called by book/browse.py
    #[command(hide = true)]
    Numbers,
    /// Turn the formulas of the book's pages into MathML: called by mdBook
    #[command(hide = true)]
    Preprocess { args: Vec<String> },
}

fn main() -> ExitCode {
    launch::main(run)
}

fn run() -> Result<()> {
    let (root, screen) = (Path::new(env!("CARGO_MANIFEST_DIR")), Screen::detect(false));
    match launch::arguments::<Args>()?.command {
        What::Outputs { name, write: false } => book::compare(&screen, root, &name),
        What::Outputs { name, write: true } => book::write(&screen, root, &name),
        What::Figure { name, terminal } => {
            screen.say(book::figure(&name, terminal.then_some(&screen))?);
            Ok(())
        }
        What::Plot { file } => {
            screen.say(book::plot(&file)?);
            Ok(())
        }
        What::Numbers => {
            screen.say(book::numbers()?.to_string());
            Ok(())
        }
        What::Preprocess { args } => book::preprocess(&args),
    }
}
