//! The fastest plans of lab11's job: what the seconds of a step are for, and the bytes of a rank.

use crate::draw::{Anchor, Coat, Ink, Sketch};
use crate::plans::{bytes, first, longest, parts};
use anyhow::Result;
use planner::Degrees;

/// What a step's seconds are for, in the order of the bars. The axes have the colours that the
/// explorer of meshes gives them.
const PARTS: [(&str, Ink, Coat); 6] = [
    ("computing", Ink::Kind(4), Coat::Light),
    ("again", Ink::Kind(5), Coat::Full),
    ("tensor", Ink::Kind(0), Coat::Full),
    ("pipeline", Ink::Kind(2), Coat::Full),
    ("bubble", Ink::Page, Coat::Dashes),
    ("data", Ink::Kind(1), Coat::Full),
];

/// The kinds of bytes.
const BYTES: [(&str, Coat); 3] =
    [("state", Coat::Full), ("activations", Coat::Light), ("working", Coat::Line)];

/// For each plan a bar of its step, and a thinner one of its memory.
pub(super) fn picture() -> Result<String> {
    const WIDE: f64 = 478.0;
    const TOP: f64 = 58.0;
    const ROW: f64 = 54.0;
    let mut sketch = Sketch::default();
    let of_step = PARTS.map(|(name, ink, coat)| (name, ink, coat, 0.0));
    let of_rank = BYTES.map(|(name, coat)| (name, Ink::Same, coat, 20.0));
    let mut x = [44.0, 62.0];
    sketch.words((0.0, 13.0), Anchor::Start, "step");
    sketch.words((0.0, 33.0), Anchor::Start, "memory");
    for (name, ink, coat, y) in of_step.into_iter().chain(of_rank) {
        let x = &mut x[usize::from(y > 0.0)];
        sketch.boxed((*x, y + 2.0), (12.0, 12.0), ink, coat, "");
        sketch.words((*x + 17.0, y + 13.0), Anchor::Start, name);
        *x += 26.0 + 7.0 * name.len() as f64;
    }
    let case = first()?;
    let plans = case.shown();
    let (longest, room) = (longest(&plans), case.job.cluster.device.room());
    for (i, plan) in plans.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        sketch.words((0.0, y), Anchor::Start, plan.strategy.words());
        sketch.words((480.0, y), Anchor::End, case.probably(plan));
        let step = PARTS
            .iter()
            .zip(parts(plan))
            .map(|(part, took)| (part.1, part.2, took / longest));
        let bytes = BYTES
            .iter()
            .zip(bytes(plan))
            .map(|(kind, held)| (Ink::Same, kind.1, held / room));
        let mut bar = |y: f64, high: f64, parts: &mut dyn Iterator<Item = (Ink, Coat, f64)>| {
            let mut x = 1.0;
            for (ink, coat, share) in parts.filter(|part| part.2 > 0.0) {
                sketch.boxed((x, y), (WIDE * share, high), ink, coat, "");
                x += WIDE * share;
            }
        };
        bar(y + 6.0, 16.0, &mut step.into_iter());
        bar(y + 25.0, 7.0, &mut bytes.into_iter());
    }
    let title = "The steps of the fastest plans for 70 billion parameters on 512 H100, and the memory of a rank";
    Ok(sketch.svg(title, TOP + ROW * plans.len() as f64 - 14.0))
}
