//! Who computes how much of an attention: products counted, and seconds measured.

use anyhow::Result;
use kit::show::{Screen, bar_to_scale, significant, table};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Uniform;
use shardlab::parallel::context::Slicing;
use shardlab::tensor::{BlockAttention, Precision, Rows, Slices, profile};
use std::time::Instant;

const HEADS: usize = 4;
const HEAD: usize = 32;
/// The positions of each rank.
const EACH: usize = 256;

/// One layer's attention by all ranks, forward and backward.
pub struct Work {
    pub slicing: Slicing,
    /// FLOPs in matrix products, by rank.
    pub flops: Vec<f64>,
    /// Seconds, by rank.
    pub seconds: Vec<f64>,
}

impl Work {
    /// The rank that computes most, as a multiple of the mean.
    pub fn slowest(&self) -> f64 {
        slowest(&self.flops)
    }
}

fn slowest(amounts: &[f64]) -> f64 {
    let mean = amounts.iter().sum::<f64>() / amounts.len() as f64;
    amounts.iter().fold(0.0, |most: f64, &x| most.max(x)) / mean
}

/// Computes one layer's attention with all keys and values at hand: one rank after the other, so
/// that ranks on shared cores do not slow each other down.
pub fn work(group: &Comm, slicing: Slicing, seed: u64) -> Result<Work> {
    let ranks = group.size();
    let length = EACH * ranks;
    let attention = BlockAttention::new(0..HEADS, HEADS, HEAD, length, Precision::F32);
    let width = HEADS * HEAD;
    let numbers =
        |rank: usize, seed: u64, width: usize| Uniform { seed, rank, batch: EACH, width }.batch(0);
    let all: Vec<Slices> = (0..ranks).map(|rank| slicing.slices(length, ranks, rank)).collect();
    let keys: Vec<Vec<f32>> = (0..ranks).map(|rank| numbers(rank, seed, 2 * width)).collect();
    let q = numbers(group.rank(), seed + 1, width);
    let dy = numbers(group.rank(), seed + 2, width);
    let q = Rows { numbers: &q, stride: width, slices: &all[group.rank()] };
    let mut took = [0.0; 2];
    // The first turn warms up.
    for turn in 0..2 * ranks {
        group.barrier()?;
        if turn % ranks != group.rank() {
            continue;
        }
        let begun = Instant::now();
        let before = profile::products();
        let blocks = || {
            keys.iter().zip(&all).map(|(kv, slices)| Rows {
                numbers: kv,
                stride: 2 * width,
                slices,
            })
        };
        let mut running = attention.begin(1, EACH);
        blocks().for_each(|block| attention.attend(&mut running, q, block));
        let (y, log_sums) = attention.finish(running, EACH);
        let means = attention.means(&y, &dy, EACH);
        let mut dq = vec![0.0; y.len()];
        for block in blocks() {
            let mut dkv = vec![0.0; block.numbers.len()];
            attention.gradients((q, block), &dy, (&log_sums, &means), (&mut dq, &mut dkv));
        }
        let flops = (profile::products() - before).flops as f64;
        took = [flops, begun.elapsed().as_secs_f64()];
    }
    group.barrier()?;
    let mut figures = vec![0.0; 2 * ranks];
    figures[2 * group.rank()..][..2].copy_from_slice(&took);
    group.all_reduce(&mut figures, Reduce::Sum)?;
    let column = |i: usize| figures.chunks(2).map(|both| both[i]).collect();
    Ok(Work { slicing, flops: column(0), seconds: column(1) })
}

/// Both orders, a row each: every rank's part of the mean work, and the slowest one's.
pub fn draw(screen: &Screen, all: &[Work; 2]) -> String {
    let ranks = all[0].flops.len();
    let most = all.iter().map(Work::slowest).fold(0.0, f64::max);
    let bars = ranks <= 4;
    let row = |work: &Work| {
        let mean = work.flops.iter().sum::<f64>() / ranks as f64;
        let cell = |flops: &f64| {
            let part = format!("{:.2}", flops / mean);
            match bars {
                true => format!("{} {part}", bar_to_scale(screen, flops / mean, most, most, 6)),
                false => part,
            }
        };
        let seconds = format!("{:.2} in time", slowest(&work.seconds));
        std::iter::once(work.slicing.name().to_string())
            .chain(work.flops.iter().map(cell))
            .chain([seconds])
            .collect::<Vec<String>>()
    };
    let name = |rank: usize| if bars { format!("rank {rank}") } else { rank.to_string() };
    let names: Vec<String> = (0..ranks).map(name).collect();
    let heads: Vec<&str> = std::iter::once(if bars { "work" } else { "work, rank" })
        .chain(names.iter().map(String::as_str))
        .chain(["slowest"])
        .collect();
    let words = format!(
        "FLOPs beside the mean; the last contiguous rank has (2c-1)/c = {} at most.",
        significant((2.0 * ranks as f64 - 1.0) / ranks as f64, 3),
    );
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    format!("{}\n{}", table(screen, &heads, &rows), screen.wrap(&words, 2))
}
