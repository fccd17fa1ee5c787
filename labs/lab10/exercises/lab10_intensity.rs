//! lab10-intensity · Prefill and decode
//!
//! The page on texts and their cost counts products with weights, and the weights' bytes. With long
//! contexts two more things matter: attention's own products, and the KV cache. Count both for one
//! pass, with grouped-query attention.
//!
//! ```text
//! a model of 1,000 parameters with 3 layers, and 4 query heads that are 8 wide;
//! 1 sequence has 3 tokens in its cache, and a decode step adds one
//!
//! key and value heads      FLOPs      bytes      FLOPs per byte
//!                   4      3,536      3,536      1.00
//!                   2      3,536      2,768      1.28
//!                   1      3,536      2,384      1.48
//! ```
//!
//! - Each new token goes through every parameter. A multiplication and an addition are 2 FLOPs.
//! - In each layer, each query head multiplies a new token's query with the keys of all tokens up
//!   to this one, itself included. Then it adds up their values, each with its weight. The softmax
//!   is left out.
//! - All numbers have 2 bytes. A pass reads the weights and the cache of the earlier tokens, and
//!   writes the cache of the new ones. Everything else stays in the processor.

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
    todo!(
        "{parameters} parameters, {layers} layers, {heads} and {kv_heads} heads of {width}: {batch} x {new} after {earlier}"
    )
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
