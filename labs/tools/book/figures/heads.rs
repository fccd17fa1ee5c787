//! Attention on two tensor ranks: the columns and rows of its matrices that belong to each head.

use super::BABY;
use crate::draw::{Anchor, Coat, Ink, Sketch};

const RANKS: usize = 2;

/// Attention by heads.
pub(super) fn picture() -> String {
    const LEFT: f64 = 62.0;
    const HEAD: f64 = 20.0;
    const GAP: f64 = 8.0;
    const TOP: f64 = 42.0;
    let each = BABY.heads / RANKS;
    let whole = HEAD * BABY.heads as f64;
    let mut sketch = Sketch::default();
    let mut y = TOP;
    let all: Vec<usize> = (0..BABY.heads).collect();
    let rows = [("all heads".to_string(), all.as_slice())].into_iter().chain(
        all.chunks(each)
            .enumerate()
            .map(|(rank, heads)| (format!("rank {rank}"), heads)),
    );
    let output = 398.0;
    sketch.words((output + whole / 2.0, 14.0), Anchor::Middle, "output");
    sketch.words((output + whole / 2.0, 32.0), Anchor::Middle, "rows");
    for (i, name) in ["Q", "K", "V"].into_iter().enumerate() {
        let middle = LEFT + (whole + GAP) * i as f64 + whole / 2.0;
        sketch.words((middle, 14.0), Anchor::Middle, name);
        sketch.words((middle, 32.0), Anchor::Middle, "columns");
    }
    for (name, heads) in rows {
        sketch.words((0.0, y + whole / 2.0 + 4.5), Anchor::Start, name);
        for matrix in 0..3 {
            let left = LEFT + (whole + GAP) * matrix as f64;
            for &head in heads {
                let corner = (left + HEAD * head as f64, y);
                let ink = Ink::Rank(head / each);
                sketch.boxed(corner, (HEAD, whole), ink, Coat::Light, &head.to_string());
            }
            sketch.boxed((left, y), (whole, whole), Ink::Page, Coat::Dashes, "");
        }
        for &head in heads {
            let corner = (output, y + HEAD * head as f64);
            let ink = Ink::Rank(head / each);
            sketch.boxed(corner, (whole, HEAD), ink, Coat::Light, &head.to_string());
        }
        sketch.boxed((output, y), (whole, whole), Ink::Page, Coat::Dashes, "");
        y += whole + 16.0;
    }
    let title = "Four heads on two ranks: each has the columns of Q, K and V and the rows of the output of its own heads";
    sketch.svg(title, y - 12.0)
}
