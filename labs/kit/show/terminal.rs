//! The terminal, if there is one: whether someone looks at it, and how wide it is.

use std::io::{self, IsTerminal};
#[cfg(any(unix, windows))]
use terminal_size::terminal_size_of;
use terminal_size::{Height, Width};

/// The columns of a terminal that does not tell its own.
pub(super) const DEFAULT_WIDTH: usize = 80;

/// Whether `stream` (stdout or stderr) is a terminal that someone looks at.
pub(super) fn is_looked_at(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_open_mpi()
}

/// Whether Open MPI runs this process. It gives each rank a terminal, even if mpirun itself writes
/// to a file or a pipe.
fn is_open_mpi() -> bool {
    std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some_and(|size| !size.is_empty())
}

/// A browser's page does not tell them: it sets `COLUMNS`.
#[cfg(not(any(unix, windows)))]
fn terminal_size_of(_: impl IsTerminal) -> Option<(Width, Height)> {
    None
}

/// The columns of stdout, if it is a terminal that tells them.
pub(super) fn width_of_stdout() -> Option<usize> {
    terminal_size_of(io::stdout()).map(|(Width(width), _)| width.into())
}

/// The lines of stdout, if it is a terminal that tells them.
pub fn height_of_stdout() -> Option<usize> {
    terminal_size_of(io::stdout()).map(|(_, Height(height))| height.into())
}

/// The columns of stderr, if it is a terminal that tells them.
pub(super) fn width_of_stderr() -> Option<usize> {
    terminal_size_of(io::stderr()).map(|(Width(width), _)| width.into())
}

/// The columns that `COLUMNS` asks for.
pub(super) fn asked_width() -> Option<usize> {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok())
}
