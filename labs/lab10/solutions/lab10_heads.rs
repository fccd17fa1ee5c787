//! lab10-heads · Which rank caches which heads

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
    let Attention { heads, kv_heads, width, layers } = *attention;
    let each = heads / ranks;
    let group = heads / kv_heads;
    let queries = rank * each..(rank + 1) * each;
    let keys = queries.start / group..(queries.end - 1) / group + 1;
    let cache = 2 * 2 * tokens * layers * keys.len() * width;
    Held { queries, keys, cache }
}
