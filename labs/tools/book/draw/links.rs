//! Nodes, their ranks and network cards, and the links between them.

use kit::show::svg::{Anchor, Page, framed, rank_colour};

/// Two nodes of a cluster, alike.
#[derive(Clone, Debug)]
pub struct Links {
    /// Ranks on each node.
    pub ranks: usize,
    /// Network cards of each node.
    pub cards: usize,
    /// The link between ranks of a node, in words.
    pub within: String,
    /// The link between cards, in words.
    pub between: String,
}

impl Links {
    /// The ranks and the cards of node `node`.
    fn ranks(&self, node: usize) -> impl Iterator<Item = usize> {
        node * self.ranks..(node + 1) * self.ranks
    }

    /// The nodes side by side, as an inline SVG, with the network below: thick lines are fast, thin
    /// ones slow.
    pub fn svg(&self, title: &str) -> String {
        const WIDTH: f64 = 600.0;
        const NODE: f64 = 290.0;
        const RANKS: f64 = 48.0;
        const CARDS: f64 = 116.0;
        const NETWORK: f64 = 180.0;
        let mut page = Page::default();
        for node in 0..2 {
            let left = node as f64 * (WIDTH - NODE);
            let corner = (left + 1.0, 2.0);
            page.rect(corner, (NODE - 2.0, 156.0), framed("currentColor", 1.0));
            let middle = left + NODE / 2.0;
            let words = format!("node {node}: {} within", self.within);
            page.text((middle, 24.0), Anchor::Middle, words);
            let width = (NODE - 20.0) / self.ranks as f64;
            for (i, rank) in self.ranks(node).enumerate() {
                let x = left + 10.0 + width * i as f64;
                let middle = x + width / 2.0;
                if i > 0 {
                    let y = RANKS + 18.0;
                    page.line((x - 4.0, y), (x + 4.0, y), stroke(8.0));
                }
                page.line((middle, RANKS + 38.0), (middle, CARDS), stroke(2.0));
                let size = (width - 8.0, 36.0);
                page.rect((x + 4.0, RANKS), size, framed(rank_colour(rank), 3.0));
                let words = format!("rank {rank}");
                page.text((middle, RANKS + 23.0), Anchor::Middle, words);
            }
            let width = (NODE - 20.0) / self.cards as f64;
            for card in 0..self.cards {
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
        let words = format!("network between nodes: {}", self.between);
        page.text((WIDTH / 2.0, NETWORK + 20.0), Anchor::Middle, words);
        page.finish_wide(title, (WIDTH, NETWORK + 32.0), 13.0)
    }
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
        let links = Links {
            ranks: 2,
            cards: 2,
            within: "100 GB/s".into(),
            between: "25 GB/s".into(),
        };
        let svg = links.svg("two nodes");
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches(">card 1<").count()),
            (2 + 4 + 4 + 1, 2)
        );
        assert!(svg.contains("network between nodes: 25 GB/s"), "{svg}");
    }
}
