//! Nodes as boxes, with the ranks on each.

use super::screen::Screen;
use super::svg::{WIDTH, frame, picture, rank_colour, text};
use super::text::{columns, pad_right};

/// Nodes by name, each with its number of ranks; ranks are numbered from the first node on.
#[derive(Clone, Debug)]
pub struct Nodes(pub Vec<(String, usize)>);

impl Nodes {
    /// One line per node.
    pub fn render(&self, screen: &Screen) -> String {
        let name = self
            .0
            .iter()
            .map(|node| columns(&node.0))
            .max()
            .unwrap_or(0);
        let lines = self
            .0
            .iter()
            .zip(self.first_ranks())
            .map(|((node, ranks), first)| {
                let ranks =
                    (first..first + ranks).map(|rank| screen.rank(rank, format!("rank {rank}")));
                let ranks = ranks.collect::<Vec<_>>().join(screen.separator());
                format!(
                    "  {}  {}",
                    pad_right(node, name),
                    screen.wrap(&ranks, name + 4).trim_start()
                )
            });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// One box per node, as an inline SVG.
    pub fn svg(&self, title: &str) -> String {
        const ROW: f64 = 64.0;
        let mut body = String::new();
        for (i, ((node, ranks), first)) in self.0.iter().zip(self.first_ranks()).enumerate() {
            let y = ROW * i as f64;
            body += &frame(
                (1.0, y + 2.0),
                (WIDTH - 2.0, ROW - 8.0),
                "currentColor",
                1.0,
            );
            body += &text(12.0, y + 34.0, "start", node);
            let width = (WIDTH - 90.0) / (*ranks).max(1) as f64;
            for local in 0..*ranks {
                let rank = first + local;
                let x = 80.0 + width * local as f64;
                body += &frame(
                    (x + 3.0, y + 10.0),
                    (width - 6.0, 40.0),
                    rank_colour(rank),
                    3.0,
                );
                body += &text(x + width / 2.0, y + 27.0, "middle", &format!("rank {rank}"));
                body += &text(
                    x + width / 2.0,
                    y + 44.0,
                    "middle",
                    &format!("local {local}"),
                );
            }
        }
        picture(title, ROW * self.0.len() as f64, &body)
    }

    fn first_ranks(&self) -> impl Iterator<Item = usize> {
        self.0.iter().scan(0, |next, node| {
            let first = *next;
            *next += node.1;
            Some(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_go_on_from_node_to_node() {
        let nodes = Nodes(vec![("a".into(), 2), ("node2".into(), 3)]);
        let expected = "  a      rank 0 · rank 1\n  node2  rank 2 · rank 3 · rank 4";
        assert_eq!(nodes.render(&Screen::plain()), expected);
        let svg = nodes.svg("five ranks");
        assert_eq!(svg.matches("<rect").count(), 2 + 5);
        assert!(svg.contains(">rank 4<") && svg.matches(">local 0<").count() == 2);
    }
}
