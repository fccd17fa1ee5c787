//! A transformer block on two tensor ranks: what is whole, what is cut, and where Megatron's f and
//! g stand.

use crate::draw::{Anchor, Coat, Ink, Sketch, Stroke};

/// What a rank has of a tensor of activations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Whole,
    Part,
    /// All of its numbers, but of each only a summand.
    Summand,
}

/// A half of the block: its name, its two matrices and what is computed between them, and how a
/// rank's part of the tensor there is called.
const HALVES: [(&str, [&str; 3], &str); 2] = [
    ("attention", ["Q K V", "own heads", "output"], "heads"),
    ("MLP", ["columns", "GELU", "rows"], "columns"),
];

/// What f and g do in the forward and in the backward pass.
fn operators(sequence: bool) -> [(&'static str, [&'static str; 2]); 2] {
    if sequence {
        [("f", ["all-gather", "reduce-scatter"]), ("g", ["reduce-scatter", "all-gather"])]
    } else {
        [("f", ["nothing", "all-reduce"]), ("g", ["all-reduce", "nothing"])]
    }
}

/// The middles of f and g, and their width.
const OPERATORS: [f64; 2] = [158.0, 518.0];
const BAR: f64 = 24.0;

/// The block under tensor parallelism, or with sequence parallelism as well.
pub(super) fn picture(sequence: bool) -> String {
    const WIDTH: f64 = 600.0;
    const BAND: f64 = 128.0;
    let stream = if sequence { "positions" } else { "whole" };
    let mut sketch = Sketch::wide(WIDTH);
    for (i, (half, boxes, cut)) in HALVES.into_iter().enumerate() {
        let top = BAND * i as f64;
        sketch.words((0.0, top + 14.0), Anchor::Start, half);
        let columns = [(98.0, stream), (192.0, "whole"), (336.0, cut)];
        let columns = columns.into_iter().chain([(470.0, "summands"), (566.0, stream)]);
        for (x, words) in columns {
            sketch.words((x, top + 14.0), Anchor::Middle, words);
        }
        for rank in 0..2 {
            lane(&mut sketch, top + 44.0 + 46.0 * rank as f64, rank, sequence, boxes);
        }
        for (x, name) in OPERATORS.into_iter().zip(["f", "g"]) {
            let corner = (x - BAR / 2.0, top + 24.0);
            sketch.boxed(corner, (BAR, 86.0), Ink::Page, Coat::Line, name);
        }
    }
    let mut y = 2.0 * BAND + 10.0;
    for (name, passes) in operators(sequence) {
        sketch.words((52.0, y), Anchor::Start, name);
        for (x, pass, does) in [(98.0, "forward", passes[0]), (290.0, "backward", passes[1])] {
            sketch.words((x, y), Anchor::Start, format!("{pass}: {does}"));
        }
        y += 20.0;
    }
    let legend = [
        (Has::Whole, "whole, alike on all ranks"),
        (Has::Part, "a part, on this rank alone"),
        (Has::Summand, "whole, but only a summand"),
    ];
    for (has, words) in legend {
        let from = (52.0, y - 4.0);
        tensor(&mut sketch, from, 88.0, 0, has);
        sketch.words((98.0, y), Anchor::Start, words);
        y += 20.0;
    }
    let title = if sequence {
        "A block on two ranks with sequence parallelism: f gathers positions, g scatters them"
    } else {
        "A block on two tensor ranks: f before, and g after the two matrices that ranks share"
    };
    sketch.svg(title, y - 8.0)
}

/// One rank's way through half a block: tensors are lines, weights are boxes.
fn lane(sketch: &mut Sketch, y: f64, rank: usize, sequence: bool, boxes: [&str; 3]) {
    const HIGH: f64 = 28.0;
    let top = y - HIGH / 2.0;
    sketch.words((0.0, y + 4.5), Anchor::Start, format!("rank {rank}"));
    let stream = if sequence { Has::Part } else { Has::Whole };
    let [f, g] = OPERATORS;
    let [before_f, before_g] = [f, g].map(|x| x - BAR / 2.0);
    let [behind_f, behind_g] = [f, g].map(|x| x + BAR / 2.0);
    for (from, to, has) in [
        (52.0, 74.0, stream),
        (122.0, before_f, stream),
        (behind_f, 212.0, Has::Whole),
        (276.0, 290.0, Has::Part),
        (372.0, 386.0, Has::Part),
        (442.0, before_g, Has::Summand),
        (behind_g, 557.0, stream),
        (575.0, 600.0, stream),
    ] {
        tensor(sketch, (from, y), to, rank, has);
    }
    let [first, middle, last] = boxes;
    let alike = Ink::Same;
    let own = Ink::Rank(rank);
    sketch.boxed((74.0, top), (48.0, HIGH), alike, Coat::Light, "norm");
    sketch.boxed((212.0, top), (64.0, HIGH), own, Coat::Light, first);
    sketch.boxed((290.0, top), (82.0, HIGH), Ink::Page, Coat::Dashes, middle);
    sketch.boxed((386.0, top), (56.0, HIGH), own, Coat::Light, last);
    sketch.boxed((557.0, y - 9.0), (18.0, 18.0), Ink::Page, Coat::Line, "+");
}

/// A tensor of activations on its way to the right.
fn tensor(sketch: &mut Sketch, (x, y): (f64, f64), to: f64, rank: usize, has: Has) {
    let (ink, stroke) = match has {
        Has::Whole => (Ink::Same, Stroke::Thick),
        Has::Part => (Ink::Rank(rank), Stroke::Thick),
        Has::Summand => (Ink::Rank(rank), Stroke::Pieces),
    };
    sketch.line((x, y), (to, y), ink, stroke);
}
