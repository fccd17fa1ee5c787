//! For those who write labs: what follows from `labs/labs.toml` is written, not typed.
//!
//! Reading order: `blocks.rs` (which parts of which files follow from it), `update.rs` (writes
//! them).

mod blocks;
mod update;

pub use blocks::{BLOCKS, Block, in_words};

use anyhow::Result;
use clap::Subcommand;
use kit::Course;
use kit::reader::Folders;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::files;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a lab's author lets the workbook do.
#[derive(Subcommand)]
pub enum Dev {
    /// Write what follows from labs/labs.toml: the lists of labs in the README, the book and
    /// Cargo's files, the exercises' list, the sheets, the minutes and clocks
    Update,
}

impl Dev {
    /// Does it.
    ///
    /// # Errors
    /// If there is no checkout here, or a file is not as it should be.
    pub fn run(&self, screen: &Screen) -> Result<ExitCode> {
        let root = checkout()?;
        match self {
            Dev::Update => update::update(screen, &root)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The checkout around the current folder. A room's build has `labs/labs.toml`, too, and nothing
/// that is built from it.
fn checkout() -> Result<PathBuf, BadInput> {
    let root = Folders::find().map_or_else(|built_from| built_from, |folders| folders.root);
    if !root.join("labs/labs.toml").is_file() || !root.join("Cargo.toml").is_file() {
        let what = format!("{} is no checkout of shardlab", root.display());
        return Err(BadInput::new(what, "run this inside a checkout: it writes its files"));
    }
    Ok(root)
}

/// The checkout's labs as they are now, which this program may not have been built with.
fn course(root: &Path) -> Result<Course, BadInput> {
    Course::parse(&read(root, "labs/labs.toml")?)
}

/// A file of the checkout.
fn read(root: &Path, file: &str) -> Result<String, BadInput> {
    files::text(&root.join(file), files::LIST).map_err(|error| {
        BadInput::new(format!("cannot read {file}: {error}"), "restore it with git")
    })
}
