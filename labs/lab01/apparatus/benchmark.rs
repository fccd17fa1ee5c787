//! Times of a collective's algorithms, for small and large arrays: measured here, or predicted, as
//! tables, curves and JSON.

use super::bandwidth::{algbw, busbw, fit};
use super::call::Way;
use super::counts::Count;
use kit::output;
use kit::show::{Plot, Screen, Series, bytes_binary, seconds, significant, table};
use shardlab::comm::algorithms::{Algorithm, Collective};
use shardlab::comm::{Comm, Link, Reduce, Result};
use shardlab::error::BadInput;
use shardlab::launch;
use std::path::Path;
use std::time::Instant;

/// One time of one way.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The whole array: nccl-tests' S.
    pub bytes: f64,
    /// The duration of one call, on the slowest rank.
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

    /// The line through the times.
    pub fn line(&self) -> Option<Link> {
        fit(&self.points.iter().map(|point| (point.bytes, point.seconds)).collect::<Vec<_>>())
    }
}

/// 1 KiB, and `factor` times as much, and so on, up to `most` bytes.
pub fn sizes(factor: usize, most: usize) -> Vec<usize> {
    std::iter::successors(Some(1024), |&size: &usize| size.checked_mul(factor))
        .take_while(|&size| size <= most)
        .collect()
}

/// Bytes that all ranks together hold while an array of `most` bytes is timed. A rank has four
/// arrays: its input, its result, the one that the algorithm works in, and messages in flight.
pub fn memory(ranks: usize, most: usize) -> u64 {
    (4 * ranks as u64).saturating_mul(most as u64)
}

/// Times a way at `sizes` bytes, or a little more where parts must be equally long. All ranks
/// return the same points.
pub fn time(comm: &Comm, way: Way, sizes: &[usize]) -> Result<Timing> {
    let points = sizes.iter().map(|&bytes| {
        let array = way.array(comm.size(), bytes / size_of::<f32>());
        Ok(Point {
            bytes: (array * size_of::<f32>()) as f64,
            seconds: time_one(comm, way, array)?,
        })
    });
    Ok(Timing {
        way,
        ranks: comm.size(),
        points: points.collect::<Result<_>>()?,
    })
}

/// Seconds for one size, more or less.
const BUDGET: f64 = 0.06;

/// The mean of a series of calls, on the slowest rank. It returns the fastest of three series:
/// other programs on this machine can only slow a series down.
fn time_one(comm: &Comm, way: Way, array: usize) -> Result<f64> {
    let (given, got) = way.lengths(comm, array);
    let give = vec![0f32; given];
    let mut get = vec![0f32; got];
    // If data flows only from the root or to it, a rank could begin the next call before the others
    // have ended this one.
    let one_way = matches!(
        way.collective,
        Collective::Broadcast | Collective::Reduce | Collective::Scatter | Collective::Gather
    );
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
        comm.reduced(seconds / calls as f64, Reduce::Max)
    };
    let first = series(1)?;
    let calls = ((BUDGET / 3.0 / first) as usize).clamp(1, 1000);
    // Long calls are disturbed less, and the first call has warmed up memory and threads.
    let count = if first > BUDGET { 1 } else { 3 };
    (0..count).try_fold(f64::INFINITY, |fastest, _| Ok(fastest.min(series(calls)?)))
}

/// Times against sizes, on logarithmic axes.
pub fn plot<'a>(title: &'a str, timings: &'a [Timing]) -> Plot<'a> {
    let series = timings.iter().map(|timing| {
        Series::line(
            timing.way.name(),
            timing.points.iter().map(|point| (point.bytes, point.seconds)),
        )
        .looking(timing.way.look())
    });
    let plot = Plot::new(title, "bytes")
        .log_x()
        .log_y()
        .labels(bytes_binary, seconds)
        .height(12);
    series.fold(plot, Plot::series)
}

/// The line t = a + S/b of each way, and its largest size in nccl-tests' terms.
pub fn fits(screen: &Screen, timings: &[Timing]) -> String {
    let row = |timing: &Timing| {
        let mut row = vec![timing.way.name().to_owned()];
        row.extend(match timing.line() {
            Some(line) => [
                screen.seconds(line.latency),
                gigabytes(line.bandwidth),
                bytes_binary(line.knee()),
            ],
            None => ["no line", "", ""].map(String::from),
        });
        if let Some(last) = timing.points.last() {
            row.extend([
                screen.seconds(last.seconds),
                gigabytes(timing.algbw(last)),
                gigabytes(timing.busbw(last)),
            ]);
        }
        row
    };
    let most = timings
        .iter()
        .flat_map(|timing| timing.points.last())
        .map(|point| point.bytes)
        .fold(0.0, f64::max);
    let most = bytes_binary(most);
    let table = table(
        screen,
        &["t = a + S/b", "a", "b, GB/s", "knee", &most, "algbw", "busbw"],
        timings.iter().map(row),
    );
    let words = "a: latency, the seconds before the first byte. b: bandwidth. Knee: a x b bytes take as long as the latency. \
                 algbw: S/t in GB/s. busbw: the least that each link carried, as nccl-tests define it. Compare busbw with \
                 the hardware.";
    format!("{table}\n{}", screen.wrap(words, 2))
}

fn gigabytes(bytes_a_second: f64) -> String {
    significant(bytes_a_second / 1e9, 3)
}

