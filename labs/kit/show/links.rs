//! Nodes, their ranks and network cards, and the links between them.

use super::screen::Screen;
use super::svg::{WIDTH, frame, picture, rank_colour, text};

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
        let (line, double) = if screen.ascii {
            ("|", "=")
        } else {
            ("│", "═")
        };
        let join = format!(" {double}{double} ");
        let node = |node: usize| {
            let ranks: Vec<String> = self
                .ranks(node)
                .map(|rank| screen.rank(rank, format!("rank {rank}")))
                .collect();
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
        let mut body = String::new();
        for node in 0..2 {
            let left = node as f64 * (WIDTH - NODE);
            body += &frame((left + 1.0, 2.0), (NODE - 2.0, 150.0), "currentColor", 1.0);
            body += &text(left + NODE / 2.0, 20.0, "middle", &format!("node {node}"));
            let width = (NODE - 20.0) / self.ranks as f64;
            for (i, rank) in self.ranks(node).enumerate() {
                let x = left + 10.0 + width * i as f64;
                if i > 0 {
                    body += &line((x - 4.0, 52.0), (x + 4.0, 52.0), 8.0);
                }
                body += &line((x + width / 2.0, 72.0), (x + width / 2.0, 106.0), 2.0);
                body += &frame((x + 4.0, 34.0), (width - 8.0, 36.0), rank_colour(rank), 3.0);
                body += &text(x + width / 2.0, 57.0, "middle", &format!("rank {rank}"));
            }
            let width = (NODE - 20.0) / self.cards as f64;
            for card in 0..self.cards {
                let x = left + 10.0 + width * card as f64;
                body += &frame((x + 4.0, 106.0), (width - 8.0, 30.0), "currentColor", 1.0);
                body += &text(x + width / 2.0, 126.0, "middle", &format!("card {card}"));
            }
        }
        for card in 0..self.cards {
            let y = 112.0 + 18.0 * card as f64 / (self.cards.max(2) - 1) as f64;
            body += &line((NODE - 14.0, y), (WIDTH - NODE + 14.0, y), 2.0);
        }
        body += &text(
            WIDTH / 2.0,
            176.0,
            "middle",
            &format!("thick: within a node, {}", self.within),
        );
        body += &text(
            WIDTH / 2.0,
            196.0,
            "middle",
            &format!("thin: between nodes, {}", self.between),
        );
        picture(title, 206.0, &body)
    }
}

fn line(from: (f64, f64), to: (f64, f64), width: f64) -> String {
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.5\" \
         stroke-width=\"{width}\"/>\n",
        from.0, from.1, to.0, to.1
    )
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
            links.render(&Screen {
                ascii: true,
                ..Screen::plain()
            }),
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
