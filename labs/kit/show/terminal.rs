//! The terminal, if there is one: whether someone looks at it, and how wide it is.

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

/// Columns and lines of stdout and stderr, if they are terminals that tell them.
#[cfg(any(unix, windows))]
mod size {
    use std::io;
    use terminal_size::{Height, Width, terminal_size_of};

    fn numbers((width, height): (Width, Height)) -> [usize; 2] {
        [width.0.into(), height.0.into()]
    }

    pub fn of_stdout() -> Option<[usize; 2]> {
        terminal_size_of(io::stdout()).map(numbers)
    }

    pub fn of_stderr() -> Option<[usize; 2]> {
        terminal_size_of(io::stderr()).map(numbers)
    }
}

/// A browser's page does not tell them: it sets `COLUMNS`.
#[cfg(not(any(unix, windows)))]
mod size {
    pub fn of_stdout() -> Option<[usize; 2]> {
        None
    }

    pub fn of_stderr() -> Option<[usize; 2]> {
        None
    }
}

/// The columns of stdout, if it is a terminal that tells them.
pub(super) fn width_of_stdout() -> Option<usize> {
    size::of_stdout().map(|[width, _]| width)
}

/// The lines of stdout, if it is a terminal that tells them.
pub fn height_of_stdout() -> Option<usize> {
    size::of_stdout().map(|[_, height]| height)
}

/// The columns of stderr, if it is a terminal that tells them.
pub(super) fn width_of_stderr() -> Option<usize> {
    size::of_stderr().map(|[width, _]| width)
}

/// The columns that `COLUMNS` asks for.
pub(super) fn asked_width() -> Option<usize> {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok())
}
