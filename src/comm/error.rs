//! The errors of communication.

/// Why a communication call failed. Every text names the ranks and the call, and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// The call itself makes no sense, whatever the other ranks do.
    #[error("{0}")]
    Invalid(String),
    /// The ranks cannot go on together: one ended, they made different calls, or all wait for each other. This error is why the
    /// run ends, and its text has a line for every rank.
    #[error("{0}")]
    Broken(String),
    /// A different rank failed. This rank stops at its current communication call, or at its next one.
    #[error("rank {rank} stopped in {call}, because the run has failed: {cause}")]
    Stopped {
        rank: usize,
        call: String,
        cause: String,
    },
}

/// The result of communication.
pub type Result<T> = std::result::Result<T, CommError>;
