//! The strategies side by side, as measured.

use super::benchmark::Measured;
use super::config::{DsConfig, PipelineConfig};
use kit::show::{
    Plot, Screen, Series, bar, bar_to_scale, bytes_decimal, significant, table, thousands,
};
use kit::{Checks, machine, parity};
use shardlab::difference::largest_relative_difference;
use shardlab::launch;
use shardlab::mesh::Coordinates;
use shardlab::parallel::strategy::ensure_tensor_llama;
use shardlab::parallel::zero::Stage;
use shardlab::plan::ModelShape;
use shardlab::tensor::Precision;

/// A way to divide one job among ranks.
#[derive(Clone)]
pub struct Candidate {
    pub name: String,
    pub ranks: usize,
    pub config: DsConfig,
}

impl Candidate {
    /// `tensor` x `stages` ranks hold one replica, and ZeRO divides the state among the replicas.
    pub fn new(
        ranks: usize,
        [tensor, stages]: [usize; 2],
        zero_stage: Stage,
        micro_batches: usize,
    ) -> Candidate {
        let data = ranks / (tensor * stages).max(1);
        let zero = match zero_stage {
            Stage::Ddp => format!("DP {data}"),
            stage => format!("ZeRO-{} {data}", stage.number()),
        };
        let parts = [
            (stages > 1, format!("PP {stages}")),
            (tensor > 1, format!("TP {tensor}")),
            (data > 1, zero),
        ];
        let parts: Vec<String> =
            parts.into_iter().filter(|part| part.0).map(|part| part.1).collect();
        let accumulation = if stages > 1 { micro_batches } else { 1 };
        let pipeline = (stages > 1).then(|| PipelineConfig::new(stages));
        let config = DsConfig {
            tensor_parallel: tensor,
            pipeline,
            zero_stage,
            accumulation,
            ..DsConfig::default()
        };
        let name = if parts.is_empty() {
            "1 rank".to_string()
        } else {
            parts.join(" x ")
        };
        Candidate { name, ranks, config }
    }
}

/// One rank, each strategy alone on `ranks` ranks, and combinations; and those that cannot divide
/// the model or the batch.
pub fn all(shape: &ModelShape, ranks: usize, batch: usize) -> (Vec<Candidate>, Vec<LeftOut>) {
    let half = ranks / 2;
    let strategy = |parts, zero| Candidate::new(ranks, parts, zero, half.max(2));
    let mut divided = Vec::new();
    if ranks > 1 {
        divided.push(strategy([1, 1], Stage::Ddp));
        divided.push(strategy([1, 1], Stage::Three));
        divided.push(strategy([ranks, 1], Stage::Ddp));
        divided.push(strategy([1, ranks], Stage::Ddp));
    }
    if ranks > 2 && ranks.is_multiple_of(2) {
        divided.push(strategy([2, half], Stage::Ddp));
        divided.push(strategy([half, 1], Stage::Three));
    }
    let mut all = vec![Candidate::new(1, [1, 1], Stage::Ddp, 1)];
    let mut left_out = Vec::new();
    for strategy in divided {
        match strategy.config.check(shape, ranks, batch) {
            Ok(()) => all.push(strategy),
            Err(error) => left_out.push(LeftOut::new(strategy, &error.what)),
        }
    }
    (all, left_out)
}

/// A strategy that a comparison does not have, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

