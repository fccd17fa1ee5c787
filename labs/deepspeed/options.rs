//! What a conversion is asked for, and who is told how far it is.

use std::path::PathBuf;

/// The form of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// DeepSpeed loads these
    Torch,
    /// This workbook and most other programs load these
    Safetensors,
}

/// What to convert, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of one save, such as `checkpoints/global_step100`.
    pub input: PathBuf,
    /// The folder of the result.
    pub output: PathBuf,
    /// Files that are read at the same time.
    pub extract_workers: usize,
    /// Parameters that are put together at the same time, each in memory.
    pub merge_workers: usize,
    /// Whether each rank's fragments are written, too.
    pub keep_temp: bool,
    /// Whether a doubtful result is an error.
    pub strict: bool,
    /// Whether missing rules of tensor parallelism are taken to be none.
    pub inject: bool,
    /// Whether everything is read and checked, and nothing written.
    pub dry_run: bool,
    /// Whether the result is read back and compared with what was written.
    pub verify: bool,
    pub format: Format,
}

impl Options {
    /// A strict conversion with DeepSpeed's defaults.
    pub fn new(input: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Options {
        Options {
            input: input.into(),
            output: output.into(),
            extract_workers: 4,
            merge_workers: 2,
            keep_temp: false,
            strict: true,
            inject: false,
            dry_run: false,
            verify: false,
            format: Format::Torch,
        }
    }
}

/// Is told how far a conversion is. `()` ignores it.
pub trait Watch: Sync {
    /// A phase of so many tasks begins.
    fn begin(&self, _phase: &str, _tasks: usize) {}
    /// One more task of the phase is done.
    fn advance(&self) {}
    /// The phase is complete.
    fn end(&self) {}
}

impl Watch for () {}
