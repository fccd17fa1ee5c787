//! How long a collective takes here, for small and large arrays.

use super::call::Way;
use super::counts::Count;
use crate::comm::algorithms::Collective;
use crate::comm::{Comm, Reduce, Result};
use crate::error::BadInput;
use crate::launch;
use crate::plan::{AlphaBeta, algbw, busbw};
use crate::show::{Plot, Screen, Series, bytes_binary, seconds, significant, table};
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// One size of one way.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The whole array: nccl-tests' S.
    pub bytes: f64,
    /// The time of one call, on the slowest rank.
    pub seconds: f64,
}

/// One way at all sizes.
pub struct Timing {
    pub way: Way,
    pub ranks: usize,
    pub points: Vec<Point>,
}

impl Timing {
    pub fn algbw(&self, point: &Point) -> f64 {
        algbw(point.bytes, point.seconds)
    }

    pub fn busbw(&self, point: &Point) -> f64 {
        busbw(self.way.collective, self.ranks, point.bytes, point.seconds)
    }

    /// The line through its times.
    pub fn line(&self) -> Option<AlphaBeta> {
        AlphaBeta::fit(&self.points.iter().map(|point| (point.bytes, point.seconds)).collect::<Vec<_>>())
    }
}

/// 1 KiB, and `factor` times as much, and so on, up to `most` bytes.
pub fn sizes(factor: usize, most: usize) -> Vec<usize> {
    std::iter::successors(Some(1024), |&size: &usize| size.checked_mul(factor))
        .take_while(|&size| size <= most)
        .collect()
}

/// Bytes that all ranks together hold while they are timed at `most` bytes: an array that is given, one that is got, one that
/// an algorithm works in, and what is on its way.
pub fn memory(ranks: usize, most: usize) -> u64 {
    (4 * ranks as u64).saturating_mul(most as u64)
}

/// Times a way at `sizes` bytes, or a little more where parts must be equally long; the same points on all ranks.
pub fn time(comm: &Comm, way: Way, sizes: &[usize]) -> Result<Timing> {
    let points = sizes.iter().map(|&bytes| {
        let array = way.array(comm.size(), bytes / size_of::<f32>());
        Ok(Point { bytes: (array * size_of::<f32>()) as f64, seconds: time_one(comm, way, array)? })
    });
    Ok(Timing { way, ranks: comm.size(), points: points.collect::<Result<_>>()? })
}

/// Seconds that a size is given, more or less.
const BUDGET: f64 = 0.06;

/// The mean of a series of calls, on the slowest rank; of three such series the fastest, since what else runs on the machine
/// can only slow them down.
fn time_one(comm: &Comm, way: Way, array: usize) -> Result<f64> {
    let (given, got) = way.lengths(comm, array);
    let (give, mut get) = (vec![0f32; given], vec![0f32; got]);
    // If data goes only from the root or to it, a rank would begin the next call before the others have ended this one.
    let one_way =
        matches!(way.collective, Collective::Broadcast | Collective::Reduce | Collective::Scatter | Collective::Gather);
    let mut series = |calls: usize| -> Result<f64> {
        let mut seconds = 0.0;
        for call in 0..calls {
            if one_way || call == 0 {
                comm.barrier()?;
            }
            let start = Instant::now();
            way.run(comm, &give, &mut get)?;
            seconds += start.elapsed().as_secs_f64();
        }
        let mut slowest = [seconds / calls as f64];
        comm.all_reduce(&mut slowest, Reduce::Max)?;
        Ok(slowest[0])
    };
    let first = series(1)?;
    let calls = ((BUDGET / 3.0 / first) as usize).clamp(1, 1000);
    // A size that takes long is not disturbed as easily, and the first call has warmed everything up.
    let count = if first > BUDGET { 1 } else { 3 };
    (0..count).try_fold(f64::INFINITY, |fastest, _| Ok(fastest.min(series(calls)?)))
}

/// Times against sizes, both in equal factors.
pub fn plot(screen: &Screen, title: &str, timings: &[Timing]) -> String {
    let series = timings
        .iter()
        .map(|timing| Series::line(timing.way.name(), timing.points.iter().map(|point| (point.bytes, point.seconds))));
    let plot = Plot::new(title, "bytes").log_x().log_y().labels(bytes_binary, seconds).height(12);
    series.fold(plot, Plot::series).render(screen)
}

/// A line a way: the fit, and the largest size in nccl-tests' terms.
pub fn fits(screen: &Screen, timings: &[Timing]) -> String {
    let row = |timing: &Timing| {
        let mut row = vec![timing.way.name().to_owned()];
        row.extend(match timing.line() {
            Some(line) => [screen.seconds(line.alpha), gigabytes(line.beta), bytes_binary(line.knee())],
            None => ["no line", "", ""].map(String::from),
        });
        if let Some(last) = timing.points.last() {
            row.extend([screen.seconds(last.seconds), gigabytes(timing.algbw(last)), gigabytes(timing.busbw(last))]);
        }
        row
    };
    let rows: Vec<Vec<String>> = timings.iter().map(row).collect();
    let most = timings.iter().flat_map(|timing| timing.points.last()).map(|point| point.bytes).fold(0.0, f64::max);
    let most = bytes_binary(most);
    let table = table(screen, &["t = a + S/b", "a", "b, GB/s", "knee", &most, "algbw", "busbw"], &rows);
    let words = "a: seconds before the first byte. Knee: a x b bytes, where waiting and moving take the same. algbw: S/t in \
                 GB/s. busbw: what each link must carry at least, as nccl-tests define it; compare it with the hardware.";
    format!("{table}\n{}", screen.wrap(words, 2))
}

