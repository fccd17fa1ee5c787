//! This machine as a cluster of the planner, and short trainings beside their predictions.
//!
//! Four figures are measured: the peak of matrix products, the bandwidth of a copy, and latency and
//! bandwidth of an all-reduce between two threads. One-rank trainings of two models then say which
//! part of peak and bandwidth a training reaches. All other trainings are predicted from these
//! figures alone.
//!
//! Ranks on different cores share the machine's memory. So a training with fewer ranks than cores
//! runs several times at once.

use super::strategy::{Cluster, Device, Strategy};
use super::trained::{Held, Trained, Training};
use anyhow::{Context, Result};
use kit::Peaks;
use kit::show::{Screen, bytes_decimal, significant, table};
use shardlab::comm::{Comm, Link, Reduce};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::plan::{Family, MOST_RANKS, ModelShape, Network, fit as fit_link};
use std::time::Instant;

/// The measured figures.
pub struct Calibration {
    pub cluster: Cluster,
    link: Link,
    rows: Vec<Row>,
}

/// A training: measured, and planned.
struct Row {
    lab: &'static str,
    training: Training,
    /// Seconds of a step.
    seconds: [f64; 2],
    /// Bytes of the rank whose plan is worst.
    bytes: [f64; 2],
}

/// Sequences per step, in two micro-batches.
const SEQUENCES: usize = 16;
const MICRO_BATCHES: usize = 2;
/// Steps of a training, which runs in some rounds: a machine's speed changes within seconds.
const STEPS: usize = 3;
const ROUNDS: usize = 3;

/// Layers and width of the models whose trainings say what this machine reaches, and of the model
/// of all others.
const WIDE: [usize; 2] = [2, 256];
const THIN: [usize; 2] = [8, 64];
const BABY: [usize; 2] = [4, 128];

/// The trainings, each with the lab that measures its strategy. The first two calibrate.
const TRAININGS: [(&str, &str, [usize; 2]); 11] = [
    ("fitted", "", WIDE),
    ("fitted", "", THIN),
    ("lab03", "", BABY),
    ("lab04", "dp=2", BABY),
    ("lab04", "dp=2,zero=1", BABY),
    ("lab04", "dp=2,zero=2", BABY),
    ("lab04", "dp=2,zero=3", BABY),
    ("lab05", "tp=2", BABY),
    ("lab05", "tp=2,sp", BABY),
    ("lab06", "pp=2", BABY),
    ("lab07", "dp=2,tp=2,pp=2,zero=1", BABY),
];

/// Measures this machine, and trains.
pub fn calibrate(corpus: &Corpus) -> Result<Calibration> {
    let peaks = Peaks::measure();
    let link = link()?;
    let mut runs: Vec<(&str, Training, Trained)> = Vec::new();
    for (i, (lab, plan, [layers, embd])) in
        (0..ROUNDS).flat_map(|_| TRAININGS.into_iter().enumerate())
    {
        let strategy: Strategy = plan.parse()?;
        let micro_batch = SEQUENCES / MICRO_BATCHES / strategy.data;
        let shape = ModelShape {
            vocabulary: corpus.vocabulary.size(),
            block: 64,
            layers,
            heads: 4,
            embd,
            family: Family::Gpt,
        };
        let strategy = Strategy { micro_batch: Some(micro_batch), ..strategy };
        let training = Training { shape, dropout: 0.0, batch: SEQUENCES, strategy };
        let copies = (launch::cores() / strategy.ranks()).clamp(1, 8);
        let trained = training.run(corpus, STEPS, copies);
        let trained = trained.with_context(|| format!("the training {plan} failed"))?;
        match runs.get_mut(i) {
            Some((.., all)) => all.seconds = all.seconds.min(trained.seconds),
            None => runs.push((lab, training, trained)),
        }
    }
    let cluster = fit(cluster(peaks, link), [&runs[0], &runs[1]]);
    let row = |(lab, training, trained): (&'static str, Training, Trained)| {
        let job = training.job(&cluster);
        let total = |held: &Held| held.state + held.activations;
        let bytes = trained
            .held
            .iter()
            .map(|(stage, held)| [total(held), total(&training.planned(&job, *stage))]);
        let bytes = bytes
            .max_by(|a, b| error(a).abs().total_cmp(&error(b).abs()))
            .unwrap_or([1.0; 2]);
        Row {
            lab,
            training,
            seconds: [trained.seconds, predicted(&training, &cluster)],
            bytes,
        }
    };
    let rows = runs.into_iter().map(row).collect();
    Ok(Calibration { cluster, link, rows })
}

