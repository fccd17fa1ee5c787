//! The roofline: how fast a computation can be on this machine, for its FLOPs per byte.

use super::benchmark::Measured;
use super::lines::Timed;
use kit::Peaks;
use kit::show::{Plot, Screen, Series, significant};

/// A computation on the roofline.
#[derive(Clone, Debug)]
pub struct Point {
    pub name: String,
    /// FLOPs per byte.
    pub intensity: f64,
    /// FLOP/s.
    pub flops: f64,
}

impl Point {
    pub fn of(name: &str, timed: &Timed) -> Point {
        let flops = timed.flops / timed.seconds;
        Point { name: name.to_string(), intensity: timed.intensity(), flops }
    }
}

/// The computations of one rank's job, and of passes over `batches` of one token per sequence.
pub fn points(job: &Measured, batches: &Measured) -> Vec<Point> {
    let [[_, step], [prefill, decode]] = [job.runs[0], job.generation];
    let passes = batches.runs.iter().map(|[forward, _]| ("1 token per sequence", *forward));
    let all = passes.chain([("decode", decode), ("prefill", prefill), ("training", step)]);
    all.map(|(name, timed)| Point::of(name, &timed)).collect()
}

/// The roof, and each computation below it, on a screen.
pub fn roofline(screen: &Screen, peaks: &Peaks, points: &[Point]) -> String {
    roofline_plot(peaks, points).height(10).render(screen)
}

/// The roof, and each computation below it. Neighbours with the same name are one series.
pub fn roofline_plot<'a>(peaks: &Peaks, points: &'a [Point]) -> Plot<'a> {
    let all = || points.iter().map(|point| point.intensity).chain([peaks.ridge()]);
    let low = all().fold(f64::INFINITY, f64::min) / 2.0;
    let high = all().fold(0.0, f64::max) * 2.0;
    let mut roof = vec![(low, peaks.most(low) / 1e9), (peaks.ridge(), peaks.flops / 1e9)];
    roof.push((high, peaks.flops / 1e9));
    let mut plot = Plot::new("GFLOP/s", "FLOPs per byte")
        .log_x()
        .log_y()
        .labels(|x| significant(x, 2), |y| significant(y, 2))
        .series(Series::line("roof", roof));
    for same in points.chunk_by(|a, b| a.name == b.name) {
        plot = plot.series(Series::dots(
            &same[0].name,
            same.iter().map(|point| (point.intensity, point.flops / 1e9)),
        ));
    }
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_limit_below_the_ridge() {
        let peaks = Peaks { flops: 100e9, bytes: 10e9 };
        assert_eq!(peaks.ridge(), 10.0);
        assert_eq!([0.5, 10.0, 40.0].map(|intensity| peaks.most(intensity)), [5e9, 100e9, 100e9]);
        let point =
            |name: &str, intensity, flops| Point { name: name.to_string(), intensity, flops };
        let text = roofline(
            &Screen::plain(),
            &peaks,
            &[point("prefill", 40.0, 60e9), point("decode", 0.5, 2e9)],
        );
        assert!(text.contains("prefill") && text.contains("decode"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
