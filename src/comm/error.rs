//! What can go wrong between ranks.

/// Why a communication call failed. Every variant's text says which ranks, which call, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// The call itself makes no sense, whatever the other ranks do.
    #[error("{0}")]
    Invalid(String),
    /// The ranks cannot go on together: one ended, they made different calls, or all wait for each other.
    /// This is the cause of the run's end; the text has a line for every rank.
    #[error("{0}")]
    Broken(String),
    /// Another rank failed; this one stops at the communication call that it was in or came to.
    #[error("rank {rank} stopped in {call}, because the run has failed: {cause}")]
    Stopped { rank: usize, call: String, cause: String },
}

/// The result of communication.
pub type Result<T> = std::result::Result<T, CommError>;