impl LeftOut {
    /// For the first line of a reason.
    pub fn new(strategy: Candidate, why: &str) -> LeftOut {
        let why = why.lines().next().unwrap_or_default().to_string();
        LeftOut { name: strategy.name, why }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A row for each reason: `left out TP 8: 4 key and value heads …`.
pub fn left_out(screen: &Screen, all: &[LeftOut]) -> Vec<String> {
    let row = |same: &[LeftOut]| {
        let names = listed(same.iter().map(|one| &*one.name));
        screen.row("left out", &format!("{names}: {}", same[0].why))
    };
    all.chunk_by(|a, b| a.why == b.why).map(row).collect()
}

/// Why the times of `ranks` ranks say nothing here, if they say nothing.
pub fn turns(ranks: usize) -> Option<String> {
    machine::turns(launch::ranks_here(ranks), launch::cores())
}

/// What strategies are compared by: bytes of a rank, of which fewer are better.
type Figure = (&'static str, fn(&Measured) -> f64);
const FIGURES: [Figure; 3] = [
    ("holds", |measured| measured.holds),
    ("peaks at", |measured| measured.peak),
    ("sends", |measured| measured.sent),
];

/// A table of what each strategy holds and sends, and the pros and cons that follow; and of its
/// times, unless ranks take turns or the machine is `busy`.
pub fn compared(screen: &Screen, all: &[(Candidate, Measured)], busy: Option<String>) -> String {
    let turns = all.iter().find_map(|(strategy, _)| turns(strategy.ranks));
    let turns = turns.or(busy);
    let columns = if turns.is_some() { 5 } else { 7 };
    let row = |(strategy, measured): &(Candidate, Measured)| {
        let Coordinates { data, pipeline, tensor } = measured.layout.sizes;
        let [_, step] = measured.runs[0];
        let mut cells = vec![strategy.name.clone(), format!("{data} {pipeline} {tensor}")];
        cells.extend(FIGURES.map(|(_, figure)| bytes_decimal(figure(measured))));
        cells.push(screen.seconds(step.seconds));
        cells.push(thousands(step.tokens_per_second() as u64));
        cells.truncate(columns);
        cells
    };
    let mut rows: Vec<Vec<String>> = all.iter().map(row).collect();
    // The best and the worst of the strategies on several ranks.
    for (column, (_, figure)) in (2..).zip(FIGURES) {
        let values: Vec<f64> = all[1..].iter().map(|(_, measured)| figure(measured)).collect();
        screen.least_is_best(&mut rows[1..], column, &values);
    }
    let head = ["strategy", "d p t", "holds", "peak", "sent", "step", "tokens/s"];
    let times = turns.map_or_else(String::new, |turns| format!(" No times: {turns}."));
    let words = format!(
        "d p t: data, pipeline, tensor ranks. holds, peak, sent: the bytes of a rank.{times}"
    );
    let table = table(screen, &head[..columns], &rows);
    format!("{table}\n{}\n{}", screen.wrap(&words, 2), pros_and_cons(screen, all))
}

/// For each strategy the ratios to the first one on several ranks: pros below 1, cons above.
fn pros_and_cons(screen: &Screen, all: &[(Candidate, Measured)]) -> String {
    let [_, (first, reference), others @ ..] = all else {
        return String::new();
    };
    let row = |(strategy, measured): &(Candidate, Measured)| {
        let ratios = FIGURES.map(|(name, figure)| (name, figure(measured) / figure(reference)));
        let words = |is: fn(f64) -> bool| {
            let such = ratios.iter().filter(|(_, ratio)| is(*ratio));
            let word = |(what, ratio): &(&str, f64)| format!("{what} {}x", significant(*ratio, 2));
            such.map(word).collect::<Vec<_>>().join(", ")
        };
        let pro = words(|ratio| ratio < 0.95);
        let con = words(|ratio| ratio > 1.05);
        vec![strategy.name.clone(), screen.good(pro), screen.bad(con)]
    };
    let rows: Vec<Vec<String>> = others.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(screen, &[&format!("beside {}", first.name), "pro", "con"], &rows))
}

/// Tokens per second of each strategy: in training, reading a prompt, and generating. Strategies
/// whose ranks take turns are named below the table.
pub fn throughput(screen: &Screen, all: &[(Candidate, Measured)]) -> String {
    let (slow, all): (Vec<_>, Vec<_>) =
        all.iter().partition(|(strategy, _)| turns(strategy.ranks).is_some());
    let rates = |measured: &Measured| {
        let [prefill, decode] = measured.generation;
        [measured.runs[0][1], prefill, decode].map(|timed| timed.tokens_per_second())
    };
    let most = all.iter().map(|(_, measured)| rates(measured)[0]).fold(0.0, f64::max);
    let row = |(strategy, measured): &&(Candidate, Measured)| {
        let rates = rates(measured);
        let mut cells = vec![strategy.name.clone(), bar(screen, rates[0] / most, 20)];
        cells.extend(rates.map(|rate| thousands(rate as u64)));
        cells
    };
    let table =
        table(screen, &["tokens/s", "", "training", "prefill", "decode"], all.iter().map(row));
    let slow: Vec<&Candidate> = slow.into_iter().map(|(strategy, _)| strategy).collect();
    format!("{table}{}", not_timed(screen, &slow))
}

/// Lines that name the strategies whose ranks take turns; empty if there are none.
pub(super) fn not_timed(screen: &Screen, slow: &[&Candidate]) -> String {
    let mut lines = String::new();
    for same in slow.chunk_by(|a, b| a.ranks == b.ranks) {
        let names = listed(same.iter().map(|strategy| &*strategy.name));
        if let Some(turns) = turns(same[0].ranks) {
            lines +=
                &format!("\n{}", screen.wrap(&format!("not timed, because {turns}: {names}"), 2));
        }
    }
    lines
}

/// Batch sizes from one sequence to the number at which larger ones gain little.
pub const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];

/// Tokens per second over the batch size, on one rank. Each sequence has one token, as in a decode
/// step.
pub fn over_batches(screen: &Screen, measured: &Measured) -> String {
    let rates = |which: usize| {
        let of = measured.runs.iter().map(move |run| &run[which]);
        of.map(|timed| (timed.batch as f64, timed.tokens_per_second()))
    };
    Plot::new("tokens/s", "sequences, one token each")
        .log_x()
        .log_y()
        .labels(|x| significant(x, 2), |y| thousands(y as u64))
        .series(Series::line("forward", rates(0)))
        .series(Series::line("training", rates(1)))
        .height(8)
        .render(screen)
}

/// One rank, each strategy alone on as many of `ranks` ranks as it can use, and combinations on all
/// of them.
pub fn for_finale(shape: &ModelShape, ranks: usize) -> Vec<Candidate> {
    let divides = |n: &usize| ranks.is_multiple_of(*n);
    let tensor = (1..=ranks)
        .rev()
        .filter(divides)
        .find(|&n| ensure_tensor_llama(shape, n).is_ok())
        .unwrap_or(1);
    let stages = (1..=ranks).rev().filter(divides).find(|&n| n <= shape.layers).unwrap_or(1);
    let alone = [1, 1];
    let all = stages * tensor;
    let most = if ranks.is_multiple_of(all) { ranks } else { all };
    vec![
        Candidate::new(1, alone, Stage::Ddp, 1),
        Candidate::new(ranks, alone, Stage::Ddp, 1),
        Candidate::new(ranks, alone, Stage::Three, 1),
        Candidate::new(tensor, [tensor, 1], Stage::Ddp, 1),
        Candidate::new(stages, [1, stages], Stage::Ddp, stages),
        Candidate::new(ranks, [tensor, 1], Stage::Three, 1),
        Candidate::new(most, [tensor, stages], Stage::One, stages),
    ]
}

/// The most bytes of any rank beside a rank's limit, and the part of the job that did not fit. The
/// first job has no limit, and no bar: it would be several times as long as the others'.
pub fn finale(screen: &Screen, all: &[(Candidate, Measured)], limit: f64) -> String {
    let Some(((one, unlimited), limited)) = all.split_first() else {
        return String::new();
    };
    let most = limited.iter().map(|(_, measured)| measured.peak).fold(limit, f64::max);
    let mut lines =
        vec![format!("  {}, without a limit: {}", one.name, bytes_decimal(unlimited.peak))];
    for (strategy, measured) in limited {
        let words = measured
            .stopped
            .map_or_else(String::new, |at| format!(", {}", screen.bad(format!("stopped in {at}"))));
        // What is left of the limit is the rest of a bar. A bar without a rest is over the limit.
        let bar = bar_to_scale(screen, measured.peak, limit, most, 22);
        lines.push(format!(
            "  {:15}  {bar}  {}{words}",
            strategy.name,
            bytes_decimal(measured.peak)
        ));
    }
    lines.push(format!("  each rank may take {}; one scale for all bars", bytes_decimal(limit)));
    lines.join("\n")
}

/// Checks that the model runs within `limit` only if strategies are combined.
pub fn check_finale(checks: &mut Checks, all: &[(Candidate, Measured)], limit: f64) {
    let fits = |(_, measured): &&(Candidate, Measured)| {
        measured.stopped.is_none() && measured.peak <= limit
    };
    let is_combined = |(strategy, _): &(Candidate, Measured)| strategy.name.contains(" x ");
    let (combined, alone): (Vec<_>, Vec<_>) =
        all.iter().filter(fits).partition(|one| is_combined(one));
    let names = |all: &[&(Candidate, Measured)]| listed(all.iter().map(|one| &*one.0.name));
    checks.check(
        alone.is_empty(),
        "no strategy alone fits",
        &names(&alone),
        "one strategy is enough: lower --memory-limit",
    );
    checks.check(
        !combined.is_empty(),
        "a combination fits",
        &names(&combined),
        "no combination fits: raise --memory-limit, or start more --ranks",
    );
}

/// The checks of all strategies.
pub fn check(checks: &mut Checks, all: &[(Candidate, Measured)], dtype: Precision) {
    let bound = 10.0 * parity::loss_bound(dtype);
    let Some(((_, one), others)) = all.split_first() else {
        return;
    };
    let others: Vec<_> = others.iter().filter(|(_, measured)| measured.stopped.is_none()).collect();
    let off = |(_, other): &&(_, Measured)| largest_relative_difference(&other.losses, &one.losses);
    let most = parity::worst(others.iter().map(off));
    let steps = one.losses.len();
    checks.check(
        most < bound,
        &format!("{steps} steps: every strategy has one rank's losses, within {bound:.0e}"),
        &if most == 0.0 {
            "0".to_string()
        } else {
            format!("off by {most:.0e}")
        },
        "a strategy trained a different model than one rank",
    );
    let different = others.iter().filter(|(_, measured)| measured.tokens != one.tokens);
    let different = listed(different.map(|(strategy, _)| &*strategy.name));
    checks.check(
        different.is_empty(),
        "every strategy generates one rank's tokens",
        &different,
        "a strategy generated different tokens",
    );
}

#[cfg(test)]
mod tests {
    use super::super::lines::{Memory, Timed};
    use super::*;
    use shardlab::difference::damaged;
    use shardlab::parallel::Strategy;

