//! Tokens per second of tensor ranks beside one rank, and beside as many ranks that share only the
//! data; then the same over a slow link.

use anyhow::Result;
use kit::OtherWork;
use kit::show::{Screen, bytes_decimal, percent, table, thousands};
use shardlab::comm::{Comm, Link, Options};
use shardlab::data::Corpus;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::{Config, Training};
use std::time::Instant;

/// Rounds in which every way takes some steps, so that a busy machine slows all of them.
const ROUNDS: usize = 3;

/// A network between cheap nodes, where no flag names one: 1 Gbit/s.
const SLOW: Link = Link { latency: 50e-6, bandwidth: 125e6 };

/// The best round of a way: seconds of a step, the share of it in communication calls, and the
/// bytes that a rank sends.
#[derive(Clone, Copy)]
struct Speed {
    seconds: f64,
    communicating: f64,
    bytes: f64,
}

impl Speed {
    /// Before the first step.
    const NONE: Speed = Speed { seconds: f64::INFINITY, communicating: 0.0, bytes: 0.0 };
}

/// Measures all ways on `ranks` ranks, and prints the tables.
pub fn benchmark(
    screen: &Screen,
    config: &Config,
    corpus: &Corpus,
    ranks: usize,
    link: Option<Link>,
) -> Result<()> {
    let tensor = Strategy { tensor: ranks, ..Strategy::SINGLE };
    let ways = [
        ("1 rank", Strategy::SINGLE),
        ("TP", tensor),
        ("TP + SP", Strategy { sequence: true, ..tensor }),
        ("DDP", Strategy::data(ranks, Stage::Ddp)),
    ];
    let slow = link.unwrap_or(SLOW);
    let links = if launch::is_mpi() {
        vec![None]
    } else {
        vec![None, Some(slow)]
    };
    let watch = OtherWork::watch();
    let mut best = vec![vec![Speed::NONE; ways.len()]; links.len()];
    for _ in 0..ROUNDS {
        for (link, best) in links.iter().zip(&mut best) {
            for ((_, strategy), best) in ways.iter().zip(best) {
                let options = Options { link: *link, ..Options::default() };
                let all = launch::run_with(ranks, &options, |comm| {
                    speed(&comm, strategy, config, &corpus.train)
                })?;
                if all[0].seconds < best.seconds {
                    *best = all[0];
                }
            }
        }
    }
    let tokens = |strategy: &Strategy, speed: &Speed| {
        (strategy.data * config.batch * config.shape.block) as f64 / speed.seconds
    };
    if launch::is_first_process() {
        // A speed-up that other programs made is none.
        let busy = watch.row(screen, ranks);
        for (link, best) in links.iter().zip(&best) {
            let one = tokens(&Strategy::SINGLE, &best[0]);
            let row = |((name, strategy), speed): (&(&str, Strategy), &Speed)| {
                let tps = tokens(strategy, speed);
                [
                    name.to_string(),
                    thousands(tps as u64),
                    if busy.is_none() {
                        format!("{:.2} x", tps / one)
                    } else {
                        "-".to_string()
                    },
                    percent(speed.communicating),
                    bytes_decimal(speed.bytes),
                ]
            };
            let over = link.map_or("this machine's memory".to_string(), |link| {
                let latency = screen.seconds(link.latency);
                format!("a link of {}/s, {latency}", bytes_decimal(link.bandwidth))
            });
            screen.say(format!("\n  {}", screen.bold(format!("{ranks} ranks over {over}"))));
            let heads = ["", "tokens/s", "of 1 rank", "communicating", "sends per step"];
            screen.say(table(screen, &heads, ways.iter().zip(best).map(row)));
        }
        if let Some(busy) = busy {
            screen.say(busy);
        }
    }
    Ok(())
}

/// Some steps of one way. With one rank, the others wait.
fn speed(comm: &Comm, strategy: &Strategy, config: &Config, text: &[u32]) -> Result<Speed> {
    let alone = strategy.ranks() == 1;
    let world = if alone { Comm::alone() } else { comm.clone() };
    let mut speed = Speed::NONE;
    if !alone || comm.rank() == 0 {
        let config = config.under(strategy);
        let mut training = Training::new(&config, strategy, &world)?;
        // The first step allocates.
        for step in 0..=config.steps {
            world.labelled("step").barrier()?;
            let start = Instant::now();
            let before = world.total_traffic();
            training.step(text, step)?;
            let seconds = start.elapsed().as_secs_f64();
            let sent = world.total_traffic() - before;
            if step > 0 && seconds < speed.seconds {
                speed = Speed {
                    seconds,
                    communicating: sent.seconds / seconds,
                    bytes: sent.bytes as f64,
                };
            }
        }
    }
    comm.labelled("way").barrier()?;
    Ok(speed)
}
