//! What a conversion is asked for, and who is told how far it is.

use std::path::PathBuf;

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
    /// Whether a doubtful result is an error.
    pub strict: bool,
    /// Whether everything is read and checked, and nothing written.
    pub dry_run: bool,
    /// Whether the result is read back and compared with what was written.
    pub verify: bool,
}

impl Options {
    /// A strict conversion with DeepSpeed's defaults.
    pub fn new(input: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Options {
        Options {
            input: input.into(),
            output: output.into(),
            extract_workers: 4,
            merge_workers: 2,
            strict: true,
            dry_run: false,
            verify: false,
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
