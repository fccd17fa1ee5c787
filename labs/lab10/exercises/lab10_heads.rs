//! lab10-heads · Which rank caches which heads
//!
//! Grouped-query attention has fewer key and value heads than query heads. Neighbouring query heads form a group, and a group
//! shares one key head and one value head: with 8 query heads and 2 groups, query heads 0 to 3 read key and value head 0.
//!
//! Tensor ranks divide the query heads, each rank takes the next `heads / ranks` of them. A rank holds the key and value heads
//! that its query heads read, and no more. If there are more ranks than key and value heads, several ranks hold a copy of the
//! same one (servers do this; the library's training does not).
//!
//! - `ranks` divides `heads`. It divides `kv_heads`, or `kv_heads` divides it.
//! - The KV cache keeps a key and a value for each token, layer, and key and value head that the rank holds. Each is `width`
//!   numbers of 2 bytes.

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