    /// A strategy whose losses are no numbers, or whose tokens are missing, is not one rank's.
    #[test]
    fn one_hostile_strategy_is_enough() {
        let measured = || {
            let timed = || Timed { batch: 1, seq: 1, seconds: 1.0, flops: 1.0, bytes: 1.0 };
            Measured {
                layout: Strategy::SINGLE.layout(),
                runs: vec![[timed(), timed()]],
                generation: [timed(), timed()],
                tokens: vec![1, 2],
                losses: vec![4.0, 3.0],
                holds: 1.0,
                peak: 1.0,
                stopped: None,
                sent: 1.0,
                memory: Memory::default(),
            }
        };
        let failed = |place: usize, change: &dyn Fn(&mut Measured)| {
            let one = || (Candidate::new(2, [1, 1], Stage::Ddp, 1), measured());
            let mut all = [one(), one(), one()];
            change(&mut all[place].1);
            let screen = Screen::plain();
            let mut checks = Checks::new(&screen);
            check(&mut checks, &all, Precision::F32);
            checks.failed().len()
        };
        assert_eq!(failed(1, &|_| ()), 0);
        for place in 0..3 {
            for bad in damaged(&measured().losses) {
                assert_eq!(failed(place, &|one| one.losses = bad.clone()), 1, "{place} {bad:?}");
            }
            assert_eq!(failed(place, &|one| one.losses[1] = 3.1), 1, "{place}");
            assert_eq!(failed(place, &|one| one.tokens.truncate(1)), 1, "{place}");
        }
        // A peak that is not known does not fit.
        let finale = |peak: f64| {
            let candidate = Candidate::new(4, [2, 1], Stage::Three, 1);
            let all = [(candidate, Measured { peak, ..measured() })];
            let screen = Screen::plain();
            let mut checks = Checks::new(&screen);
            check_finale(&mut checks, &all, 2.0);
            checks.failed().len()
        };
        assert_eq!([finale(1.0), finale(3.0), finale(f64::NAN)], [0, 1, 1]);
    }
}
