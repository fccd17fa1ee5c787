//! Predicted times: how long a collective takes on a network that is not here, and what it costs a
//! training step.

use super::benchmark::{Point, Timing};
use super::call::Way;
use kit::machine;
use kit::show::{Screen, bar, bytes_decimal, percent, significant, table, thousands};
use shardlab::comm::algorithms::Collective;
use shardlab::comm::{Link, Result};
use shardlab::plan::{Family, ModelShape, Network, simulate};
use std::thread;

const F32: usize = size_of::<f32>();

/// Ranks whose messages take longer to play through than threads to start.
const MANY: usize = 64;

/// Predicts all algorithms of `collective` on `ranks` ranks, at each of `sizes` bytes of the whole
/// array.
pub fn predict(
    collective: Collective,
    ranks: usize,
    sizes: &[usize],
    network: &Network,
) -> Result<Vec<Timing>> {
    let point = |way: Way, bytes: usize| -> Result<Option<Point>> {
        let array = way.array(ranks, bytes / F32);
        let task = way.task(ranks, array, F32)?;
        Ok(task.map(|task| Point {
            bytes: (array * F32) as f64,
            seconds: simulate(&task, F32, network),
        }))
    };
    let timing = |way: Way| -> Result<Timing> {
        let points = sizes.iter().filter_map(|&bytes| point(way, bytes).transpose());
        Ok(Timing { way, ranks, points: points.collect::<Result<_>>()? })
    };
    if ranks < MANY {
        return Way::algorithms(collective).map(timing).collect();
    }
    // The largest networks take a second.
    thread::scope(|scope| {
        let timing = &timing;
        let ways: Vec<_> = Way::algorithms(collective)
            .map(|way| scope.spawn(move || timing(way)))
            .collect();
        ways.into_iter()
            .map(|way| way.join().expect("a prediction does not panic"))
            .collect()
    })
}

/// The network in words, and the time of a message of S bytes.
pub fn in_words(screen: &Screen, network: &Network) -> String {
    let time = |link: Link| {
        format!("{} + S / {}/s", screen.seconds(link.latency), bytes_decimal(link.bandwidth))
    };
    let within = time(network.within);
    let between = time(network.between);
    let message = if within == between {
        within
    } else {
        format!("{within} on a node, {between} between nodes")
    };
    format!(
        "{}; per message {}",
        network.about,
        message.replace(' ', "\u{a0}").replace("node,\u{a0}", "node, ")
    )
}

