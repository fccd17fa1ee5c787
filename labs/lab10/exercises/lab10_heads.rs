//! lab10-heads · Which rank caches which heads
//!
//! Grouped-query attention has fewer key and value heads than query heads. Neighbouring query heads
//! form a group, and a group shares one key head and one value head. Tensor ranks divide the query
//! heads: each rank takes the next `heads / ranks` of them, and holds the key and value heads that
//! these read, and no more.
//!
//! ```text
//! query heads             0   1   2   3   4   5   6   7
//! key and value head      0   0   0   0   1   1   1   1
//!
//! 2 ranks     queries     0..4            4..8
//!             keys        0..1            1..2
//! 4 ranks     queries     0..2    2..4    4..6    6..8
//!             keys        0..1    0..1    1..2    1..2
//! ```
//!
//! - `ranks` divides `heads`. It divides `kv_heads`, or `kv_heads` divides it. With 4 ranks, two
//!   hold copies of the same head. Servers do this; the library's training does not.
//! - The KV cache keeps a key and a value for each token, layer, and key and value head that the
//!   rank holds. Each is `width` numbers of 2 bytes.

use std::ops::Range;

/// The attention of a model.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    pub heads: usize,
    pub kv_heads: usize,
    /// Numbers of one head.
    pub width: usize,
    pub layers: usize,
}

/// The heads and the cache of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub queries: Range<usize>,
    /// The key heads, which are also the value heads.
    pub keys: Range<usize>,
    /// Bytes of the KV cache.
    pub cache: usize,
}

/// The heads of `rank`, and its cache for a sequence of `tokens` tokens.
pub fn held(attention: &Attention, rank: usize, ranks: usize, tokens: usize) -> Held {
    todo!("{attention:?}: rank {rank} of {ranks}, {tokens} tokens")
}
