//! A text to generate, and its comparison with the same text from elsewhere.

use super::flags::Generation;
use super::model::Model;
use kit::Checks;
use shardlab::tensor::Precision;

/// A text to generate.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub model: &'a Model,
    pub how: &'a Generation,
    pub dtype: Precision,
}

/// Checks that a text has the tokens of the first one. `result` is printed if it does.
pub(super) fn same_tokens(
    checks: &mut Checks,
    name: &str,
    first: &[u32],
    found: &[u32],
    result: String,
) {
    let same = first.iter().zip(found).take_while(|(a, b)| a == b).count();
    checks.check(
        first == found,
        &format!("{name}: the same {} tokens", first.len()),
        &if first == found { result } else { format!("{same} only") },
        &format!("{name} generates different tokens from token {} on", same + 1),
    );
}
