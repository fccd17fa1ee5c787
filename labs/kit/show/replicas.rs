//! A mesh of ranks: a row for each replica, a column for each stage, and in every cell the ranks that share its layers.

use super::screen::Screen;
use super::svg::{WIDTH, frame, picture, rank_colour, text};
use super::text::{columns, pad_right};

/// A mesh before it is drawn.
#[derive(Clone, Debug)]
pub struct Replicas {
    /// The ranks of each replica, stage by stage.
    pub ranks: Vec<Vec<Vec<usize>>>,
    /// The layers of each stage, in words.
    pub layers: Vec<String>,
}

/// The meaning of each sign of the text.
const MEANING: [&str; 3] = [
    "tensor: in every layer",
    "pipeline: between stages",
    "data: once per step",
];

impl Replicas {
    /// The mesh as text.
    pub fn render(&self, screen: &Screen) -> String {
        let [share, next, same] = if screen.ascii {
            ["==", "->", ":"]
        } else {
            ["══", "→", "┆"]
        };
        let name = |rank: usize| screen.rank(rank, format!("rank {rank}"));
        let cell = |ranks: &Vec<usize>| {
            ranks
                .iter()
                .map(|&rank| name(rank))
                .collect::<Vec<_>>()
                .join(&format!(" {share} "))
        };
        let all = || self.ranks.iter().flatten();
        let wide = all()
            .map(|ranks| columns(&cell(ranks)))
            .chain(self.layers.iter().map(|words| columns(words)))
            .max();
        let wide = wide.unwrap_or(0);
        let row = |label: &str, cells: Vec<String>, between: &str| {
            let cells: Vec<String> = cells.iter().map(|cell| pad_right(cell, wide)).collect();
            format!("  {}{}", pad_right(label, 11), cells.join(between))
                .trim_end()
                .to_string()
        };
        let gap = " ".repeat(2 + columns(next) + 2);
        let mut lines = vec![row("", self.layers.clone(), &gap)];
        for (replica, stages) in self.ranks.iter().enumerate() {
            if replica > 0 {
                let below = |ranks: &Vec<usize>| {
                    ranks
                        .iter()
                        .map(|_| format!("  {same}"))
                        .collect::<Vec<_>>()
                        .join("       ")
                };
                lines.push(row("", stages.iter().map(below).collect(), &gap));
            }
            let label = format!("replica {replica}");
            lines.push(row(
                &label,
                stages.iter().map(cell).collect(),
                &format!("  {next}  "),
            ));
        }
        if let Some([first, second, ..]) = self.ranks.first().map(Vec::as_slice) {
            let pair =
                |(&from, &to): (&usize, &usize)| format!("{} {next} {}", name(from), name(to));
            let pairs: Vec<String> = first.iter().zip(second).map(pair).collect();
            lines.push(format!("  The arrow stands for {}.", pairs.join(", ")));
        }
        let signs = [share, next, same];
        let legend: Vec<String> = signs
            .iter()
            .zip(MEANING)
            .map(|(sign, meaning)| format!("{sign} {meaning}"))
            .collect();
        lines.push(format!("  {}", legend.join("   ")));
        lines.join("\n")
    }

