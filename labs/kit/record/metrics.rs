//! The file of `--metrics`: one JSON line per step.

use super::output::{create, unwritten};
use anyhow::Result;
use serde::Serialize;
use shardlab::error::BadInput;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of `--metrics`, if there is one.
pub struct MetricsFile(Option<(PathBuf, File)>);

impl MetricsFile {
    /// Creates an empty file. Without a path, nothing is written.
    pub fn create(path: Option<&Path>) -> Result<MetricsFile, BadInput> {
        let Some(path) = path else {
            return Ok(MetricsFile(None));
        };
        Ok(MetricsFile(Some((path.to_path_buf(), create("metrics", path)?))))
    }

    /// Appends a line. The operating system has it when this returns, so it survives the end of the
    /// process.
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let Some((path, file)) = &mut self.0 else {
            return Ok(());
        };
        let line = serde_json::to_string(record)? + "\n";
        file.write_all(line.as_bytes()).map_err(|error| unwritten(path, &error))
    }
}
