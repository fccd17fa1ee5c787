//! The figure of a transformer block: what writes into the stream of activations, and how many
//! parameters it has.

use kit::show::svg::{Anchor, Page, curve_colour, outlined, tinted};

/// A block as an inline SVG.
pub fn block() -> String {
    const TOP: f64 = 30.0;
    const STREAM: f64 = 84.0;
    const LINE: &str = "stroke-width=\"1.5\"";
    let named = |page: &mut Page, x: f64, width: f64, name: &str, below: &str, colour: &str| {
        let style = format!("{} rx=\"5\"", tinted(colour));
        let middle = x + width / 2.0;
        page.rect((x, TOP - 15.0), (width, 30.0), style);
        page.text((middle, TOP + 5.0), Anchor::Middle, name);
        page.text((middle, TOP + 31.0), Anchor::Middle, below);
    };
    let mut page = Page::default();
    page.line((8.0, STREAM), (472.0, STREAM), LINE);
    for (start, name, parameters, look) in
        [(30.0, "attention", "4 d²", 0), (258.0, "MLP", "8 d²", 1)]
    {
        let end = start + 190.0;
        page.line((start, STREAM), (start, TOP), LINE);
        // The branch goes from box to box, so that it strikes no label through.
        for (from, to) in [(0.0, 14.0), (64.0, 80.0), (172.0, 190.0)] {
            page.line((start + from, TOP), (start + to, TOP), LINE);
        }
        page.line((end, TOP), (end, STREAM - 9.0), LINE);
        named(&mut page, start + 14.0, 50.0, "norm", "d", curve_colour(4));
        named(&mut page, start + 80.0, 92.0, name, parameters, curve_colour(look));
        page.circle((end, STREAM), 9.0, outlined("currentColor"));
        page.text((end, STREAM + 5.0), Anchor::Middle, "+");
    }
    let words = "the stream: d numbers for each position, to which both add";
    page.text((240.0, STREAM + 28.0), Anchor::Middle, words);
    let title = "A transformer block: attention and MLP add to the stream";
    page.finish(title, STREAM + 38.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No line goes through a box, where its label would be struck through.
    #[test]
    fn lines_end_at_the_boxes() {
        let svg = block();
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
            assert!(!boxes.iter().any(inside), "the line from {x1}, {y1} to {x2}, {y2}");
        }
    }
}
