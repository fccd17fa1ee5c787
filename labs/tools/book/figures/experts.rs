//! Expert parallelism: the copies of their tokens that four ranks send to eight experts.

use anyhow::{Context, Result};
use kit::show::svg::{Anchor, Page, Point, WIDTH, filled, rank_colour};
use shardlab::data::Corpus;
use shardlab::model::{Auxiliary, Balance, Gpt, Pass};
use shardlab::plan::Experts;
use shardlab::train::Config;

const RANKS: usize = 4;
const EXPERTS: usize = 8;
const CHOSEN: usize = 2;

/// Units of height for a copy.
const UNIT: f64 = 0.7;

/// From each rank the copies for each expert, as the first router of an untrained model chooses.
fn copies() -> Result<Vec<Vec<u64>>> {
    let corpus = Corpus::embedded()?;
    let mut config = Config::small(RANKS, &corpus);
    let experts = Experts {
        count: EXPERTS,
        top_k: CHOSEN,
        normalized: true,
        ..Experts::default()
    };
    config.shape.experts = Some(Experts { ffn: 2 * config.shape.embd, ..experts });
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    let of_rank = |rank: usize| {
        let balance = Balance::new(Auxiliary::default());
        let pass = Pass { balance: Some(balance.clone()), ..Pass::evaluate() };
        gpt.loss(&config.sampler(rank).batch(&corpus.train, 0, 0), &pass)?;
        let first = balance.loads().into_values().next();
        Ok(first.context("a model with experts")?.copies)
    };
    (0..RANKS).map(of_rank).collect()
}

/// The ways of all copies: a ribbon has its sender's colour and is as wide as there are copies.
pub(super) fn picture() -> Result<String> {
    const TOP: f64 = 30.0;
    const BAR: f64 = 16.0;
    const LEFT: f64 = 52.0;
    const RIGHT: f64 = 300.0;
    let copies = copies()?;
    let each: u64 = copies[0].iter().sum();
    let mean = each as f64;
    let mut page = Page::default();
    page.text((0.0, 14.0), Anchor::Start, format!("{each} copies of each rank's tokens"));
    page.text((RIGHT, 14.0), Anchor::Start, "for each expert");
    page.text((WIDTH, 14.0), Anchor::End, "of the mean");

    let mut places = Vec::new(); // where the next ribbon of an expert ends
    let mut y = TOP;
    for expert in 0..EXPERTS {
        let rank = expert * RANKS / EXPERTS;
        let arrive = |expert: usize| copies.iter().map(|of_rank| of_rank[expert]).sum::<u64>();
        let height = UNIT * arrive(expert) as f64;
        page.rect((RIGHT, y), (BAR, height), filled(rank_colour(rank)));
        let words = format!("expert {expert}: {}", arrive(expert));
        page.text((RIGHT + BAR + 8.0, y + height / 2.0 + 4.5), Anchor::Start, words);
        places.push(y);
        y += height + 4.0;
        let is_last = (expert + 1) % (EXPERTS / RANKS) == 0;
        if is_last {
            let all: u64 = (rank * EXPERTS / RANKS..=expert).map(arrive).sum();
            let middle = (places[rank * EXPERTS / RANKS] + y - 4.0) / 2.0 + 4.5;
            let words = format!("{:.0}%", 100.0 * all as f64 / mean);
            page.text((WIDTH, middle), Anchor::End, words);
            y += 12.0;
        }
    }
    let bottom = y - 16.0;

    let gap = (bottom - TOP - UNIT * mean * RANKS as f64) / (RANKS - 1) as f64;
    for (rank, of_rank) in copies.iter().enumerate() {
        let top = TOP + (UNIT * mean + gap) * rank as f64;
        page.rect((LEFT, top), (BAR, UNIT * mean), filled(rank_colour(rank)));
        let middle = top + UNIT * mean / 2.0 + 4.5;
        page.text((LEFT - 8.0, middle), Anchor::End, format!("rank {rank}"));
        let mut from = top;
        for (&copies, to) in of_rank.iter().zip(&mut places) {
            let high = UNIT * copies as f64;
            page.add(ribbon((LEFT + BAR, from), (RIGHT, *to), high, rank_colour(rank)));
            from += high;
            *to += high;
        }
    }
    let title = "Copies of four ranks' tokens on their way to eight experts, of which each rank holds two: the ranks get unequal numbers";
    Ok(page.finish(title, bottom + 4.0))
}

/// A band of this height between two places.
fn ribbon(from: Point, to: Point, high: f64, colour: &str) -> String {
    let middle = (from.0 + to.0) / 2.0;
    let ((x, y), (end, low)) = (from, to);
    format!(
        "<path d=\"M {x:.1} {y:.1} C {middle:.1} {y:.1} {middle:.1} {low:.1} {end:.1} {low:.1} \
         V {:.1} C {middle:.1} {:.1} {middle:.1} {:.1} {x:.1} {:.1} Z\" \
         fill=\"{colour}\" fill-opacity=\"0.35\"/>",
        low + high,
        low + high,
        y + high,
        y + high
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_sends_its_tokens_copies() {
        let copies = copies().unwrap();
        let tokens = Config::default().batch * Config::default().shape.block;
        for of_rank in &copies {
            assert_eq!(of_rank.iter().sum::<u64>(), (CHOSEN * tokens) as u64);
        }
        assert_eq!(picture().unwrap().matches("<path").count(), RANKS * EXPERTS);
    }
}
