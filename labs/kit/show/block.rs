//! The figure of a transformer block: what writes into the stream of activations, and how many parameters it has.

use super::screen::Screen;
use super::svg;

/// A block on a screen.
pub fn block(screen: &Screen) -> String {
    let lines = [
        "      ┌─ norm ─ attention, 4d² ─┐     ┌─ norm ─ MLP, 8d² ─┐",
        "  ────┴─────────────────────────⊕─────┴───────────────────⊕───→",
        "  the stream: d numbers for each position, to which both branches add",
    ];
    let plain = |c: char| match c {
        '─' => '-',
        '²' => '2',
        '⊕' | '┌' | '┐' | '┴' => '+',
        '→' => '>',
        c => c,
    };
    let ascii = |line: &str| {
        if screen.ascii {
            line.chars().map(plain).collect()
        } else {
            line.to_string()
        }
    };
    lines.map(ascii).join("\n")
}

/// A block as an inline SVG.
pub fn block_svg() -> String {
    const TOP: f64 = 30.0;
    const STREAM: f64 = 84.0;
    let line = |from: (f64, f64), to: (f64, f64)| {
        format!(
            "<line x1=\"{:.0}\" y1=\"{:.0}\" x2=\"{:.0}\" y2=\"{:.0}\" stroke=\"currentColor\" stroke-width=\"1.5\"/>\n",
            from.0, from.1, to.0, to.1
        )
    };
    let named = |x: f64, width: f64, name: &str, below: &str, rank: usize| {
        let colour = svg::rank_colour(rank);
        format!(
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"30\" rx=\"5\" fill=\"{colour}\" \
             fill-opacity=\"0.25\" stroke=\"{colour}\"/>\n",
            TOP - 15.0
        ) + &svg::text(x + width / 2.0, TOP + 5.0, "middle", name)
            + &svg::text(x + width / 2.0, TOP + 31.0, "middle", below)
    };
    let mut body = line((8.0, STREAM), (472.0, STREAM));
    for (start, name, parameters, rank) in
        [(30.0, "attention", "4 d²", 0), (258.0, "MLP", "8 d²", 1)]
    {
        body += &line((start, STREAM), (start, TOP));
        // The branch goes from box to box, so that it strikes no label through.
        for (from, to) in [(0.0, 14.0), (64.0, 80.0), (172.0, 190.0)] {
            body += &line((start + from, TOP), (start + to, TOP));
        }
        body += &line((start + 190.0, TOP), (start + 190.0, STREAM - 9.0));
        body += &named(start + 14.0, 50.0, "norm", "d", 4).replace("0.25", "0.15");
        body += &named(start + 80.0, 92.0, name, parameters, rank);
        body += &format!(
            "<circle cx=\"{:.0}\" cy=\"{STREAM:.0}\" r=\"9\" fill=\"none\" stroke=\"currentColor\"/>\n",
            start + 190.0
        );
        body += &svg::text(start + 190.0, STREAM + 5.0, "middle", "+");
    }
    body += &svg::text(
        240.0,
        STREAM + 28.0,
        "middle",
        "the stream: d numbers for each position, to which both add",
    );
    svg::picture(
        "A transformer block: attention and MLP add to the stream",
        STREAM + 38.0,
        &body,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No line goes through a box, where its label would be struck through.
    #[test]
    fn lines_end_at_the_boxes() {
        let svg = block_svg();
        let number = |tag: &str, name: &str| -> f64 {
            let rest = tag.split_once(&format!(" {name}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let boxes: Vec<[f64; 4]> = svg
            .split("<rect")
            .skip(1)
            .map(|tag| ["x", "y", "width", "height"].map(|name| number(tag, name)))
            .collect();
        let lines: Vec<[f64; 4]> = svg
            .split("<line")
            .skip(1)
            .map(|tag| ["x1", "x2", "y1", "y2"].map(|name| number(tag, name)))
            .collect();
        assert_eq!((boxes.len(), lines.len()), (4, 11));
        for [x1, x2, y1, y2] in lines {
            let inside = |&[x, y, width, height]: &[f64; 4]| {
                let across = x1.min(x2) < x + width && x1.max(x2) > x;
                let down = y1.min(y2) < y + height && y1.max(y2) > y;
                across && down
            };
            assert!(
                !boxes.iter().any(inside),
                "the line from {x1}, {y1} to {x2}, {y2}"
            );
        }
    }
}
