//! lab01-which · Which collective was it?

/// A call's name, as lab01's page has it.
pub fn call() -> &'static str {
    "reduce-scatter"
}
