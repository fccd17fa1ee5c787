//! Interactive figures: their HTML for a notebook, and the library's numbers, to which `book/browse.py` holds the scripts.

use super::figures::{figure, ring};
use crate::comm::Link;
use crate::comm::algorithms::{Collective, Task};
use crate::error::BadInput;
use crate::plan::{BytesEach, Network, formula, simulate, zero_memory};
use crate::show::{Picture, bytes_binary, bytes_decimal, seconds};
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The interactive figures and their scripts. The book's pages link the same files.
const SCRIPTS: [(&str, &str); 3] = [
    ("cost", include_str!("../../book/figures/cost.js")),
    ("stages", include_str!("../../book/figures/stages.js")),
    ("ring", include_str!("../../book/figures/ring.js")),
];

/// An interactive figure for a notebook: "cost", "stages" or "ring". Its static picture stays if scripts do not run.
pub fn live(name: &str) -> Result<Picture, BadInput> {
    let svg = figure(name, None)?;
    let Some((_, script)) = SCRIPTS.into_iter().find(|figure| figure.0 == name) else {
        let help = format!("give one of these: {}", SCRIPTS.map(|figure| figure.0).join(", "));
        return Err(BadInput::new(format!("the figure {name:?} is not interactive"), help));
    };
    let (style, shared) =
        (include_str!("../../book/figures/figures.css"), include_str!("../../book/figures/shared.js"));
    Ok(Picture(format!(
        "<figure data-figure=\"{name}\">\n{svg}\n</figure>\n<style>\n{style}</style>\n<script>\n{shared}{script}</script>"
    )))
}

/// The library's numbers behind the interactive figures, on a grid of what a reader can choose.
pub fn numbers() -> Result<Value> {
    let (mut cost, mut stages) = (Vec::new(), Vec::new());
    for link in Network::presets().map(|network| network.between) {
        // Each message is busy for its latency, too, as on a network card.
        let network = Network { pipelined: false, ..Network::uniform(link) };
        let Link { latency, bandwidth } = link;
        for ranks in [2usize, 3, 4, 5, 7, 8, 12, 64, 96, 768, 4096] {
            // All chunks have the same length.
            let least = ranks * ranks.next_power_of_two();
            for len in [least, 100 * least] {
                for &algorithm in Collective::AllReduce.algorithms() {
                    let task = Task::new(Collective::AllReduce, algorithm, ranks, len, 4, 0)?;
                    let (took, size) = (simulate(&task, 4, &network), 4 * len);
                    let rounds = formula(&task, 4).context("every all-reduce has a formula")?.rounds;
                    cost.push(json!({
                        "algorithm": algorithm.name(), "ranks": ranks, "size": size, "latency": latency,
                        "bandwidth": bandwidth, "rounds": rounds, "seconds": took,
                        "words": [seconds(took), bytes_binary(size as f64)],
                    }));
                }
            }
        }
    }
    for stage in 0..4 {
        for (precision, each) in [("f32", BytesEach::F32), ("mixed", BytesEach::MIXED)] {
            for parameters in [1, 100_000_001, 7_500_000_000, 1_000_000_000_000] {
                for ranks in [1, 2, 3, 64, 1000] {
                    let bytes = zero_memory(stage, parameters, ranks, each);
                    stages.push(json!({
                        "stage": stage, "precision": precision, "parameters": parameters, "ranks": ranks,
                        "bytes": bytes, "words": bytes.map(|bytes| bytes_decimal(bytes as f64)),
                    }));
                }
            }
        }
    }
    let rings = (2..=8).map(|ranks| {
        let (before, rounds) = ring(ranks);
        let rounds = rounds.into_iter().map(|round| json!({ "sent": round.sent, "held": round.held }));
        std::iter::once(json!({ "sent": [], "held": before })).chain(rounds).collect::<Vec<_>>()
    });
    Ok(json!({ "cost": cost, "stages": stages, "ring": rings.collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_figure_has_a_picture_that_stays() {
        for (name, _) in SCRIPTS {
            let Ok(Picture(html)) = live(name) else {
                assert!(name == "cost" && !cfg!(feature = "figures"), "{name}");
                continue;
            };
            let places =
                ["<svg ", "</svg>", "<script>", &format!("shardlab.live(\"{name}\"")].map(|part| html.find(part));
            assert!(places.is_sorted() && places[0].is_some(), "{name}: {places:?}");
        }
        assert!(live("block").is_err() && live("nothing").is_err());
    }
}
