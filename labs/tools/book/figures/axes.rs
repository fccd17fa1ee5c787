//! lab07's mesh: a row for each replica, a column for each stage, and in every cell the ranks that
//! share its layers.

use kit::show::svg::{Anchor, Page, WIDTH, framed, rank_colour};
use shardlab::mesh::{Coordinates, Layout, Order};

/// The mesh: thick lines inside a cell, an arrow from each rank to the one in its place of the next
/// stage, dotted lines between replicas.
pub(super) fn picture() -> String {
    const LEFT: f64 = 66.0;
    const ROW: f64 = 84.0;
    const BOX: f64 = 34.0;
    const TOP: f64 = 52.0;
    const COLUMN: f64 = (WIDTH - LEFT) / 2.0;
    let layout = Layout {
        sizes: Coordinates { data: 2, pipeline: 2, tensor: 2 },
        order: Order::default(),
    };
    let cell =
        |data, pipeline| [0, 1].map(|tensor| layout.rank(Coordinates { data, pipeline, tensor }));
    let mut page = Page::default();
    for (stage, words) in ["stage 0: layers 0-1", "stage 1: layers 2-3"].iter().enumerate() {
        let middle = LEFT + COLUMN * (stage as f64 + 0.5) - 12.0;
        page.text((middle, 16.0), Anchor::Middle, words);
    }
    for replica in 0..2 {
        let y = TOP + ROW * replica as f64;
        let middle = y + BOX / 2.0;
        page.text((0.0, middle + 5.0), Anchor::Start, format!("replica {replica}"));
        for stage in 0..2 {
            let ranks = cell(replica, stage);
            let left = LEFT + COLUMN * stage as f64;
            let width = (COLUMN - 24.0) / ranks.len() as f64;
            for (i, rank) in ranks.into_iter().enumerate() {
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
                for (i, (from, to)) in cell(replica, stage - 1).iter().zip(ranks).enumerate() {
                    let x = left + width * (i as f64 + 0.5);
                    let start = (x - COLUMN + 8.0, y - 3.0);
                    page.add(arrow(start, x - 8.0, &format!("rank {from} to rank {to}")));
                }
            }
        }
    }
    let bottom = TOP + ROW * 2.0 - 24.0;
    let legend = "thick: tensor ranks; arrow: pipeline ranks; dotted: data ranks";
    page.text((0.0, bottom), Anchor::Start, legend);
    page.finish("Eight ranks on three axes, two on each", bottom + 10.0)
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
        let svg = picture();
        // Four thick lines and four dotted ones.
        assert_eq!((svg.matches("<rect").count(), svg.matches("<line").count()), (8, 4 + 4));
        assert!(svg.contains(">rank 7<") && svg.contains(">stage 1: layers 2-3<"));
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