/// All times, one row per size, and the fastest algorithms.
pub fn sizes_table(screen: &Screen, timings: &[Timing]) -> String {
    let names = timings
        .iter()
        .map(|timing| timing.way.name().replace('-', "-\n").replace(' ', "\n"));
    let mut header = vec!["array".to_owned()];
    header.extend(names.chain(["fastest,\nwithin 10%".to_owned()]));
    let row = |(i, size): (usize, &Point)| {
        let times = timings.iter().map(|timing| screen.seconds(timing.points[i].seconds));
        let mut row = vec![bytes_binary(size.bytes)];
        row.extend(times.chain([fastest(timings, i)]));
        row
    };
    let sizes = timings.first().map_or(&[][..], |timing| &timing.points);
    table(screen, &header, sizes.iter().enumerate().map(row))
}

/// The algorithms that are the fastest at size number `i`, the best first. Differences of up to a
/// tenth are noise.
fn fastest(timings: &[Timing], i: usize) -> String {
    let seconds = |timing: &&Timing| timing.points[i].seconds;
    let mut best: Vec<&Timing> =
        timings.iter().filter(|timing| timing.way.algorithm.is_some()).collect();
    best.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    let least = best.first().map_or(0.0, seconds);
    best.retain(|timing| seconds(timing) <= 1.1 * least);
    best.iter().map(|timing| timing.way.name()).collect::<Vec<_>>().join(", ")
}

/// A remark on algorithms in which the root talks to every other rank, where they were measured on
/// more than two ranks.
pub fn overlapping(timings: &[Timing]) -> Option<String> {
    let at_root = |way: &Way| matches!(way.algorithm, Some(Algorithm::Naive | Algorithm::Flat));
    let timing = timings.iter().find(|timing| timing.ranks > 2 && at_root(&timing.way))?;
    let name = timing.way.name();
    Some(format!(
        "Rounds are not latencies: in {name}, rank 0's messages overlap here, and few bytes can be quick. A network card \
         that handles one message at a time makes every round wait, as --simulate assumes."
    ))
}

/// An error if there will be no times, or if they cannot be written to `path`.
pub fn ensure_writable(path: &Path, times: bool) -> std::result::Result<(), BadInput> {
    if !times {
        let help = "add --bench and 2 ranks or more, or --simulate N; or leave --json out";
        return Err(BadInput::new(
            "--json has nothing to write: nothing is timed or predicted",
            help,
        ));
    }
    if launch::is_first_process() {
        output::ensure_writable("json", path)?;
    }
    Ok(())
}

/// All times as JSON, with the bandwidths and the line of each way, and with what it sent where
/// that was counted. `network` says where the times come from.
pub fn json(timings: &[Timing], counts: &[Count], network: &str) -> serde_json::Value {
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
            "alpha_seconds": line.map(|line| line.latency),
            "beta_bytes_per_second": line.map(|line| line.bandwidth),
            "knee_bytes": line.map(|line| line.knee()),
            "rounds": count.map(|count| count.most[0]),
            "messages": count.map(|count| count.most[1]),
        })
    };
    serde_json::json!({
        "ranks": timings.first().map(|timing| timing.ranks),
        "network": network,
        "ways": timings.iter().map(way).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::comm::algorithms::Algorithm;

    fn timing(algorithm: Algorithm, seconds: [f64; 3]) -> Timing {
        let way = Way {
            collective: Collective::AllReduce,
            algorithm: Some(algorithm),
        };
        let points = [1024.0, 2048.0, 4096.0].into_iter().zip(seconds);
        Timing {
            way,
            ranks: 4,
            points: points.map(|(bytes, seconds)| Point { bytes, seconds }).collect(),
        }
    }

    #[test]
    fn a_winner_must_win_by_more_than_noise() {
        let timings = [
            timing(Algorithm::Naive, [1.0, 2.0, 4.0]),
            timing(Algorithm::Ring, [2.0, 1.9, 3.0]),
        ];
        assert_eq!([0, 1, 2].map(|i| fastest(&timings, i)), ["naive", "ring, naive", "ring"]);
        assert_eq!(fastest(&[], 0), "");
        let table = sizes_table(&Screen::plain(), &timings);
        assert!(table.contains("\n  2.00 KiB  2.00 s  1.90 s  ring, naive\n"), "{table}");
    }

    #[test]
    fn an_algorithm_has_one_look_and_no_two_of_a_collective_have_the_same() {
        for collective in [
            Collective::AllReduce,
            Collective::Broadcast,
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Scatter,
            Collective::AllToAll,
        ] {
            let own = Way { collective, algorithm: None };
            let ways = Way::algorithms(collective).chain([own]);
            let mut looks: Vec<usize> = ways.map(|way| way.look()).collect();
            let all = looks.len();
            looks.sort_unstable();
            looks.dedup();
            assert_eq!(looks.len(), all, "{}", collective.name());
            assert!(looks.iter().all(|&look| look < 6));
        }
        // The explorer of costs draws its curves in this order.
        let looks = Way::algorithms(Collective::AllReduce).map(|way| way.look());
        assert_eq!(looks.collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_root_whose_messages_overlap_is_explained() {
        let ranks = |ranks| Timing { ranks, ..timing(Algorithm::Naive, [1.0; 3]) };
        assert!(
            overlapping(&[timing(Algorithm::Ring, [1.0; 3]), ranks(3)])
                .is_some_and(|words| words.contains("naive"))
        );
        assert!(overlapping(&[timing(Algorithm::Ring, [1.0; 3]), ranks(2)]).is_none());
    }

    #[test]
    fn sizes_grow_by_a_factor() {
        assert_eq!(sizes(4, 70_000), [1024, 4096, 16_384, 65_536]);
        assert_eq!(sizes(16, 1000), [0; 0]);
    }
}
