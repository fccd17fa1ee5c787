//! How much of the averaging of gradients the backward pass hides.

/// Seconds for which a rank waits after a backward pass of `backward` seconds. Each bucket starts
/// when that share of the pass is over (0 to 1), and occupies the link for its seconds, after the
/// bucket before it.
///
/// ```
/// // Two equal buckets, 3 s each on the link, in a backward pass of 4 s: the second one arrives
/// // 2 + 3 + 3 s after its start.
/// assert_eq!(shardlab::plan::exposed(4.0, [(0.5, 3.0), (1.0, 3.0)]), 4.0);
/// ```
pub fn exposed(backward: f64, buckets: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let over = buckets
        .into_iter()
        .fold(0.0, |free: f64, (ready, seconds)| free.max(ready * backward) + seconds);
    (over - backward).max(0.0)
}

/// The tokens per rank and step from which on an all-reduce of all gradients, `bytes` for each,
/// hides behind the backward pass: t = g(n-1)F / (2nB).
///
/// The backward pass takes 4 FLOPs for each parameter and token, at `flops` FLOP/s; the all-reduce
/// moves 2(n-1)/n · g bytes for each parameter, at `bandwidth` B/s. Both grow with the number of
/// parameters, which cancels.
pub fn tokens_that_hide(bytes: f64, ranks: usize, flops: f64, bandwidth: f64) -> f64 {
    let n = ranks as f64;
    bytes * (n - 1.0) * flops / (2.0 * n * bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_hidden_is_exposed() {
        // Hidden but for the last bucket, which sets out when the pass is over.
        assert_eq!(exposed(4.0, [(0.25, 1.0), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0)]), 1.0);
        // A link slower than the pass: it starts with the first bucket, and never stops.
        assert_eq!(exposed(4.0, [(0.25, 3.0), (0.5, 3.0), (0.75, 3.0), (1.0, 3.0)]), 9.0);
        assert_eq!(exposed(4.0, [(0.1, 1.0)]), 0.0);
    }

    #[test]
    fn the_models_size_cancels() {
        let ranks = 64;
        let flops = 4e14;
        let bandwidth = 5e10;
        let parameters = 7e9;
        let tokens = tokens_that_hide(2.0, ranks, flops, bandwidth);
        let backward = 4.0 * parameters * tokens / flops;
        let n = ranks as f64;
        let all_reduce = 2.0 * (n - 1.0) / n * 2.0 * parameters / bandwidth;
        assert!((backward - all_reduce).abs() < 1e-12 * backward);
        assert!((tokens - 7875.0).abs() < 1e-9);
    }
}
