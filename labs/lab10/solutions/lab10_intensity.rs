//! lab10-intensity · Prefill and decode

/// A model with grouped-query attention.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub parameters: u64,
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key heads, and as many value heads.
    pub kv_heads: u64,
    /// Numbers of one head, for one token.
    pub width: u64,
}

/// The FLOPs that one pass computes, and the bytes that it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub flops: u64,
    pub bytes: u64,
}

/// A pass over `new` tokens of each of `batch` sequences, which have `earlier` tokens in their
/// caches.
pub fn work(model: &Model, batch: u64, new: u64, earlier: u64) -> Work {
    let Model { parameters, layers, heads, kv_heads, width } = *model;
    // Of n new tokens, the first sees one token more than the cache has, the second two more, and
    // the last one n more.
    let seen = new * earlier + new * (new + 1) / 2;
    // Per head: a score with every key, and a sum of every value.
    let attention = 2 * 2 * layers * heads * width * seen;
    // A key and a value. Query heads of a group share them.
    let cached = 2 * 2 * layers * kv_heads * width;
    Work {
        flops: batch * (2 * parameters * new + attention),
        bytes: 2 * parameters + batch * (earlier + new) * cached,
    }
}

/// The smallest batch with which a decode step (one new token after `earlier` tokens) has an
/// intensity of `ridge` FLOPs per byte or more, if there is one: larger batches are tried one after
/// the other. It needs only `work`.
pub fn batch_at_the_ridge(model: &Model, earlier: u64, ridge: u64) -> Option<u64> {
    (1..=1 << 14).find(|&batch| {
        let Work { flops, bytes } = work(model, batch, 1, earlier);
        flops >= ridge * bytes
    })
}
