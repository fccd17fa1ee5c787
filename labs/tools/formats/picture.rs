//! The number line for a page: what `line.rs` draws in a terminal, a power of two each.

use crate::line::power_of_ten;
use crate::seen::{EXPONENTS, Step};
use kit::number_format::{NumberFormat, exponent};
use kit::show::svg::{Anchor, Page, curve_colour, filled, tinted};

const LEFT: f64 = 122.0;
const RIGHT: f64 = 474.0;
const TOP: f64 = 26.0;
const BAR: f64 = 13.0;
const ROW: f64 = 20.0;
const CURVE: f64 = 30.0;

/// The powers of ten that are named.
const NAMED: [i32; 7] = [-36, -24, -12, 0, 12, 24, 36];

/// Where a number of this exponent begins.
fn x(exponent: f64) -> f64 {
    let part = (exponent - f64::from(EXPONENTS.start)) / EXPONENTS.len() as f64;
    LEFT + (RIGHT - LEFT) * part
}

/// The formats, and a step's numbers below them.
pub fn svg(step: &Step, number: usize) -> String {
    let mut page = Page::default();
    for power in NAMED {
        let at = x(f64::from(power) * std::f64::consts::LOG2_10);
        page.text((at, 12.0), Anchor::Middle, power_of_ten(power));
        page.line((at, TOP - 8.0), (at, TOP - 3.0), "stroke-opacity=\"0.5\"");
    }
    let bottom = TOP + ROW * NumberFormat::ALL.len() as f64 + 8.0 + CURVE * 5.0;
    // Both ends of fp16 down to the numbers: what is left of them becomes 0.
    let fp16 = NumberFormat::FP16;
    for end in [fp16.least(), exponent(fp16.largest) + 1] {
        let at = x(end.into());
        page.line((at, TOP), (at, bottom), "stroke-opacity=\"0.5\" stroke-dasharray=\"3 3\"");
    }
    for (i, format) in NumberFormat::ALL.into_iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let name = format!("{}, {} bits", format.name, format.fraction + 1);
        page.text((0.0, y + 11.0), Anchor::Start, name);
        let (least, normal) = (x(format.least().into()), x(format.normal.into()));
        let end = x(f64::from(exponent(format.largest) + 1));
        page.rect((least, y), (normal - least, BAR), tinted(curve_colour(0)));
        page.rect((normal, y), (end - normal, BAR), filled(curve_colour(0)));
    }
    for (i, (name, seen)) in step.all().into_iter().enumerate() {
        let base = TOP + ROW * NumberFormat::ALL.len() as f64 + 8.0 + CURVE * (i + 1) as f64 - 4.0;
        page.text((0.0, base), Anchor::Start, name);
        page.line((LEFT, base), (RIGHT, base), "stroke-opacity=\"0.3\"");
        let counts: Vec<u64> =
            EXPONENTS.map(|exponent| seen.within(exponent..exponent + 1)).collect();
        let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
        // One element: machines differ in which rare exponents a step has.
        let blocks: String = EXPONENTS
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .map(|(exponent, count)| {
                let from = x(exponent.into());
                let wide = x(f64::from(exponent + 1)) - from;
                // What is there at all is seen.
                let high = ((CURVE - 8.0) * count as f64 / most).max(1.5);
                format!("M{from:.1} {base:.1} v-{high:.1} h{wide:.1} v{high:.1} z")
            })
            .collect();
        page.add(format!("<path d=\"{blocks}\" {}/>", filled(curve_colour(1))));
    }
    let title = format!(
        "Formats and the numbers of step {number} on one line: gradients of activations reach below fp16's least number"
    );
    page.finish(&title, bottom + 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Magnitudes;

    /// The line's ends are f32's, and a step's numbers are where its formats say.
    #[test]
    fn numbers_are_below_their_exponents() {
        let numbers = |exponent: i32| Magnitudes::of(&[2f32.powi(exponent); 3]);
        let step = Step {
            weights: vec![1.0, 1e-30],
            updates: vec![0.0],
            weight_gradients: numbers(-140),
            activations: numbers(3),
            activation_gradients: numbers(-24),
            matrices: Vec::new(),
        };
        let svg = svg(&step, 20);
        let elements = ["<rect ", "<path "].map(|element| svg.matches(element).count());
        assert_eq!(elements, [2 * NumberFormat::ALL.len(), 5]);
        assert_eq!((x(EXPONENTS.start.into()), x(EXPONENTS.end.into())), (LEFT, RIGHT));
        // fp16's least number, 2^-24, begins where its light block does.
        let left = format!("{:.1}", x(-24.0));
        for element in [format!("<rect x=\"{left}\""), format!("<path d=\"M{left} ")] {
            assert_eq!(svg.matches(&element).count(), 1, "{element} in {svg}");
        }
    }
}