    /// The mesh as an inline SVG: thick lines inside a cell, an arrow from each rank to the one in its place of the next stage,
    /// dotted lines between replicas.
    pub fn svg(&self, title: &str) -> String {
        const LEFT: f64 = 66.0;
        const ROW: f64 = 84.0;
        const BOX: f64 = 34.0;
        const TOP: f64 = 52.0;
        let stages = self.layers.len().max(1) as f64;
        let column = (WIDTH - LEFT) / stages;
        let mut body = String::new();
        for (stage, words) in self.layers.iter().enumerate() {
            body += &text(
                LEFT + column * (stage as f64 + 0.5) - 12.0,
                16.0,
                "middle",
                words,
            );
        }
        for (replica, of_replica) in self.ranks.iter().enumerate() {
            let y = TOP + ROW * replica as f64;
            body += &text(
                0.0,
                y + BOX / 2.0 + 5.0,
                "start",
                &format!("replica {replica}"),
            );
            for (stage, ranks) in of_replica.iter().enumerate() {
                let left = LEFT + column * stage as f64;
                let width = (column - 24.0) / ranks.len().max(1) as f64;
                for (i, &rank) in ranks.iter().enumerate() {
                    let x = left + width * i as f64;
                    let middle = y + BOX / 2.0;
                    if i > 0 {
                        body += &line((x - 7.0, middle), (x + 7.0, middle), "stroke-width=\"7\"");
                    }
                    if replica > 0 {
                        let x = x + width / 2.0;
                        let dotted = "stroke-width=\"2\" stroke-dasharray=\"2 4\"";
                        body += &line((x, y - ROW + BOX + 2.0), (x, y - 2.0), dotted);
                    }
                    body += &frame((x + 7.0, y), (width - 14.0, BOX), rank_colour(rank), 3.0);
                    body += &text(
                        x + width / 2.0,
                        middle + 5.0,
                        "middle",
                        &format!("rank {rank}"),
                    );
                }
                if stage > 0 {
                    for (i, (&from, &to)) in of_replica[stage - 1].iter().zip(ranks).enumerate() {
                        let x = left + width * (i as f64 + 0.5);
                        body += &arrow(
                            (x - column + 8.0, y - 3.0),
                            x - 8.0,
                            &format!("rank {from} to rank {to}"),
                        );
                    }
                }
            }
        }
        let height = TOP + ROW * self.ranks.len() as f64 - 24.0;
        body += &text(
            0.0,
            height,
            "start",
            "thick: tensor ranks; arrow: pipeline ranks; dotted: data ranks",
        );
        picture(title, height + 10.0, &body)
    }
}

fn line(from: (f64, f64), to: (f64, f64), stroke: &str) -> String {
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.6\" {stroke}/>\n",
        from.0, from.1, to.0, to.1
    )
}

/// A bow over what stands between `from` and the place at `to_x` beside it, with its meaning for those who do not see it.
fn arrow(from: (f64, f64), to_x: f64, title: &str) -> String {
    let (x, y) = from;
    let high = y - 32.0;
    format!(
        "<path d=\"M{x:.1} {y:.1} C{:.1} {high:.1} {:.1} {high:.1} {to_x:.1} {y:.1} m-9 -3 l9 3 l0 -10\" fill=\"none\" \
         stroke=\"currentColor\" stroke-opacity=\"0.6\" stroke-width=\"2\"><title>{title}</title></path>\n",
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
        let expected = "
             layers 0-1            layers 2-3
  replica 0  rank 0 == rank 1  ->  rank 4 == rank 5
               :         :           :         :
  replica 1  rank 2 == rank 3  ->  rank 6 == rank 7
  The arrow stands for rank 0 -> rank 4, rank 1 -> rank 5.
  == tensor: in every layer   -> pipeline: between stages   : data: once per step";
        assert_eq!(
            mesh.render(&Screen {
                ascii: true,
                ..Screen::plain()
            }),
            expected.trim_start_matches('\n')
        );
        let svg = mesh.svg("eight ranks");
        // Four thick lines and four dotted ones.
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches("<line").count()),
            (8, 4 + 4)
        );
        assert!(svg.contains(">rank 7<") && svg.contains(">layers 2-3<"));
        // An arrow leads from each rank to its partner in the next stage: the groups are [0 4], [1 5], [2 6] and [3 7].
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
            let numbers: Vec<f64> = numbers
                .split(' ')
                .filter_map(|number| number.parse().ok())
                .collect();
            vec![numbers[0], numbers[6]]
        };
        let place = |rank: usize| -> f64 {
            let line = svg
                .lines()
                .find(|line| line.contains(&format!(">rank {rank}<")))
                .unwrap();
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
