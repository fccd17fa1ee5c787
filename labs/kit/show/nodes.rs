//! Nodes as boxes, with the ranks on each.

use super::svg::{Anchor, Page, WIDTH, framed, rank_colour};

/// Nodes by name, each with its number of ranks; ranks are numbered from the first node on.
#[derive(Clone, Debug)]
pub struct Nodes(pub Vec<(String, usize)>);

impl Nodes {
    /// One box per node, as an inline SVG.
    pub fn svg(&self, title: &str) -> String {
        const ROW: f64 = 64.0;
        let mut page = Page::default();
        let mut first = 0;
        for (i, (node, ranks)) in self.0.iter().enumerate() {
            let y = ROW * i as f64;
            let size = (WIDTH - 2.0, ROW - 8.0);
            page.rect((1.0, y + 2.0), size, framed("currentColor", 1.0));
            page.text((12.0, y + 34.0), Anchor::Start, node);
            let width = (WIDTH - 90.0) / (*ranks).max(1) as f64;
            for local in 0..*ranks {
                let rank = first + local;
                let x = 80.0 + width * local as f64;
                let middle = x + width / 2.0;
                let frame = framed(rank_colour(rank), 3.0);
                page.rect((x + 3.0, y + 10.0), (width - 6.0, 40.0), frame);
                page.text((middle, y + 27.0), Anchor::Middle, format!("rank {rank}"));
                page.text((middle, y + 44.0), Anchor::Middle, format!("local {local}"));
            }
            first += ranks;
        }
        page.finish(title, ROW * self.0.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_go_on_from_node_to_node() {
        let nodes = Nodes(vec![("a".into(), 2), ("node2".into(), 3)]);
        let svg = nodes.svg("five ranks");
        assert_eq!(svg.matches("<rect").count(), 2 + 5);
        assert!(svg.contains(">rank 4<") && svg.matches(">local 0<").count() == 2);
    }
}
