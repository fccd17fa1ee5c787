//! The life of one block in ZeRO's stage 3: what each rank holds of it, moment by moment.

use super::BABY;
use crate::draw::{Anchor, Coat, Ink, Sketch};
use kit::show::bytes_decimal;
use shardlab::plan::{BytesEach, zero_memory};

const RANKS: usize = 3;

/// What a rank holds of the block's parameters or gradients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// Its slice.
    Slice,
    /// All, alike on every rank.
    Alike,
    /// All, of its own sequences alone.
    Own,
}

/// The moments, and what is held of parameters and of gradients.
const MOMENTS: [(&str, Held, Held); 8] = [
    ("before the step", Held::Slice, Held::Nothing),
    ("1 gather", Held::Alike, Held::Nothing),
    ("2 use: forward", Held::Alike, Held::Nothing),
    ("3 free", Held::Slice, Held::Nothing),
    ("4 gather again", Held::Alike, Held::Nothing),
    ("5 use: backward", Held::Alike, Held::Own),
    ("6 reduce-scatter", Held::Alike, Held::Slice),
    ("7 free", Held::Slice, Held::Slice),
];

impl Held {
    /// The bytes on a rank, from those of the whole and of a slice.
    fn bytes(self, whole: u64, slice: u64) -> u64 {
        match self {
            Held::Nothing => 0,
            Held::Slice => slice,
            Held::Alike | Held::Own => whole,
        }
    }
}

/// The life of a block of lab03's model, with its bytes on a rank: parameters and gradients, in
/// f32.
pub(super) fn picture() -> String {
    const NAMES: f64 = 122.0;
    const COLUMN: f64 = 98.0;
    const WIDE: f64 = 84.0;
    const ROW: f64 = 36.0;
    const TOP: f64 = 26.0;
    let of = |stage| zero_memory(stage, BABY.layer_parameters(0), RANKS as u64, BytesEach::F32);
    let [whole, sliced] = [of(0), of(3)];
    let mut sketch = Sketch::default();
    let rows = MOMENTS.len() as f64;
    for rank in 0..RANKS {
        let x = NAMES + COLUMN * rank as f64;
        sketch.words((x + WIDE / 2.0, 14.0), Anchor::Middle, format!("rank {rank}"));
    }
    sketch.words((480.0, 14.0), Anchor::End, "per rank");
    for (i, (moment, parameters, gradients)) in MOMENTS.into_iter().enumerate() {
        let bytes = parameters.bytes(whole[0], sliced[0]) + gradients.bytes(whole[1], sliced[1]);
        let y = TOP + ROW * i as f64;
        sketch.words((0.0, y + 19.0), Anchor::Start, moment);
        sketch.words((480.0, y + 19.0), Anchor::End, bytes_decimal(bytes as f64));
        for rank in 0..RANKS {
            let x = NAMES + COLUMN * rank as f64;
            for (bar, held) in [parameters, gradients].into_iter().enumerate() {
                let corner = (x, y + 1.0 + 14.0 * bar as f64);
                block(&mut sketch, corner, WIDE, held, rank);
            }
        }
    }
    let y = TOP + ROW * rows + 12.0;
    let words = "upper bar: parameters; lower bar: gradients; grey: alike on every rank";
    sketch.words((0.0, y), Anchor::Start, words);
    let title = "One block in ZeRO's stage 3: gathered, used and freed in the forward pass, and again in the backward pass";
    sketch.svg(title, y + 8.0)
}

/// A bar as long as the whole, filled where a rank holds it.
fn block(sketch: &mut Sketch, (x, y): (f64, f64), wide: f64, held: Held, rank: usize) {
    const HIGH: f64 = 12.0;
    let slice = wide / RANKS as f64;
    let (from, long, ink) = match held {
        Held::Nothing => (0.0, 0.0, Ink::Same),
        Held::Slice => (slice * rank as f64, slice, Ink::Rank(rank)),
        Held::Alike => (0.0, wide, Ink::Same),
        Held::Own => (0.0, wide, Ink::Rank(rank)),
    };
    if long > 0.0 {
        sketch.boxed((x + from, y), (long, HIGH), ink, Coat::Full, "");
    }
    sketch.boxed((x, y), (wide, HIGH), Ink::Same, Coat::Line, "");
}
