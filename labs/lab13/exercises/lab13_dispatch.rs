//! lab13-dispatch · There and back again
//!
//! The lab gathers all tokens on every rank. Here only copies travel: each token goes to the ranks
//! of its experts, and what they make of it comes back. Two ranks with two experts each:
//!
//! ```text
//!                rank 0 holds experts 0 1       rank 1 holds experts 2 3
//! tokens         a: 0 2     b: 3 2              c: 1 3
//!
//! counts         1 0 | 2 1                      0 1 | 0 1        for experts 0 1 | 2 3
//! all-to-all     1 0 | 0 1                      2 1 | 0 1        from rank    0 | 1
//!
//! copies         a | a b b                      c | c
//! dispatch       a | c                          a b b | c
//! experts        0(a) | 1(c)                    2(a) 2(b) 3(b) | 3(c)
//! combine        0(a) | 2(a) 2(b) 3(b)          1(c) | 3(c)
//!
//! result         a: w 0(a) + w 2(a)             c: w 1(c) + w 3(c)
//!                b: w 3(b) + w 2(b)
//! ```
//!
//! Nobody knows in advance how many copies come, so ranks tell each other first. Two calls of
//! `comm` do all of it. Both have parts for all ranks, in rank order:
//!
//! - `all_to_all(&send, &mut recv)?` has equal parts.
//! - `all_to_all_v(&send, &sends, &mut recv, &expects)?` has `sends[r]` numbers for rank r, and
//!   `expects[r]` from it, in `usize`. They add up to the lengths of `send` and `recv`.
//!
//! A rank may have no tokens, or experts that nobody chose. A result is one row for each token, in
//! the order of `tokens`.

use shardlab::comm::{Comm, Result};

/// One of a token's experts, and the weight of what it makes of the token.
#[derive(Clone, Copy)]
pub struct Choice {
    pub expert: usize,
    pub weight: f64,
}

/// All ranks' experts. Each rank holds as many as any other, in rank order.
pub struct Experts<'a> {
    pub number: usize,
    /// The numbers of a token, and of what an expert makes of it.
    pub width: usize,
    /// What an expert of this rank makes of a token. It has its number among all experts.
    pub compute: &'a dyn Fn(usize, &[f64]) -> Vec<f64>,
}

/// For each of this rank's `tokens`: what its experts make of it, each times its weight, added up.
pub fn mixture(
    comm: &Comm,
    tokens: &[Vec<f64>],
    choices: &[Vec<Choice>],
    experts: &Experts,
) -> Result<Vec<Vec<f64>>> {
    todo!(
        "rank {} of {} has {} tokens, which choose {:?}, and holds {} experts",
        comm.rank(),
        comm.size(),
        tokens.len(),
        choices.iter().flatten().map(|choice| choice.expert).collect::<Vec<_>>(),
        experts.number / comm.size()
    )
}
