//! How long a collective would take on a network that is not here, which algorithm wins where, and why.

use super::benchmark::Timing;
use super::call::Way;
use crate::comm::algorithms::{Algorithm, Collective};
use crate::comm::{Link, Result};
use crate::plan::{GptShape, Network, simulate};
use crate::show::{Plot, Screen, Series, bar, bytes_binary, bytes_decimal, percent, seconds, table, thousands};
use crate::train::Checks;
use std::thread;

/// One algorithm's predicted times.
pub struct Prediction {
    pub way: Way,
    pub points: Vec<Predicted>,
}

#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// Bytes of the whole array.
    pub bytes: f64,
    pub seconds: f64,
    /// Seconds that would remain with infinite bandwidth.
    pub latency: f64,
}

/// Predicts all algorithms of `collective` on `ranks` ranks at each of `sizes` bytes of the whole array.
pub fn predict(collective: Collective, ranks: usize, sizes: &[usize], network: &Network) -> Result<Vec<Prediction>> {
    const F32: usize = size_of::<f32>();
    let predicted = |way: Way| -> Result<Prediction> {
        let mut points: Vec<Predicted> = Vec::new();
        for bytes in sizes {
            let array = way.array(ranks, bytes / F32);
            let Some(task) = way.task(ranks, array, F32)? else { continue };
            // Elements without bytes cost only latency. Only a chain's steps depend on how many elements there are.
            let known = points.first().filter(|_| task.algorithm != Algorithm::Chain).map(|first| first.latency);
            let latency = known.unwrap_or_else(|| simulate(&task, 0, network));
            points.push(Predicted { bytes: (array * F32) as f64, seconds: simulate(&task, F32, network), latency });
        }
        Ok(Prediction { way, points })
    };
    // They know nothing of each other, and the largest takes a while.
    thread::scope(|scope| {
        let ways: Vec<_> = Way::algorithms(collective)
            .map(|way| {
                scope.spawn({
                    let predicted = &predicted;
                    move || predicted(way)
                })
            })
            .collect();
        ways.into_iter().map(|way| way.join().expect("a prediction does not panic")).collect()
    })
}

/// Sizes in a row at which one algorithm is the fastest.
pub struct Reign {
    pub way: Way,
    /// Numbers of the first and the last of these sizes.
    pub first: usize,
    pub last: usize,
}

/// Finds the fastest algorithm of each range of sizes.
pub fn reigns(predictions: &[Prediction]) -> Vec<Reign> {
    let mut reigns: Vec<Reign> = Vec::new();
    for i in 0..predictions.first().map_or(0, |prediction| prediction.points.len()) {
        let Some(best) = fastest(predictions, i, None) else { break };
        match reigns.last_mut().filter(|reign| reign.way == best.way) {
            Some(reign) => reign.last = i,
            None => reigns.push(Reign { way: best.way, first: i, last: i }),
        }
    }
    reigns
}

/// The fastest at size number `i`, apart from `but`.
fn fastest(predictions: &[Prediction], i: usize, but: Option<Way>) -> Option<&Prediction> {
    let others = predictions.iter().filter(|prediction| Some(prediction.way) != but);
    others.min_by(|a, b| a.points[i].seconds.total_cmp(&b.points[i].seconds))
}

/// The plot, and who wins where and why.
pub fn show(screen: &Screen, ranks: usize, predictions: &[Prediction]) -> String {
    let Some(first) = predictions.first() else { return String::new() };
    let series = predictions.iter().map(|prediction| {
        Series::line(prediction.way.name(), prediction.points.iter().map(|point| (point.bytes, point.seconds)))
    });
    let title = format!("{} on {} ranks", first.way.collective.name(), thousands(ranks as u64));
    let plot = Plot::new(&title, "bytes").log_x().log_y().labels(bytes_binary, seconds).height(12);
    let plot = series.fold(plot, Plot::series).render(screen);
    let rows: Vec<Vec<String>> = reigns(predictions).iter().map(|reign| why(screen, predictions, reign)).collect();
    format!("{plot}\n\n{}", table(screen, &["fastest", "from", "to", "because"], &rows))
}

