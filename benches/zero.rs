//! ZeRO's stages beside DDP: `cargo bench --bench zero -- [PRESET] [RANKS] [LATENCY,BANDWIDTH]`.
//!
//! All of them train in turns in one run, so that what disturbs the machine disturbs all. Prints
//! medians over steps after a warm-up: tokens per second, and of stage 3 how long a step waited for
//! gathers. With a link (such as `100us,0.5GB/s`) ranks communicate as over such a network. Let
//! nothing else run meanwhile.

use anyhow::Result;
use kit::show::{Screen, seconds, table, thousands};
use shardlab::comm::{Comm, Link, Options};
use shardlab::data::{Corpus, Sampler, Sampling};
use shardlab::launch;
use shardlab::model::{Gpt, Pass};
use shardlab::parallel::zero::{EventKind, Stage, Zero, ZeroConfig};
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::Precision;
use shardlab::train::AdamWConfig;
use std::time::Instant;

/// What is compared; the first is what the others are measured by.
fn variants() -> Vec<(&'static str, ZeroConfig)> {
    let of = |stage, precision| ZeroConfig::new(stage, precision, AdamWConfig::default());
    let three = of(Stage::Three, Precision::F32);
    vec![
        ("0 (DDP)", of(Stage::Ddp, Precision::F32)),
        ("1", of(Stage::One, Precision::F32)),
        ("2", of(Stage::Two, Precision::F32)),
        ("3", three.clone()),
        ("3, no prefetch", ZeroConfig { prefetch_bucket: 0, ..three.clone() }),
        ("3, large prefetch", ZeroConfig { prefetch_bucket: 1 << 26, ..three }),
        ("0, bf16", of(Stage::Ddp, Precision::Bf16)),
        ("3, bf16", of(Stage::Three, Precision::Bf16)),
    ]
}

/// Seconds of a step, and of those that were spent waiting for gathers.
type Step = (f64, f64);

fn main() -> Result<()> {
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let preset = words.first().map_or("baby", String::as_str);
    let ranks = words.get(1).map_or(Ok(2), |word| word.parse())?;
    let link: Option<Link> = words
        .get(2)
        .map(|word| kit::flags::link(word).map_err(anyhow::Error::msg))
        .transpose()?;
    let vocabulary = Corpus::embedded()?.vocabulary.size();
    let (gpt, batch, steps) = match preset {
        "baby" => (
            ModelShape {
                vocabulary,
                block: 64,
                layers: 4,
                heads: 4,
                embd: 128,
                family: Family::Gpt,
                experts: None,
            },
            12,
            20,
        ),
        "char" => (
            ModelShape {
                vocabulary,
                block: 256,
                layers: 6,
                heads: 6,
                embd: 384,
                family: Family::Gpt,
                experts: None,
            },
            4,
            4,
        ),
        other => anyhow::bail!("there is no preset {other}: give baby or char"),
    };
    let options = Options { link, ..Options::default() };
    let measured = launch::run_with(ranks, &options, |comm| one_rank(&gpt, batch, steps, comm))?;
    let tokens = (batch * gpt.block * ranks) as f64;
    let rows: Vec<Vec<String>> = variants()
        .iter()
        .zip(&measured[0])
        .map(|((name, _), (step, waited))| {
            let waited = if name.starts_with('3') {
                seconds(*waited)
            } else {
                String::new()
            };
            let ratio = format!("{:.2}", measured[0][0].0 / step);
            vec![
                name.to_string(),
                thousands((tokens / step) as u64),
                ratio,
                seconds(*step),
                waited,
            ]
        })
        .collect();
    println!(
        "{preset}, {ranks} ranks{}",
        link.map_or(String::new(), |link| format!(", {link}"))
    );
    println!(
        "{}",
        table(
            &Screen::detect(false),
            &["stage", "tokens/s", "of DDP's", "a step", "waits for gathers"],
            &rows
        )
    );
    Ok(())
}

/// Every variant's medians, on one rank.
fn one_rank(shape: &ModelShape, batch: usize, steps: usize, comm: Comm) -> Result<Vec<Step>> {
    const ROUNDS: usize = 5;
    let corpus = Corpus::embedded()?;
    let rank = comm.rank();
    let ranks = comm.size();
    let sampler = Sampler {
        seed: 1,
        sampling: Sampling::Partition,
        ranks,
        rank,
        batch,
        block: shape.block,
    };
    let mut all = Vec::new();
    for (_, config) in variants() {
        let gpt = Gpt::new(shape)?;
        gpt.params.allocate(1);
        let zero = Zero::new(&gpt.params, &comm, config)?;
        all.push((gpt, zero, Vec::new()));
    }
    for round in 0..ROUNDS {
        for (gpt, zero, measured) in &mut all {
            for step in 0..steps {
                let batch = sampler.batch(&corpus.train, round * steps + step, 0);
                let start = Instant::now();
                zero.begin()?;
                gpt.loss(&batch, &Pass::training(None))?.backward()?;
                zero.finish()?;
                zero.step(1e-3, 1.0)?;
                let seconds = start.elapsed().as_secs_f64();
                let waits = zero.events().into_iter().filter(|event| event.kind == EventKind::Wait);
                let waited: f64 = waits.map(|event| (event.end - event.start).as_secs_f64()).sum();
                // The first round warms up, and each turn's first step finds other models' numbers
                // in the caches.
                if round > 0 && step > 0 {
                    measured.push((seconds, waited));
                }
            }
            comm.barrier()?;
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let medians = |measured: &Vec<Step>| {
        let (seconds, waited) = measured.iter().copied().unzip();
        (median(seconds), median(waited))
    };
    Ok(all.iter().map(|(_, _, measured)| medians(measured)).collect())
}
