//! lab10-intensity · Prefill and decode
//!
//! A model reads a prompt in one pass over all its tokens: the prefill. Then it generates one token per pass: the decode. Both
//! use the same weights. A device computes at most `ridge` FLOPs in the time in which it moves one byte. Below this intensity
//! it waits for its memory.
//!
//! - FLOPs: 2 per parameter, for each new token of each sequence. Attention's scores are left out.
//! - Each pass reads every weight once, however many tokens it has. A weight has 2 bytes.
//! - The KV cache has `cache` bytes per token of a sequence. A pass reads it for all earlier tokens, and writes it for the new
//!   ones. Sequences share weights, but not caches.
//! - All other activations are left out.

/// A model on a device.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub parameters: u64,
    /// Bytes of the KV cache per token.
    pub cache: u64,
}

/// The FLOPs that one pass computes, and the bytes that it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub flops: u64,
    pub bytes: u64,
}

/// A pass over `new` tokens of each of `batch` sequences, which have `earlier` tokens in their caches.
pub fn work(model: &Model, batch: u64, new: u64, earlier: u64) -> Work {
    let Model { parameters, cache } = *model;
    todo!(
        "{parameters} parameters, {cache} bytes per token: {batch} x {new} new tokens after {earlier}"
    )
}

/// The smallest batch with which a decode step (one new token after `earlier` tokens) has an intensity of `ridge` FLOPs per
/// byte or more, if there is one: larger batches are tried one after the other. It needs `work` alone.
pub fn batch_at_the_ridge(model: &Model, earlier: u64, ridge: u64) -> Option<u64> {
    (1..=1 << 17).find(|&batch| {
        let Work { flops, bytes } = work(model, batch, 1, earlier);
        flops >= ridge * bytes
    })
}