fn gigabytes(bytes_a_second: f64) -> String {
    significant(bytes_a_second / 1e9, 3)
}

/// All times, or with `busbw` all bus bandwidths: a line a size, a column a way.
pub fn sizes_table(screen: &Screen, timings: &[Timing], busbw: bool) -> String {
    let names: Vec<String> =
        timings.iter().map(|timing| timing.way.name().replace('-', "-\n").replace(' ', "\n")).collect();
    let header: Vec<&str> =
        [if busbw { "busbw\nGB/s" } else { "time" }].into_iter().chain(names.iter().map(String::as_str)).collect();
    let sizes = timings.first().map_or(&[][..], |timing| &timing.points);
    let cell = |timing: &Timing, i: usize| {
        let point = &timing.points[i];
        if busbw { gigabytes(timing.busbw(point)) } else { screen.seconds(point.seconds) }
    };
    let row = |(i, size): (usize, &Point)| -> Vec<String> {
        [bytes_binary(size.bytes)].into_iter().chain(timings.iter().map(|timing| cell(timing, i))).collect()
    };
    table(screen, &header, &sizes.iter().enumerate().map(row).collect::<Vec<_>>())
}

/// Names the fastest algorithm, size by size. A new one takes over only if it is a tenth faster: less is noise.
pub fn fastest(timings: &[Timing]) -> String {
    let mut reigns: Vec<(&Timing, f64)> = Vec::new();
    for i in 0..timings.first().map_or(0, |timing| timing.points.len()) {
        let Some(best) = timings.iter().min_by(|a, b| a.points[i].seconds.total_cmp(&b.points[i].seconds)) else {
            break;
        };
        if reigns.last().is_none_or(|(last, _)| best.points[i].seconds < 0.9 * last.points[i].seconds) {
            reigns.push((best, best.points[i].bytes));
        }
    }
    let words = reigns.iter().enumerate().map(|(i, (timing, bytes))| match i {
        0 => timing.way.name().to_owned(),
        _ => format!("from {} on {}", bytes_binary(*bytes), timing.way.name()),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// An error if nothing will be timed, or what is cannot be written to `path`.
pub fn ensure_writable(path: &Path, times: bool) -> std::result::Result<(), BadInput> {
    if !times {
        let help = "give --bench too, and 2 ranks or more; or leave --json out";
        return Err(BadInput::new("--json has nothing to write: nothing is timed", help));
    }
    let open = || File::options().create(true).append(true).open(path);
    if launch::is_first_process() {
        let help = "give --json a file that can be written";
        open().map_err(|error| BadInput::new(format!("{}: {error}", path.display()), help))?;
    }
    Ok(())
}

/// Everything as JSON: times and bandwidths of each way, its line, and what it sent where that was counted.
pub fn json(timings: &[Timing], counts: &[Count]) -> serde_json::Value {
    let way = |timing: &Timing| {
        let point = |point: &Point| {
            serde_json::json!({
                "bytes": point.bytes, "seconds": point.seconds,
                "algbw": timing.algbw(point), "busbw": timing.busbw(point),
            })
        };
        let line = timing.line();
        let count = counts.iter().find(|count| count.way == timing.way);
        serde_json::json!({
            "collective": timing.way.collective.name(),
            "algorithm": timing.way.name(),
            "points": timing.points.iter().map(point).collect::<Vec<_>>(),
            "alpha_seconds": line.map(|line| line.alpha),
            "beta_bytes_per_second": line.map(|line| line.beta),
            "knee_bytes": line.map(|line| line.knee()),
            "steps": count.map(|count| count.most[0]),
            "messages": count.map(|count| count.most[1]),
        })
    };
    serde_json::json!({
        "ranks": timings.first().map(|timing| timing.ranks),
        "transport": if launch::is_mpi() { "mpi" } else { "threads" },
        "ways": timings.iter().map(way).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::algorithms::Algorithm;

    fn timing(algorithm: Algorithm, seconds: [f64; 3]) -> Timing {
        let way = Way { collective: Collective::AllReduce, algorithm: Some(algorithm) };
        let points = [1024.0, 2048.0, 4096.0].into_iter().zip(seconds);
        Timing { way, ranks: 4, points: points.map(|(bytes, seconds)| Point { bytes, seconds }).collect() }
    }

    #[test]
    fn a_winner_must_win_by_more_than_noise() {
        let naive = timing(Algorithm::Naive, [1.0, 2.0, 4.0]);
        assert_eq!(fastest(&[]), "");
        assert_eq!(fastest(&[timing(Algorithm::Ring, [2.0, 1.9, 3.7]), naive]), "naive");
        let naive = timing(Algorithm::Naive, [1.0, 2.0, 4.0]);
        assert_eq!(fastest(&[naive, timing(Algorithm::Ring, [2.0, 1.9, 3.0])]), "naive, from 4.00 KiB on ring");
    }

    #[test]
    fn sizes_grow_by_a_factor() {
        assert_eq!(sizes(4, 70_000), [1024, 4096, 16_384, 65_536]);
        assert_eq!(sizes(16, 1000), [0; 0]);
    }
}
