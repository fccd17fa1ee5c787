//! The mistake that this program makes on purpose.

use std::sync::OnceLock;

/// Its name, and the sentence about it.
pub type Mistake = [String; 2];

static MISTAKE: OnceLock<Option<Mistake>> = OnceLock::new();

/// Notes the mistake that the command line asks for, if any.
pub(crate) fn note(mistake: Option<Mistake>) {
    MISTAKE.get_or_init(|| mistake);
}

/// The mistake that is made, if any.
pub fn made() -> Option<&'static Mistake> {
    MISTAKE.get()?.as_ref()
}