/// Measured times as multiples of the simulator's, on ranks that all have `link`, in ascending
/// order.
///
/// Times below 5 ms are left out: in them, this machine's own delays count for more than the
/// link's. The transport's own collectives are left out, too: they have no rounds to simulate.
pub fn beside(timings: &[Timing], link: Link) -> Result<Vec<f64>> {
    const SHORT: f64 = 5e-3;
    let network = Network::uniform(link);
    let mut ratios = Vec::new();
    for timing in timings {
        for point in &timing.points {
            let Some(task) = timing.way.task(timing.ranks, point.bytes as usize / F32, F32)? else {
                continue;
            };
            let predicted = simulate(&task, F32, &network);
            if predicted >= SHORT {
                ratios.push(point.seconds / predicted);
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios)
}

/// The ratios of [`beside`] in words; or, where `ranks` threads take turns on `cores`, why a
/// comparison says nothing. It is no check: how long sums take, and how soon a rank wakes up,
/// depends on this machine.
pub fn compared(ratios: &[f64], ranks: usize, cores: usize) -> String {
    if let Some(turns) = machine::turns(ranks, cores) {
        return format!("not compared here: {turns}");
    }
    let (Some(least), Some(most), Some(median)) =
        (ratios.first(), ratios.last(), ratios.get(ratios.len() / 2))
    else {
        return "not compared here: no predicted time reaches 5 ms".to_owned();
    };
    format!(
        "measured times are {least:.2} to {most:.2} times the simulator's, median {median:.2}; the rest is this \
         machine's own time, for sums and for waking up ranks"
    )
}

/// The source's job: this GPT with gradients in f32, and a step of 0.283 s on the 4 GPUs of a
/// Polaris node (its log of 2024-07-17), taken as computing alone. The log says
/// `num_params=85003776`, which leaves out the position table. The position table has gradients,
/// too, so ranks average 85,790,208 numbers.
const JOB: ModelShape = ModelShape {
    vocabulary: 65,
    block: 1024,
    layers: 12,
    heads: 12,
    embd: 768,
    family: Family::Gpt,
    experts: None,
};
const STEP_SECONDS: f64 = 0.283;
const STEP_RANKS: usize = 4;

/// The job's step on a number of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Scaled {
    pub ranks: usize,
    /// Seconds of its all-reduce.
    pub communicating: f64,
    /// Seconds that a rank computes under weak and under strong scaling.
    pub computing: [f64; 2],
    /// Samples per second, compared with the fewest ranks, under weak and under strong scaling.
    pub speed_up: [f64; 2],
}

/// The job's step on 4 to 65,536 ranks, under weak and under strong scaling.
pub fn scaled(network: &Network) -> Result<Vec<Scaled>> {
    let bytes = F32 * JOB.parameters() as usize;
    let mut all = Vec::new();
    let mut first = None;
    for ranks in std::iter::successors(Some(STEP_RANKS), |&n| Some(4 * n))
        .take_while(|&n| n <= network.most_ranks)
    {
        let seconds = predict(Collective::AllReduce, ranks, &[bytes], network)?;
        let seconds = seconds.iter().flat_map(|timing| &timing.points).map(|point| point.seconds);
        let communicating = seconds.fold(f64::INFINITY, f64::min);
        let times = ranks as f64 / STEP_RANKS as f64;
        let computing = [STEP_SECONDS, STEP_SECONDS / times];
        let [weak, strong] = computing.map(|computing| computing + communicating);
        let one = *first.get_or_insert(weak);
        all.push(Scaled {
            ranks,
            communicating,
            computing,
            speed_up: [times * one / weak, one / strong],
        });
    }
    Ok(all)
}

/// The same as a table: one row per number of ranks.
pub fn scaling(screen: &Screen, network: &Network) -> Result<String> {
    let gradients = JOB.parameters();
    let bytes = F32 * gradients as usize;
    let mut rows = Vec::new();
    for scaled in scaled(network)? {
        let speed_up = |times: f64| {
            if times < 99.95 {
                format!("{times:.1}")
            } else {
                significant(times, times.log10() as usize + 1)
            }
        };
        let share = |computing: f64| computing / (computing + scaled.communicating);
        let [weak, strong] = scaled.computing.map(share);
        rows.push(vec![
            thousands(scaled.ranks as u64),
            screen.seconds(scaled.communicating),
            speed_up(scaled.speed_up[0]),
            percent(weak),
            speed_up(scaled.speed_up[1]),
            percent(strong),
            bar(screen, strong, 12),
        ]);
    }
    let job = thousands(gradients);
    let step = screen.seconds(STEP_SECONDS);
    let words = format!(
        "The job has {job} gradients ({}). On {STEP_RANKS} ranks, a step computes for {step}. Weak scaling: each rank keeps \
         its batch, and the global batch grows. Strong scaling: ranks divide one global batch. Computing stops during the \
         all-reduce. Speed-up: samples per second, compared with {STEP_RANKS} ranks.",
        bytes_decimal(bytes as f64),
    );
    let all = bar(screen, 1.0, 1);
    let none = bar(screen, 0.0, 1);
    let last = format!("strong:\n{all} computing\n{none} all-reduce");
    let header = [
        "ranks",
        "all-reduce",
        "weak:\nspeed-up",
        "weak:\ncomputing",
        "strong:\nspeed-up",
        "strong:\ncomputing",
        &last,
    ];
    Ok(format!("{}\n\n{}", screen.wrap(&words, 2), table(screen, &header, &rows)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::comm::algorithms::Algorithm;

    #[test]
    fn predictions_are_the_formula_s_on_equal_links() {
        let network = Network::named("ethernet").expect("a preset");
        let timings = predict(Collective::AllReduce, 1024, &[1 << 10, 1 << 20], &network).unwrap();
        let seconds = |name: &str| {
            let timing = timings.iter().find(|timing| timing.way.name() == name).unwrap();
            [0, 1].map(|i| (1e6 * timing.points[i].seconds).round())
        };
        // 10 rounds of 24 µs and S/b, against 20 rounds and 2·1023/1024 S/b in all; S/b is 0.8 and
        // 839 µs.
        assert_eq!(seconds("recursive-doubling"), [248.0, 8629.0]);
        assert_eq!(seconds("rabenseifner"), [482.0, 2156.0]);
    }

    #[test]
    fn a_slow_machine_is_told_and_is_no_error() {
        assert_eq!(compared(&[1.0, 1.3], 4, 2), "not compared here: 4 ranks take turns on 2 cores");
        assert!(compared(&[], 2, 2).starts_with("not compared here: "));
        assert!(
            compared(&[0.5, 1.0, 40.0], 2, 2).starts_with("measured times are 0.50 to 40.00 times")
        );
    }

    #[test]
    fn measured_times_are_divided_by_the_link_s() {
        let link = Link { latency: 0.01, bandwidth: 1e6 };
        let timing = |algorithm, points: &[(f64, f64)]| Timing {
            way: Way { collective: Collective::AllReduce, algorithm },
            ranks: 2,
            points: points.iter().map(|&(bytes, seconds)| Point { bytes, seconds }).collect(),
        };
        // On two ranks, doubling is one message: 10 ms and a millisecond for every 1,000 bytes.
        let doubling =
            timing(Some(Algorithm::RecursiveDoubling), &[(1000.0, 0.022), (10_000.0, 0.02)]);
        // Naive is two: there and back.
        let naive = timing(Some(Algorithm::Naive), &[(1000.0, 0.066)]);
        let ratios = beside(&[doubling, naive, timing(None, &[(1000.0, 1.0)])], link).unwrap();
        assert_eq!(ratios.len(), 3);
        assert!(
            ratios.iter().zip([1.0, 2.0, 3.0]).all(|(is, ratio)| (is - ratio).abs() < 1e-9),
            "{ratios:?}"
        );
    }
}