/// How much larger the planned figure is.
fn error([measured, planned]: &[f64; 2]) -> f64 {
    planned / measured - 1.0
}

/// Seconds of a step. Ranks that share a core take turns. Then no core waits for a pipeline,
/// because a rank that waits leaves its core to the others, but all work needs its time.
fn predicted(training: &Training, cluster: &Cluster) -> f64 {
    let time = training.job(cluster).time(&training.strategy);
    let ranks = training.strategy.ranks() as f64 / launch::cores() as f64;
    time.total().max((time.total() - time.bubble) * ranks)
}

/// The line through the times of all-reduces between two threads: of an array's bytes.
fn link() -> Result<Link> {
    let time_all_reduces = |comm: Comm| {
        let mut points = Vec::new();
        for size in [1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20] {
            let mut numbers = vec![1f32; size];
            let mut best = f64::INFINITY;
            for _ in 0..10 {
                comm.barrier()?;
                let start = Instant::now();
                comm.all_reduce(&mut numbers, Reduce::Max)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            points.push((4.0 * size as f64, best));
        }
        Ok(points)
    };
    let points = launch::run(2, time_all_reduces)?.swap_remove(0);
    // If no line can be found, the largest array decides.
    let largest = points.last().map_or(1e9, |(bytes, seconds)| bytes / seconds);
    Ok(fit_link(&points).unwrap_or(Link { latency: 0.0, bandwidth: largest }))
}

/// One rank per core. An all-reduce between two ranks moves the array once, in two rounds.
fn cluster(peaks: Peaks, link: Link) -> Cluster {
    let memory = launch::free_memory(1).unwrap_or(8 << 30) as f64;
    let device = Device {
        name: "this machine".into(),
        free: Device::FREE,
        memory,
        peak: peaks.flops,
        matmul: 1.0,
        bandwidth: peaks.bytes,
        streaming: 1.0,
        host_memory: memory,
        host_link: peaks.bytes,
        host_bandwidth: peaks.bytes,
        disk: 0.0,
        disk_read: 0.0,
        disk_write: 0.0,
        price: 0.0,
        source: "measured",
    };
    let link = Link { latency: link.latency / 2.0, ..link };
    let network = Network {
        name: "threads",
        about: "ranks are threads, which copy",
        ranks_per_node: MOST_RANKS,
        most_ranks: MOST_RANKS,
        source: "measured",
        pipelined: false,
        ..Network::uniform(link)
    };
    Cluster { device, network }
}

/// The parts of peak and bandwidth that fit two measured trainings: a part for products, and a part
/// for everything else. Neither is above 1.
fn fit(mut cluster: Cluster, runs: [&(&str, Training, Trained); 2]) -> Cluster {
    let [(p, m, t), (q, n, u)] = runs.map(|(_, training, trained)| {
        let without = |change: fn(&mut Device)| {
            let mut cluster = cluster.clone();
            change(&mut cluster.device);
            predicted(training, &cluster)
        };
        let products = without(|device| device.bandwidth = f64::INFINITY);
        (products, without(|device| device.peak = f64::INFINITY), trained.seconds)
    });
    // Two unknowns: t = p x + m y and u = q x + n y.
    let determinant = p * n - m * q;
    let x = (t * n - m * u) / determinant;
    let y = (p * u - t * q) / determinant;
    // No training is faster than the peak. Then only y is free: the one with the smallest relative
    // errors, by least squares.
    let (x, y) = if x >= 1.0 && y >= 1.0 {
        (x, y)
    } else {
        let [(a, left), (b, rest)] = [(m / t, 1.0 - p / t), (n / u, 1.0 - q / u)];
        (1.0, ((a * left + b * rest) / (a * a + b * b)).max(1.0))
    };
    (cluster.device.matmul, cluster.device.streaming) = (1.0 / x, 1.0 / y);
    cluster
}

impl Calibration {
    /// The figures, and the comparison.
    pub fn show(&self, screen: &Screen) -> String {
        let Cluster { device, .. } = &self.cluster;
        let tera = |flops: f64| format!("{} GFLOP/s", significant(flops / 1e9, 3));
        let lines = [
            screen.row(
                "products",
                &format!(
                    "{}; a training reaches {} of it",
                    tera(device.peak),
                    significant(device.matmul, 2)
                ),
            ),
            screen.row(
                "copies",
                &format!(
                    "{}/s; a training reaches {} of it",
                    bytes_decimal(device.bandwidth),
                    significant(device.streaming, 2)
                ),
            ),
            screen.row(
                "threads",
                &format!(
                    "an all-reduce takes {} and then {}/s",
                    screen.seconds(self.link.latency),
                    bytes_decimal(self.link.bandwidth)
                ),
            ),
        ];
        let percent = |pair: &[f64; 2]| format!("{:+.0}%", 100.0 * error(pair));
        let cells = |row: &Row| {
            let ModelShape { layers, embd, .. } = row.training.shape;
            let s = row.training.strategy;
            let [held, planned] = row.bytes.map(bytes_decimal);
            let [measured, predicted] = row.seconds.map(|seconds| screen.seconds(seconds));
            let memory = percent(&row.bytes);
            let time = percent(&row.seconds);
            let plan = s.words() + if s.sequence { " + SP" } else { "" };
            vec![
                row.lab.into(),
                plan,
                format!("{layers} x {embd}"),
                held,
                planned,
                memory,
                measured,
                predicted,
                time,
            ]
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        let head = ["lab", "plan", "model", "held", "planned", "error", "step", "planned", "error"];
        let free: Vec<&Row> = self.rows.iter().filter(|row| row.lab != "fitted").collect();
        let within = |most: f64, pair: fn(&Row) -> [f64; 2]| {
            free.iter().filter(|row| error(&pair(row)).abs() < most).count()
        };
        let words = format!(
            "Of {} trainings that were not fitted, {} have their bytes within 5%, and {} their step within 20%. model: layers x \
             width; {SEQUENCES} sequences of 64 tokens per step. held: bytes of a rank, the one whose plan is worst. \
             step: the fastest of {}. Times depend on what else runs: close other programs, and repeat.",
            free.len(),
            within(0.05, |row| row.bytes),
            within(0.2, |row| row.seconds),
            STEPS * ROUNDS,
        );
        format!(
            "{}\n\n{}\n{}",
            lines.join("\n"),
            table(screen, &head, &rows),
            screen.wrap(&words, 2)
        )
    }

    /// The same as a file for `--cluster`.
    pub fn file(&self) -> String {
        let Cluster { device, network, .. } = &self.cluster;
        format!(
            "[device]\nname = \"this machine\"\nmemory_gb = {:.1}\ntflops = {:.4}\nbandwidth_gb_s = {:.1}\nmatmul = {:.2}\n\
             streaming = {:.2}\n\n[network]\nper_node = {}\nwithin_gb_s = {:.2}\nwithin_us = {:.2}\n",
            device.memory / 1e9,
            device.peak / 1e12,
            device.bandwidth / 1e9,
            device.matmul,
            device.streaming,
            launch::cores(),
            network.within.bandwidth / 1e9,
            (network.within.latency * 1e6).max(0.01),
        )
    }
}
