//! Nodes, their ranks and network cards, and the links between them.

use super::screen::Screen;
use super::svg::{Anchor, Page, WIDTH, framed, rank_colour};

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

    /// Both nodes one below the other, with the slow links between them.
    pub fn render(&self, screen: &Screen) -> String {
        let line = screen.either("│", "|");
        let double = screen.either("═", "=");
        let join = format!(" {double}{double} ");
        let node = |node: usize| {
            let ranks: Vec<String> = self.ranks(node).map(|rank| screen.name(rank)).collect();
            format!("  node {node}  {}", ranks.join(&join))
        };
        let cards: Vec<String> = (0..self.cards).map(|card| format!("card {card}")).collect();
        let cards = format!("          {}", cards.join("   "));
        let links = vec![line; self.cards].join("        ");
        let words = format!(
            "  {double}{double} within a node: {}\n  {line}  between nodes: {}",
            self.within, self.between
        );
        format!(
            "{}\n{cards}\n            {links}\n{cards}\n{}\n\n{words}",
            node(0),
            node(1)
        )
    }

    /// The nodes side by side, as an inline SVG: thick lines are fast, thin ones slow.
    pub fn svg(&self, title: &str) -> String {
        const NODE: f64 = 222.0;
        let mut page = Page::default();
        for node in 0..2 {
            let left = node as f64 * (WIDTH - NODE);
            page.rect(
                (left + 1.0, 2.0),
                (NODE - 2.0, 150.0),
                framed("currentColor", 1.0),
            );
            page.text(
                (left + NODE / 2.0, 20.0),
                Anchor::Middle,
                format!("node {node}"),
            );
            let width = (NODE - 20.0) / self.ranks as f64;
            for (i, rank) in self.ranks(node).enumerate() {
                let x = left + 10.0 + width * i as f64;
                let middle = x + width / 2.0;
                if i > 0 {
                    page.line((x - 4.0, 52.0), (x + 4.0, 52.0), stroke(8.0));
                }
                page.line((middle, 72.0), (middle, 106.0), stroke(2.0));
                page.rect(
                    (x + 4.0, 34.0),
                    (width - 8.0, 36.0),
                    framed(rank_colour(rank), 3.0),
                );
                page.text((middle, 57.0), Anchor::Middle, format!("rank {rank}"));
            }
            let width = (NODE - 20.0) / self.cards as f64;
            for card in 0..self.cards {
                let x = left + 10.0 + width * card as f64;
                page.rect(
                    (x + 4.0, 106.0),
                    (width - 8.0, 30.0),
                    framed("currentColor", 1.0),
                );
                page.text(
                    (x + width / 2.0, 126.0),
                    Anchor::Middle,
                    format!("card {card}"),
                );
            }
        }
        for card in 0..self.cards {
            let y = 112.0 + 18.0 * card as f64 / (self.cards.max(2) - 1) as f64;
            page.line((NODE - 14.0, y), (WIDTH - NODE + 14.0, y), stroke(2.0));
        }
        let within = format!("thick: within a node, {}", self.within);
        let between = format!("thin: between nodes, {}", self.between);
        page.text((WIDTH / 2.0, 176.0), Anchor::Middle, within);
        page.text((WIDTH / 2.0, 196.0), Anchor::Middle, between);
        page.finish(title, 206.0)
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
        let expected = "
  node 0  rank 0 == rank 1
          card 0   card 1
            |        |
          card 0   card 1
  node 1  rank 2 == rank 3

  == within a node: 100 GB/s
  |  between nodes: 25 GB/s";
        assert_eq!(
            links.render(&Screen::plain_ascii()),
            expected.trim_start_matches('\n')
        );
        let svg = links.svg("two nodes");
        assert_eq!(
            (
                svg.matches("<rect").count(),
                svg.matches(">card 1<").count()
            ),
            (2 + 4 + 4, 2)
        );
        assert!(svg.contains("thin: between nodes, 25 GB/s"), "{svg}");
    }
}
