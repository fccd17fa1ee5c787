//! How much of the averaging of gradients the backward pass hides.

/// Seconds for which a rank waits after a backward pass of `backward` seconds. Each bucket starts
/// when that share of the pass is over (0 to 1), and occupies the link for its seconds, after the
/// bucket before it.
///
/// ```
/// // Two equal buckets, 3 s each on the link, in a backward pass of 4 s: the second one arrives
/// // 2 + 3 + 3 s after its start.
/// assert_eq!(shapes::exposed(4.0, [(0.5, 3.0), (1.0, 3.0)]), 4.0);
/// ```
pub fn exposed(backward: f64, buckets: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let over = buckets
        .into_iter()
        .fold(0.0, |free: f64, (ready, seconds)| free.max(ready * backward) + seconds);
    (over - backward).max(0.0)
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
}
