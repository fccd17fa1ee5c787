//! What a run asks of the communication between its ranks.

use super::Link;

/// Handed to [`launch::run_with`](crate::launch::run_with); the default is what [`launch::run`](crate::launch::run) takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Ranks that are threads take as long to communicate as over this link. None: as long as it takes.
    pub link: Option<Link>,
    /// Ranks that are processes do not ask before each collective whether all mean the same one.
    pub no_check: bool,
}