/// A reign in words: against the rival that is the next best where it ends, or where it began.
fn why(screen: &Screen, predictions: &[Prediction], reign: &Reign) -> Vec<String> {
    let points = |way: Way| predictions.iter().find(|prediction| prediction.way == way).map(|found| &found.points);
    let (Some(mine), end) = (points(reign.way), reign.last) else { return Vec::new() };
    let at = if end + 1 == mine.len() { reign.first } else { end };
    let because = fastest(predictions, at, Some(reign.way)).map_or(String::new(), |rival| {
        let (mine, its, name) = (mine[at], rival.points[at], rival.way.name());
        let (moves, its_moves) = (mine.seconds - mine.latency, its.seconds - its.latency);
        let size = bytes_binary(mine.bytes);
        // It saves more by waiting for fewer steps, or by moving fewer bytes.
        if its.latency - mine.latency > its_moves - moves {
            let (waits, its_waits) = (screen.seconds(mine.latency), screen.seconds(its.latency));
            format!("its steps' latency is {waits}, {name}'s {its_waits}")
        } else {
            let (moves, its_moves) = (screen.seconds(moves), screen.seconds(its_moves));
            format!("it moves {size} in {moves}, {name} in {its_moves}")
        }
    });
    let bytes = |i: usize| bytes_binary(mine[i].bytes);
    vec![reign.way.name().to_owned(), bytes(reign.first), bytes(end), because]
}

