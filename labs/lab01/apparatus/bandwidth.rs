//! The speed of a collective: nccl-tests' two bandwidths, and the link that fits measured times.

use shardlab::comm::Link;
use shardlab::comm::algorithms::Collective;

/// algbw: bytes per second as the caller sees them, S / t.
///
/// S is the whole array: one rank's vector (all-reduce, reduce, broadcast), or all parts together
/// (the others). Source: nccl-tests, `doc/PERFORMANCE.md`. (DeepSpeed's and EleutherAI's benchmarks
/// print 2S / t for an all-reduce.)
pub fn algbw(bytes: f64, seconds: f64) -> f64 {
    bytes / seconds
}

/// busbw: the bytes per second on each rank's link, if the algorithm sends as little as possible.
/// It is algbw times a factor that depends on the number of ranks. Compare it with the hardware,
/// and between numbers of ranks.
pub fn busbw(collective: Collective, ranks: usize, bytes: f64, seconds: f64) -> f64 {
    let n = ranks as f64;
    let factor = match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::Reduce | Collective::Broadcast => 1.0,
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::Scatter
        | Collective::Gather
        | Collective::AllToAll => (n - 1.0) / n,
    };
    factor * algbw(bytes, seconds)
}

/// The link whose times come closest to the measured ones, (bytes, seconds): the line t = α + S/β
/// whose relative errors have the least squares. None for less than two sizes, or where times do
/// not grow.
pub fn fit(points: &[(f64, f64)]) -> Option<Link> {
    let points: Vec<(f64, f64)> =
        points.iter().copied().filter(|&(_, t)| t > 0.0 && t.is_finite()).collect();
    // Each point counts by 1 / t²: an error of 10% weighs the same at 1 µs and at 1 s.
    let sum =
        |of: fn(f64, f64) -> f64| points.iter().map(|&(s, t)| of(s, t) / (t * t)).sum::<f64>();
    let w = sum(|_, _| 1.0);
    let x = sum(|s, _| s);
    let y = sum(|_, t| t);
    let xx = sum(|s, _| s * s);
    let xy = sum(|s, t| s * t);
    let slope = (w * xy - x * y) / (w * xx - x * x);
    if !slope.is_finite() || slope <= 0.0 {
        return None;
    }
    let latency = (y - slope * x) / w;
    Some(Link { latency: latency.max(0.0), bandwidth: 1.0 / slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_nccl_tests_ones() {
        // Its own example: 4 ranks, 1 GB in 10 ms.
        let busbw = |collective| busbw(collective, 4, 1e9, 0.01);
        assert_eq!(algbw(1e9, 0.01), 1e11);
        assert_eq!(busbw(Collective::AllReduce), 1.5e11);
        assert_eq!(busbw(Collective::AllGather), 0.75e11);
        assert_eq!(busbw(Collective::ReduceScatter), 0.75e11);
        assert_eq!(busbw(Collective::AllToAll), 0.75e11);
        assert_eq!(busbw(Collective::Broadcast), 1e11);
    }

    #[test]
    fn a_line_is_found_again() {
        let line = Link { latency: 20e-6, bandwidth: 5e9 };
        let points: Vec<(f64, f64)> = (10..27)
            .map(|k| f64::from(1u32 << k))
            .map(|s| (s, line.message_seconds(s)))
            .collect();
        let found = fit(&points).unwrap();
        assert!(
            (found.latency / line.latency - 1.0).abs() < 1e-9
                && (found.bandwidth / line.bandwidth - 1.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!((found.knee() - 1e5).abs() < 1.0);
        // Small times count as much as large ones: 5% more everywhere is 5% more in both.
        let more: Vec<(f64, f64)> = points.iter().map(|&(s, t)| (s, 1.05 * t)).collect();
        assert!((fit(&more).unwrap().latency / line.latency - 1.05).abs() < 1e-9);
    }

    #[test]
    fn no_line_where_there_is_none() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[(1.0, 1.0)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (2.0, 1.0)]), None);
        assert_eq!(fit(&[(1.0, 0.0), (2.0, f64::NAN), (3.0, 1.0)]), None);
    }
}
