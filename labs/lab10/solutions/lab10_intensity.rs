//! lab10-intensity · Prefill and decode

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
    Work {
        flops: 2 * parameters * batch * new,
        bytes: 2 * parameters + batch * (earlier + new) * cache,
    }
}

/// The smallest batch with which a decode step (one new token after `earlier` tokens) has an intensity of `ridge` FLOPs per
/// byte or more, if there is one: larger batches are tried one after the other. It needs `work` alone.
pub fn batch_at_the_ridge(model: &Model, earlier: u64, ridge: u64) -> Option<u64> {
    (1..=1 << 17).find(|&batch| {
        let Work { flops, bytes } = work(model, batch, 1, earlier);
        flops >= ridge * bytes
    })
}