/// Measured times by those that the simulator gives for ranks that all have `link`, in ascending order.
///
/// Left out are times below 5 ms, which are the machine's more than the link's.
pub fn beside(timings: &[Timing], link: Link) -> Result<Vec<f64>> {
    let network = Network::uniform(link);
    let mut ratios = Vec::new();
    for timing in timings {
        for point in &timing.points {
            let array = point.bytes as usize / size_of::<f32>();
            // The transport's own collectives have no steps to be followed.
            let Some(task) = timing.way.task(timing.ranks, array, size_of::<f32>())? else { continue };
            let predicted = simulate(&task, size_of::<f32>(), &network);
            if predicted >= SHORT {
                ratios.push(point.seconds / predicted);
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios)
}

/// Checks the ratios that [`beside`] returns; nothing is checked if there are none.
///
/// A link is never faster than it says, on any machine. How much slower its times are is shown and not checked: adding up
/// numbers and waiting for a core take this machine's own time.
pub fn check(screen: &Screen, checks: &mut Checks, ratios: &[f64]) {
    let (Some(least), Some(median)) = (ratios.first(), ratios.get(ratios.len() / 2)) else { return };
    let result = format!("the least is {least:.2} of it");
    checks.hold(*least > 0.95, "no time is less than the simulator's", &result, "a link is faster than it says");
    let times = format!("{median:.2} times the simulator's, median of {}", ratios.len());
    let why = "Not checked: this machine also takes time for sums, and for waiting for a core";
    screen.say(screen.row("measured", &format!("{times}. {why}")));
}

/// Seconds below which a simulated link's times are not compared.
const SHORT: f64 = 5e-3;

/// The seed's job: this GPT with gradients in f32, and a step of 0.283 s on the 4 GPUs of a Polaris node (its log of
/// 2024-07-17), taken as computing alone. The log says `num_params=10,646,784`, which leaves out the position table; that has
/// gradients too, and so 10,745,088 numbers are averaged.
const SEED: GptShape = GptShape { vocabulary: 65, block: 256, layers: 6, heads: 6, embd: 384 };
const STEP_SECONDS: f64 = 0.283;
const STEP_RANKS: f64 = 4.0;

/// Computation against communication as ranks grow: one line for each number of ranks.
pub fn in_sync(screen: &Screen, network: &Network) -> Result<String> {
    let gradients = SEED.parameters();
    let bytes = size_of::<f32>() * gradients as usize;
    let ranks = std::iter::successors(Some(network.ranks_per_node.max(4)), |&n| Some(4 * n));
    let mut rows = Vec::new();
    for n in ranks.take_while(|&n| n <= network.most_ranks) {
        let predictions = predict(Collective::AllReduce, n, &[bytes], network)?;
        let Some(best) = fastest(&predictions, 0, None) else { continue };
        let communicating = best.points[0].seconds;
        let (same, divided) = (STEP_SECONDS, STEP_SECONDS * STEP_RANKS / n as f64);
        let share = |computing: f64| percent(communicating / (computing + communicating));
        let picture = bar(screen, divided / (divided + communicating), 18);
        let (n, time) = (thousands(n as u64), screen.seconds(communicating));
        rows.push(vec![n, time, best.way.name().to_owned(), share(same), share(divided), picture]);
    }
    let job = format!(
        "A job as in the seed's log: {} gradients, which are {}, and, on 4 ranks, {} of computing a step. As ranks grow, each \
         keeps its batch, or one batch is divided among them. The share of a step in which all wait for the all-reduce:",
        thousands(gradients),
        bytes_decimal(bytes as f64),
        screen.seconds(STEP_SECONDS),
    );
    let legend =
        if screen.ascii { "# computing | - the rest: waiting" } else { "█ computing · ░ the rest: waiting" };
    let header = ["ranks", "all-reduce", "by", "a batch\na rank", "one\nbatch", "one batch, divided"];
    Ok(format!("{}\n\n{}\n  {legend}", screen.wrap(&job, 2), table(screen, &header, &rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reigns_follow_the_sizes_and_say_why() {
        let network = Network::named("ethernet").expect("a preset");
        let sizes = [1 << 10, 1 << 14, 1 << 20, 1 << 26];
        let predictions = predict(Collective::AllReduce, 1024, &sizes, &network).unwrap();
        let reigns = reigns(&predictions);
        let name = |reign: &Reign| (reign.way.name(), reign.first, reign.last);
        assert_eq!(reigns.iter().map(name).collect::<Vec<_>>(), [("recursive-doubling", 0, 1), ("rabenseifner", 2, 3)]);
        let why = |i: usize| why(&Screen::plain(), &predictions, &reigns[i]).pop().unwrap();
        // 10 steps of 24 µs against 20, and 2·1023/1024 MiB at 1.25 GB/s against 10 MiB.
        assert_eq!(why(0), "its steps' latency is 240 µs, rabenseifner's 480 µs");
        assert_eq!(why(1), "it moves 1.00 MiB in 1.68 ms, recursive-doubling in 8.39 ms");
    }

    #[test]
    fn a_slow_machine_fails_no_check_and_a_fast_link_does() {
        let failed = |ratios: &[f64]| {
            let screen = Screen::plain();
            let mut checks = Checks::new(&screen);
            check(&screen, &mut checks, ratios);
            checks.failed()
        };
        assert!(failed(&[]).is_empty() && failed(&[1.0, 2.6, 40.0]).is_empty());
        assert_eq!(failed(&[0.5, 1.0, 1.0]), ["a link is faster than it says"]);
    }

    #[test]
    fn measured_times_are_held_to_the_link() {
        let link = Link { latency: 0.01, bandwidth: 1e6 };
        let way = |algorithm| Way { collective: Collective::AllReduce, algorithm };
        let timing = |algorithm, points: &[(f64, f64)]| Timing {
            way: way(algorithm),
            ranks: 2,
            points: points.iter().map(|&(bytes, seconds)| super::super::benchmark::Point { bytes, seconds }).collect(),
        };
        // On two ranks, doubling is one message: 10 ms and a millisecond for every 1,000 bytes.
        let doubling = timing(Some(Algorithm::RecursiveDoubling), &[(1000.0, 0.022), (10_000.0, 0.02)]);
        // Naive is two: there and back.
        let naive = timing(Some(Algorithm::Naive), &[(1000.0, 0.066)]);
        let ratios = beside(&[doubling, naive, timing(None, &[(1000.0, 1.0)])], link).unwrap();
        assert_eq!(ratios.len(), 3);
        assert!(ratios.iter().zip([1.0, 2.0, 3.0]).all(|(is, ratio)| (is - ratio).abs() < 1e-9), "{ratios:?}");
    }
}
