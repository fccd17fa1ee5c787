//! Whether an existing folder may be replaced: only one that a conversion has written, and to which
//! nothing was added.

use serde::{Deserialize, Serialize};
use shardlab::checkpoint::{cause, files};
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The list of the files that a conversion has written, in the result's folder. DeepSpeed never
/// reads it: it opens a universal checkpoint's files by their names, `*model_states.pt` in the
/// folder and `*.pt` in the folders below `zero`.
pub const MANIFEST: &str = "ds_to_universal.json";

/// The files of a conversion: their paths in its folder, with their bytes.
#[derive(Serialize, Deserialize)]
struct Manifest {
    /// For a person who finds the list.
    about: String,
    files: BTreeMap<String, u64>,
}

const ABOUT: &str = "Files that shardlab's ds_to_universal has written. It replaces a folder that has these and no others.";

/// Refuses a folder with anything in it that a conversion has not written. An empty one loses
/// nothing.
pub(crate) fn ensure_ours(folder: &Path) -> Result<(), String> {
    if folder.symlink_metadata().is_err() {
        return Ok(());
    }
    if !folder.is_dir() {
        return Err("it exists, and is no folder".to_string());
    }
    let Some(first) = entries(folder)?.into_iter().next() else {
        return Ok(());
    };
    let path = folder.join(MANIFEST);
    if path.symlink_metadata().is_err() {
        let first = first.file_name().unwrap_or_default().display();
        return Err(format!(
            "it has {first} and no {MANIFEST}, in which a conversion lists what it wrote"
        ));
    }
    let text = files::read(&path, files::LIST).map_err(|error| error.what)?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| format!("its {MANIFEST} is no list of files: {error}"))?;
    let mut ours = BTreeMap::from([(path, None)]);
    ours.extend(manifest.files.into_iter().map(|(file, bytes)| (folder.join(file), Some(bytes))));
    let folders: BTreeSet<PathBuf> = ours
        .keys()
        .flat_map(|file| file.ancestors().skip(1))
        .map(Path::to_path_buf)
        .collect();
    compare(folder, &ours, &folders)
}

/// Compares what is in a folder with the list. Links are not followed: a conversion writes none.
fn compare(
    folder: &Path,
    ours: &BTreeMap<PathBuf, Option<u64>>,
    folders: &BTreeSet<PathBuf>,
) -> Result<(), String> {
    for path in entries(folder)? {
        let found = path
            .symlink_metadata()
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        if found.is_dir() && folders.contains(&path) {
            compare(&path, ours, folders)?;
            continue;
        }
        match ours.get(&path) {
            Some(bytes) if found.is_file() && bytes.is_none_or(|bytes| bytes == found.len()) => {}
            Some(_) => {
                return Err(format!("{} has changed since it was converted", path.display()));
            }
            None => {
                return Err(format!("{} was not written by a conversion", path.display()));
            }
        }
    }
    Ok(())
}

/// What is in a folder, in order.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = || {
        std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()
    };
    let mut all =
        read().map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    all.sort();
    Ok(all)
}

/// Writes the list of all files below a folder. Returns when the disk has each of them: the folder
/// must not become visible before its contents. Returns their bytes.
pub(crate) fn store(folder: &Path) -> Result<u64, BadInput> {
    let mut files = BTreeMap::new();
    sync(folder, folder, &mut files)?;
    let bytes = files.values().sum();
    let path = folder.join(MANIFEST);
    let text = serde_json::to_string_pretty(&Manifest { about: ABOUT.to_string(), files });
    let text = text
        .map_err(io::Error::from)
        .map_err(|error| cause::unwritten(&path, &error, ""))?;
    files::write(&path, text.as_bytes())?;
    Ok(bytes)
}

fn sync(top: &Path, folder: &Path, files: &mut BTreeMap<String, u64>) -> Result<(), BadInput> {
    let failed = |path: &Path, error: io::Error| cause::unwritten(path, &error, "");
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.is_dir() {
            sync(top, &path, files)?;
            continue;
        }
        let sync = || -> io::Result<u64> {
            let file = File::open(&path)?;
            file.sync_all()?;
            Ok(file.metadata()?.len())
        };
        let bytes = sync().map_err(|error| failed(&path, error))?;
        let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
        files.insert(name, bytes);
    }
    Ok(())
}
