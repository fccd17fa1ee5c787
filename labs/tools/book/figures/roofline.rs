//! Prefill and decode under a device's roof.

use crate::draw::{Anchor, Ink, Sketch, Stroke};
use anyhow::{Context, Result};
use kit::Peaks;
use kit::show::significant;
use planner::Device;
use shardlab::plan::ModelShape;

const MODEL: &str = "llama-3-8b";
const DEVICE: &str = "h100-80g";

/// Tokens of a prompt, which decode finds in its cache.
const PROMPT: u64 = 1024;

/// Bytes of a weight and of a number in the cache.
const EACH: u64 = 2;

/// A pass: its name, and the FLOPs that it computes for each byte.
struct Pass {
    name: String,
    intensity: f64,
}

/// A pass over `new` tokens of each of `batch` sequences, after `earlier` tokens. It reads all
/// weights and the cache once.
fn pass(shape: &ModelShape, name: String, [batch, new, earlier]: [u64; 3]) -> Pass {
    let flops = shape.forward_flops_per_token() * batch * new;
    let cache = EACH * shape.cached(1) * batch * (earlier + new);
    let bytes = EACH * shape.parameters() + cache;
    Pass { name, intensity: flops as f64 / bytes as f64 }
}

fn passes() -> Result<(Peaks, Vec<Pass>)> {
    let shape = shapes::llamas::named(MODEL)?;
    let device = Device::named(DEVICE).context("a device of lab11")?;
    let peaks = Peaks { flops: device.peak, bytes: device.bandwidth };
    let decode = [1, 16, 128].map(|batch| {
        let name = format!("decode, {batch} at once");
        pass(&shape, name, [batch, 1, PROMPT])
    });
    let prefill = pass(&shape, "prefill".to_string(), [1, PROMPT, 0]);
    Ok((peaks, decode.into_iter().chain([prefill]).collect()))
}

fn tera(flops: f64) -> String {
    format!("{} TFLOP/s", significant(flops / 1e12, 3))
}

/// The roof and the passes below it.
pub(super) fn picture() -> Result<String> {
    const LEFT: f64 = 34.0;
    const RIGHT: f64 = 470.0;
    const TOP: f64 = 40.0;
    const BOTTOM: f64 = 250.0;
    const LOW: (f64, f64) = (0.5, 1e12);
    let (peaks, passes) = passes()?;
    let high = (4000.0, 2.0 * peaks.flops);
    let part = |value: f64, low: f64, high: f64| (value / low).ln() / (high / low).ln();
    let x = |intensity: f64| LEFT + (RIGHT - LEFT) * part(intensity, LOW.0, high.0);
    let y = |flops: f64| BOTTOM - (BOTTOM - TOP) * part(flops, LOW.1, high.1);
    let on_roof = |intensity: f64| (x(intensity), y(peaks.most(intensity)));
    let mut sketch = Sketch::default();
    sketch.words((0.0, 14.0), Anchor::Start, "TFLOP/s");
    for tera in [1.0, 10.0, 100.0, 1000.0] {
        let y = y(1e12 * tera);
        sketch.words((LEFT - 5.0, y + 4.5), Anchor::End, tera);
        sketch.line((LEFT, y), (RIGHT, y), Ink::Same, Stroke::Dashes);
    }
    for intensity in [1.0, 10.0, 100.0, 1000.0] {
        sketch.words((x(intensity), BOTTOM + 17.0), Anchor::Middle, intensity);
    }
    sketch.words((RIGHT, BOTTOM + 37.0), Anchor::End, "FLOPs per byte");
    sketch.line((LEFT, BOTTOM), (RIGHT, BOTTOM), Ink::Page, Stroke::Thin);
    let ridge = peaks.ridge();
    sketch.line(on_roof(ridge), (x(ridge), BOTTOM), Ink::Page, Stroke::Dashes);
    let words = format!("ridge, {}", significant(ridge, 3));
    sketch.words((x(ridge) + 6.0, BOTTOM - 8.0), Anchor::Start, words);
    let roof = [LOW.0, ridge, high.0].map(on_roof);
    sketch.curve(roof.into_iter(), Ink::Page);
    let along = on_roof(5.0);
    let words = format!("memory: {} TB/s", significant(peaks.bytes / 1e12, 3));
    sketch.words((along.0 - 12.0, along.1 - 14.0), Anchor::End, words);
    let words = format!("arithmetic: {}", tera(peaks.flops));
    sketch.words((RIGHT, y(peaks.flops) - 10.0), Anchor::End, words);
    for pass in &passes {
        let (left, top) = on_roof(pass.intensity);
        let decodes = pass.name != "prefill";
        sketch.dot((left, top), Ink::Kind(usize::from(!decodes)));
        // Beside the roof, and on the side where there is room.
        let (place, anchor) = match decodes {
            false => ((left, top + 22.0), Anchor::Middle),
            true if left > 240.0 => ((left - 10.0, top - 6.0), Anchor::End),
            true => ((left + 9.0, top + 17.0), Anchor::Start),
        };
        sketch.words(place, anchor, &pass.name);
    }
    let title = "Decode is on the roof's slope, where memory is the limit; prefill is right of the ridge, where arithmetic is";
    Ok(sketch.svg(title, BOTTOM + 44.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decode is left of the ridge and prefill right of it: what the caption says.
    #[test]
    fn the_ridge_is_between_decode_and_prefill() {
        let (peaks, passes) = passes().unwrap();
        for pass in &passes {
            assert_eq!(pass.intensity > peaks.ridge(), pass.name == "prefill");
        }
        // A decode step of one sequence reads two bytes of each weight for its two FLOPs.
        assert!((0.98..1.0).contains(&passes[0].intensity));
    }
}
