//! A folder that appears when it is complete. Until then its files are in one beside it.

use shardlab::checkpoint::{cause, files};
use shardlab::error::BadInput;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) struct Folder {
    to: PathBuf,
    side: PathBuf,
}

impl Folder {
    /// Begins the folder `to`, which must not exist, or be empty. Removes what an interrupted
    /// conversion has left. `help` says what to do if it exists.
    pub fn begin(to: &Path, help: &str) -> Result<Folder, BadInput> {
        let free = match std::fs::read_dir(to) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => to.symlink_metadata().is_err(),
        };
        if to.file_name().is_none() || !free {
            let what = format!("{} cannot be the output folder: it exists", to.display());
            return Err(BadInput::new(what, help));
        }
        Ok(Folder { to: to.to_path_buf(), side: files::beside(to)? })
    }

    /// Where its files are until it is complete.
    pub fn path(&self) -> &Path {
        &self.side
    }

    /// Where it will be.
    pub fn to(&self) -> &Path {
        &self.to
    }

    /// Makes it visible. Returns its bytes.
    pub fn publish(self) -> Result<u64, BadInput> {
        let bytes = sync(&self.side)?;
        files::rename(&self.side, &self.to)?;
        Ok(bytes)
    }
}

/// Removes what has been written, unless it is visible.
impl Drop for Folder {
    fn drop(&mut self) {
        files::discard(&self.side);
    }
}

/// Waits until the disk has all files below a folder, which must not become visible before. Returns
/// their bytes.
fn sync(folder: &Path) -> Result<u64, BadInput> {
    let failed = |error: io::Error| cause::unwritten(folder, &error, "");
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            bytes += sync(&path)?;
        } else {
            let file = File::open(&path).map_err(failed)?;
            file.sync_all().map_err(failed)?;
            bytes += file.metadata().map_err(failed)?.len();
        }
    }
    Ok(bytes)
}
