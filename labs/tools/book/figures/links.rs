//! Two nodes, their ranks and network cards, and the links between them.

use kit::show::svg::{Anchor, Page, framed, rank_colour};
use kit::show::{bytes_decimal, seconds};
use shardlab::comm::Link;
use shardlab::plan::Network;

/// Two nodes of Polaris side by side, with the simulator's numbers, and the network below: thick
/// lines are fast, thin ones slow.
pub(super) fn picture() -> String {
    const WIDTH: f64 = 600.0;
    const NODE: f64 = 290.0;
    const RANKS: f64 = 48.0;
    const CARDS: f64 = 116.0;
    const NETWORK: f64 = 180.0;
    let [_, network, ..] = Network::presets();
    let (ranks, cards) = (network.ranks_per_node, network.cards);
    let words =
        |link: Link| format!("{}/s, {}", bytes_decimal(link.bandwidth), seconds(link.latency));
    let mut page = Page::default();
    for node in 0..2 {
        let left = node as f64 * (WIDTH - NODE);
        let corner = (left + 1.0, 2.0);
        page.rect(corner, (NODE - 2.0, 156.0), framed("currentColor", 1.0));
        let middle = left + NODE / 2.0;
        let name = format!("node {node}: {} within", words(network.within));
        page.text((middle, 24.0), Anchor::Middle, name);
        let width = (NODE - 20.0) / ranks as f64;
        for (i, rank) in (node * ranks..(node + 1) * ranks).enumerate() {
            let x = left + 10.0 + width * i as f64;
            let middle = x + width / 2.0;
            if i > 0 {
                let y = RANKS + 18.0;
                page.line((x - 4.0, y), (x + 4.0, y), stroke(8.0));
            }
            page.line((middle, RANKS + 38.0), (middle, CARDS), stroke(2.0));
            let size = (width - 8.0, 36.0);
            page.rect((x + 4.0, RANKS), size, framed(rank_colour(rank), 3.0));
            page.text((middle, RANKS + 23.0), Anchor::Middle, format!("rank {rank}"));
        }
        let width = (NODE - 20.0) / cards as f64;
        for card in 0..cards {
            let x = left + 10.0 + width * card as f64;
            let middle = x + width / 2.0;
            let size = (width - 8.0, 30.0);
            page.rect((x + 4.0, CARDS), size, framed("currentColor", 1.0));
            page.text((middle, CARDS + 20.0), Anchor::Middle, format!("card {card}"));
            page.line((middle, CARDS + 30.0), (middle, NETWORK), stroke(2.0));
        }
    }
    let size = (WIDTH - 2.0, 30.0);
    page.rect((1.0, NETWORK), size, framed("currentColor", 1.0));
    let between = words(network.between);
    let words = format!("network between nodes: {between} for each card");
    page.text((WIDTH / 2.0, NETWORK + 20.0), Anchor::Middle, words);
    let title =
        "Two nodes of Polaris: fast links within a node, slow ones between the nodes' cards";
    page.finish_wide(title, (WIDTH, NETWORK + 32.0), 13.0)
}

/// A line of this width.
fn stroke(width: f64) -> String {
    format!("stroke-opacity=\"0.5\" stroke-width=\"{width}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_and_their_links() {
        let svg = picture();
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches(">card 1<").count()),
            (2 + 8 + 4 + 1, 2)
        );
        assert!(svg.contains("network between nodes: "), "{svg}");
    }
}
