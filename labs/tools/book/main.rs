//! book: the commands that keep the book true.
//!
//! `cargo build --bins`, then `cargo run --bin book -- outputs`, runs what the book shows and
//! compares; with `--write` it takes over what is printed. `figure NAME` prints a picture as SVG.
//! mdBook calls `preprocess` while it builds the book.

use anyhow::Result;
use clap::{Parser, Subcommand};
use kit::help;
use kit::reader::Folders;
use kit::show::Screen;
use shardlab::error::BadInput;
use std::path::PathBuf;
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
    /// Print a run's --metrics as SVG
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
        What::Notebook { written, run } => return book::compare_notebooks(&written, &run),
        What::Preprocess { args } => return book::preprocess(&args),
        What::Figure { name } => book::figure(&name)?,
        What::Plot { file } => book::plot(&file)?,
        What::Cases { name } => book::cases(&name)?,
        What::Numbers => book::numbers()?.to_string(),
    });
    Ok(())
}
