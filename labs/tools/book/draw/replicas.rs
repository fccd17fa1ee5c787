//! A mesh of ranks: a row for each replica, a column for each stage, and in every cell the ranks
//! that share its layers.

use kit::show::svg::{Anchor, Page, WIDTH, framed, rank_colour};

/// A mesh before it is drawn.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The ranks of each replica, stage by stage.
    pub ranks: Vec<Vec<Vec<usize>>>,
    /// The layers of each stage, in words.
    pub layers: Vec<String>,
}

impl Replicas {
    /// The mesh as an inline SVG: thick lines inside a cell, an arrow from each rank to the one in
    /// its place of the next stage, dotted lines between replicas.
    pub fn svg(&self, title: &str) -> String {
        const LEFT: f64 = 66.0;
        const ROW: f64 = 84.0;
        const BOX: f64 = 34.0;
        const TOP: f64 = 52.0;
        let stages = self.layers.len().max(1) as f64;
        let column = (WIDTH - LEFT) / stages;
        let mut page = Page::default();
        for (stage, words) in self.layers.iter().enumerate() {
            let middle = LEFT + column * (stage as f64 + 0.5) - 12.0;
            page.text((middle, 16.0), Anchor::Middle, words);
        }
        for (replica, of_replica) in self.ranks.iter().enumerate() {
            let y = TOP + ROW * replica as f64;
            let middle = y + BOX / 2.0;
            page.text((0.0, middle + 5.0), Anchor::Start, format!("replica {replica}"));
            for (stage, ranks) in of_replica.iter().enumerate() {
                let left = LEFT + column * stage as f64;
                let width = (column - 24.0) / ranks.len().max(1) as f64;
                for (i, &rank) in ranks.iter().enumerate() {
                    let x = left + width * i as f64;
                    let centre = x + width / 2.0;
                    if i > 0 {
                        let thick = format!("{FAINT} stroke-width=\"7\"");
                        page.line((x - 7.0, middle), (x + 7.0, middle), thick);
                    }
                    if replica > 0 {
                        let dotted = format!("{FAINT} stroke-width=\"2\" stroke-dasharray=\"2 4\"");
                        page.line((centre, y - ROW + BOX + 2.0), (centre, y - 2.0), dotted);
                    }
                    page.rect((x + 7.0, y), (width - 14.0, BOX), framed(rank_colour(rank), 3.0));
                    page.text((centre, middle + 5.0), Anchor::Middle, format!("rank {rank}"));
                }
                if stage > 0 {
                    for (i, (from, to)) in of_replica[stage - 1].iter().zip(ranks).enumerate() {
                        let x = left + width * (i as f64 + 0.5);
                        let start = (x - column + 8.0, y - 3.0);
                        page.add(arrow(start, x - 8.0, &format!("rank {from} to rank {to}")));
                    }
                }
            }
        }
        let bottom = TOP + ROW * self.ranks.len() as f64 - 24.0;
        let legend = "thick: tensor ranks; arrow: pipeline ranks; dotted: data ranks";
        page.text((0.0, bottom), Anchor::Start, legend);
        page.finish(title, bottom + 10.0)
    }
}

/// What links ranks is drawn under their names.
const FAINT: &str = "stroke-opacity=\"0.6\"";

/// A bow over what is between `from` and the place at `to_x` beside it, with its meaning for those
/// who do not see it.
fn arrow(from: (f64, f64), to_x: f64, title: &str) -> String {
    let (x, y) = from;
    let high = y - 32.0;
    format!(
        "<path d=\"M{x:.1} {y:.1} C{:.1} {high:.1} {:.1} {high:.1} {to_x:.1} {y:.1} m-9 -3 l9 3 l0 -10\" fill=\"none\" \
         stroke=\"currentColor\" {FAINT} stroke-width=\"2\"><title>{title}</title></path>",
        x + 30.0,
        to_x - 30.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_has_a_row_per_replica_and_a_column_per_stage() {
        let ranks = vec![vec![vec![0, 1], vec![4, 5]], vec![vec![2, 3], vec![6, 7]]];
        let layers = vec!["layers 0-1".to_string(), "layers 2-3".to_string()];
        let mesh = Replicas { ranks, layers };
        let svg = mesh.svg("eight ranks");
        // Four thick lines and four dotted ones.
        assert_eq!((svg.matches("<rect").count(), svg.matches("<line").count()), (8, 4 + 4));
        assert!(svg.contains(">rank 7<") && svg.contains(">layers 2-3<"));
        // An arrow leads from each rank to its partner in the next stage: the groups are [0 4], [1
        // 5], [2 6] and [3 7].
        let ends = |title: &str| -> Vec<f64> {
            let path = svg
                .lines()
                .find(|line| line.contains(&format!("<title>{title}<")))
                .unwrap_or_default();
            let numbers = path
                .split('"')
                .nth(1)
                .unwrap_or_default()
                .trim_start_matches('M')
                .replace('C', "");
            let numbers: Vec<f64> =
                numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
            vec![numbers[0], numbers[6]]
        };
        let place = |rank: usize| -> f64 {
            let line = svg.lines().find(|line| line.contains(&format!(">rank {rank}<"))).unwrap();
            line.split('"').nth(1).unwrap().parse().unwrap()
        };
        assert_eq!(svg.matches("<path").count(), 4);
        for (from, to) in [(0, 4), (1, 5), (2, 6), (3, 7)] {
            let [start, end] = ends(&format!("rank {from} to rank {to}"))[..] else {
                panic!("{from} to {to}")
            };
            assert!(
                (start - place(from)).abs() < 10.0 && (end - place(to)).abs() < 10.0,
                "rank {from} to rank {to}"
            );
        }
    }
}
