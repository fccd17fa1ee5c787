//! For those who write labs: a lab's files are begun from a skeleton, and what follows from
//! `labs/labs.toml` is written, not typed.
//!
//! Reading order: `blocks.rs` (which parts of which files follow from it), `paths.rs` (the minutes
//! of pages and paths), `update.rs` (writes them), `new.rs` (begins a lab), `check.rs` (what it
//! still lacks).

mod blocks;
mod check;
mod new;
mod paths;
mod update;

pub use blocks::{BLOCKS, Block};
pub use paths::clock_row;
pub use update::stale;

use crate::desk::files_of;
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
    /// Begin a lab: write all that one consists of, from a skeleton that compiles and runs
    New {
        /// The lab that comes next, for example lab13
        name: String,
        /// A few words, for example "Experts"
        title: String,
    },
    /// Say what a lab still lacks, in the order in which one works
    Check { name: String },
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
            Dev::New { name, title } => new::new(screen, &root, name, title)?,
            Dev::Check { name } => {
                let is_done = check::check(screen, &root, name)?;
                return Ok(ExitCode::from(u8::from(!is_done)));
            }
            Dev::Update => update::update(screen, &root)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The checkout around the current folder. A shared build has `labs/labs.toml`, too, and
/// nothing that is built from it.
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

/// All files below a folder of the checkout, seen from its root, in order.
fn in_checkout(root: &Path, folder: &str) -> Result<Vec<String>, BadInput> {
    let mut files = Vec::new();
    for path in files_of(&root.join(folder))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{folder}/{name}");
        if path.is_dir() {
            files.extend(in_checkout(root, &name)?);
        } else {
            files.push(name);
        }
    }
    Ok(files)
}
