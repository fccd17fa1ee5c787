//! The terminal, if there is one: whether someone looks at it, and how wide it is.

#[cfg(any(unix, windows))]
use std::io;
use std::io::IsTerminal;

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

/// The columns of stdout, if it is a terminal that tells them. A browser's page does not: it sets
/// `COLUMNS`.
pub(super) fn width_of_stdout() -> Option<usize> {
    #[cfg(any(unix, windows))]
    return terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
    #[cfg(not(any(unix, windows)))]
    None
}

/// The lines of stdout, if it is a terminal that tells them.
pub fn height_of_stdout() -> Option<usize> {
    #[cfg(any(unix, windows))]
    return terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| height.0.into());
    #[cfg(not(any(unix, windows)))]
    None
}

/// The same for stderr.
pub(super) fn width_of_stderr() -> Option<usize> {
    #[cfg(any(unix, windows))]
    return terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into());
    #[cfg(not(any(unix, windows)))]
    None
}

/// The columns that `COLUMNS` asks for.
pub(super) fn asked_width() -> Option<usize> {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok())
}
