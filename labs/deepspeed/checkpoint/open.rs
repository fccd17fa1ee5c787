//! What a folder is, by the names of its files.

use super::safetensors;
use crate::dcp;
use crate::tensors::Checkpoint;
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::path::{Path, PathBuf};

/// A format of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PyTorch's distributed checkpoint.
    Dcp,
    /// Files of safetensors.
    Safetensors,
}

impl Format {
    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Format::Dcp => "PyTorch's distributed checkpoint (DCP)",
            Format::Safetensors => "safetensors",
        }
    }
}

/// Reads what a folder, or a file of safetensors, has. Elements stay on the disk.
///
/// # Errors
/// If it is of no format that is known here, or not as its format says.
pub fn open(path: &Path) -> Result<(Format, Checkpoint), BadInput> {
    if path.join(dcp::METADATA).exists() {
        return Ok((Format::Dcp, dcp::read(path)?));
    }
    if path.is_file() {
        return Ok((Format::Safetensors, safetensors::read(&[path.to_path_buf()])?));
    }
    let entries = std::fs::read_dir(path).map_err(|error| {
        let what = format!("{} cannot be read: {error}", path.display());
        BadInput::new(what, cause::unread(&error, "give the folder of one checkpoint"))
    })?;
    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let ends = |end: &'static str| {
        move |name: &&PathBuf| name.extension().is_some_and(|found| found == end)
    };
    let files: Vec<PathBuf> = names.iter().filter(ends("safetensors")).cloned().collect();
    if !files.is_empty() {
        return Ok((Format::Safetensors, safetensors::read(&files)?));
    }
    let (what, help) = if names.iter().any(|name| ends("distcp")(&name)) {
        (
            "files of PyTorch's distributed checkpoint, and no .metadata, which says what is in them",
            "use a save that was complete: PyTorch writes .metadata last",
        )
    } else if names.iter().any(|name| ends("pt")(&name)) || path.join("zero").is_dir() {
        (
            "files of DeepSpeed or torch.save, which are not read here",
            "convert a save of ZeRO with ds_to_universal",
        )
    } else {
        (
            "neither .metadata nor a file *.safetensors",
            "give the folder of one checkpoint",
        )
    };
    Err(BadInput::new(format!("{} has {what}", path.display()), help))
}
