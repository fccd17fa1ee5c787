//! lab01-which · Which collective was it?
//!
//! Three ranks make one call together. Which one leaves these numbers?
//!
//! ```text
//!           rank 0        rank 1        rank 2
//! before    4  1  3       2  6  1       1  1  5
//! after        7             8             9
//! ```

/// A call's name, as lab01's page has it.
pub fn call() -> &'static str {
    todo!("for instance \"barrier\"")
}
