//! Who computes how much of an attention: products counted, and seconds measured.

use anyhow::Result;
use kit::machine::one_by_one;
use kit::show::{Screen, bar_to_scale, explained, significant, thousands};
use shardlab::comm::Comm;
use shardlab::data::Uniform;
use shardlab::model::Heads;
use shardlab::parallel::context::Slicing;
use shardlab::tensor::{BlockAttention, Documents, Precision, Rows, Slices, profile};
use std::time::Instant;

/// What attends: the sequences of one layer.
#[derive(Clone)]
pub struct Load {
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    pub heads: Heads,
    /// The width of a head.
    pub head: usize,
    pub documents: Documents,
}

impl Load {
    /// One document, long enough that tiles of 64 queries fill a triangle well.
    pub fn one_document(ranks: usize) -> Load {
        Load {
            sequences: 1,
            length: 256 * ranks,
            heads: Heads { queries: 0..4, kv: 4 },
            head: 32,
            documents: Documents::default(),
        }
    }

    fn is_packed(&self) -> bool {
        self.documents.iter().any(|starts| !starts.is_empty())
    }
}

/// One layer's attention by all ranks, forward and backward.
pub struct Work {
    pub slicing: Slicing,
    pub load: Load,
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

    fn name(&self) -> &'static str {
        if self.load.is_packed() {
            "this batch"
        } else {
            self.slicing.name()
        }
    }
}

fn slowest(amounts: &[f64]) -> f64 {
    let mean = amounts.iter().sum::<f64>() / amounts.len() as f64;
    amounts.iter().fold(0.0, |most: f64, &x| most.max(x)) / mean
}

/// Turns of each rank.
const TURNS: usize = 4;

/// Computes one layer's attention with all keys and values at hand: one rank after the other.
pub fn work(group: &Comm, slicing: Slicing, load: &Load, seed: u64) -> Result<Work> {
    let ranks = group.size();
    let Load { sequences, length, heads, head, documents } = load.clone();
    let attention =
        BlockAttention::new(heads.queries.clone(), heads.kv, head, length, Precision::F32)
            .with_documents(&documents);
    let each = length / ranks;
    let width = heads.queries.len() * head;
    let kv_width = 2 * heads.kv * head;
    let numbers = |rank: usize, seed: u64, width: usize| {
        Uniform { seed, rank, batch: sequences * each, width }.batch(0)
    };
    let all: Vec<Slices> = (0..ranks).map(|rank| slicing.slices(length, ranks, rank)).collect();
    let keys: Vec<Vec<f32>> = (0..ranks).map(|rank| numbers(rank, seed, kv_width)).collect();
    let q = numbers(group.rank(), seed + 1, width);
    let dy = numbers(group.rank(), seed + 2, width);
    let q = Rows { numbers: &q, stride: width, slices: &all[group.rank()] };
    let figures = one_by_one(group, TURNS, || {
        let begun = Instant::now();
        let before = profile::products();
        let blocks = || {
            let both = keys.iter().zip(&all);
            both.map(|(kv, slices)| Rows { numbers: kv, stride: kv_width, slices })
        };
        let mut running = attention.begin(sequences, each);
        blocks().for_each(|block| attention.attend(&mut running, q, block));
        let (y, log_sums) = attention.finish(running, each);
        let means = attention.means(&y, &dy, each);
        let mut dq = vec![0.0; y.len()];
        for block in blocks() {
            let mut dkv = vec![0.0; block.numbers.len()];
            attention.gradients((q, block), &dy, (&log_sums, &means), (&mut dq, &mut dkv));
        }
        let flops = (profile::products() - before).flops as f64;
        Ok([flops, begun.elapsed().as_secs_f64()])
    })?;
    let column = |i: usize| figures.iter().map(|both| both[i]).collect();
    Ok(Work {
        slicing,
        load: load.clone(),
        flops: column(0),
        seconds: column(1),
    })
}

/// A row for each: every rank's part of the mean work, and the slowest one's.
pub fn draw(screen: &Screen, all: &[Work]) -> String {
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
        std::iter::once(work.name().to_string())
            .chain(work.flops.iter().map(cell))
            .chain([seconds])
            .collect::<Vec<String>>()
    };
    let name = |rank: usize| if bars { format!("rank {rank}") } else { rank.to_string() };
    let mut heads = vec![if bars { "work" } else { "work, rank" }.to_string()];
    heads.extend((0..ranks).map(name).chain(["slowest".to_string()]));
    let words = format!(
        "FLOPs beside the mean. One document of {} tokens: (2c-1)/c = {} at most.",
        thousands(all[0].load.length as u64),
        significant((2.0 * ranks as f64 - 1.0) / ranks as f64, 3),
    );
    explained(screen, &heads, all.iter().map(row), &words)
}
