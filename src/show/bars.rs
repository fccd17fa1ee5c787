//! Shares of a whole: as a sentence and as one bar.

use super::screen::Screen;

const GLYPHS: [char; 6] = ['█', '░', '▓', '▒', '▚', '·'];
const ASCII_GLYPHS: [char; 6] = ['#', '-', '=', '+', 'o', '.'];

/// `forward 31% · backward 52% · all-reduce 3%`, in the order given.
///
/// The whole percentages sum to 100: what rounding leaves over goes to the largest fractions.
/// A negative or non-finite part counts as 0.
pub fn shares(screen: &Screen, parts: &[(&str, f64)]) -> String {
    sentence(screen, parts, |_| String::new())
}

/// [`shares`] with every part's glyph of [`bar`] before its name: `█ forward 31% · ░ backward 52%`.
pub fn shares_legend(screen: &Screen, parts: &[(&str, f64)]) -> String {
    sentence(screen, parts, |i| format!("{} ", glyph(screen, i)))
}

/// One bar of `width` columns, each part with its own glyph: `█████░░░░░░░░▓▒▒`.
/// With all parts 0 it is all spaces.
pub fn bar(screen: &Screen, parts: &[(&str, f64)], width: usize) -> String {
    let columns = apportion(parts, width);
    if columns.iter().sum::<usize>() == 0 {
        return " ".repeat(width);
    }
    columns.iter().enumerate().map(|(i, &n)| glyph(screen, i).to_string().repeat(n)).collect()
}

fn glyph(screen: &Screen, part: usize) -> char {
    let glyphs = if screen.ascii { ASCII_GLYPHS } else { GLYPHS };
    glyphs[part % glyphs.len()]
}

fn sentence(screen: &Screen, parts: &[(&str, f64)], before: impl Fn(usize) -> String) -> String {
    let percents = apportion(parts, 100);
    let words = parts.iter().zip(percents).enumerate().map(|(i, ((name, value), percent))| {
        // Something that took time is never called nothing.
        let amount = if percent == 0 && size(*value) > 0.0 { "<1".to_owned() } else { percent.to_string() };
        format!("{}{name} {amount}%", before(i))
    });
    words.collect::<Vec<_>>().join(screen.separator())
}

/// Deals `units` out in proportion to the parts (largest remainder): the result sums to `units`,
/// or to 0 when there is nothing to deal for.
fn apportion(parts: &[(&str, f64)], units: usize) -> Vec<usize> {
    let largest = parts.iter().map(|part| size(part.1)).fold(0.0, f64::max);
    if largest == 0.0 {
        return vec![0; parts.len()];
    }
    // Divided by the largest first: the plain sum of huge parts may overflow.
    let weights: Vec<f64> = parts.iter().map(|part| size(part.1) / largest).collect();
    let total: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|weight| units as f64 * weight / total).collect();
    let mut dealt: Vec<usize> = exact.iter().map(|&share| share as usize).collect();
    let mut by_fraction: Vec<usize> = (0..parts.len()).collect();
    by_fraction.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let left = units.saturating_sub(dealt.iter().sum());
    for &part in by_fraction.iter().take(left) {
        dealt[part] += 1;
    }
    dealt
}

fn size(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: [(&str, f64); 5] =
        [("forward", 0.62), ("backward", 1.04), ("all-reduce", 0.06), ("optimizer", 0.18), ("data", 0.1)];

    #[test]
    fn a_sentence_of_shares() {
        let screen = Screen::plain();
        let expected = "forward 31% · backward 52% · all-reduce 3% · optimizer 9% · data 5%";
        assert_eq!(shares(&screen, &STEP), expected);
        let ascii = Screen { ascii: true, ..screen.clone() };
        assert_eq!(shares(&ascii, &STEP), expected.replace('·', "|"));
        assert_eq!(shares_legend(&ascii, &STEP[..2]), "# forward 37% | - backward 63%");
        assert_eq!(shares(&screen, &[]), "");
    }

    #[test]
    fn percentages_sum_to_100() {
        let thirds = [("a", 1.0), ("b", 1.0), ("c", 1.0)];
        assert_eq!(shares(&Screen::plain(), &thirds), "a 34% · b 33% · c 33%");
        assert_eq!(shares(&Screen::plain(), &[("a", 1.0), ("b", 1e-6)]), "a 100% · b <1%");
        assert_eq!(shares(&Screen::plain(), &[("a", 1.0), ("b", f64::NAN)]), "a 100% · b 0%");
    }

    #[test]
    fn a_bar_of_shares() {
        let screen = Screen::plain();
        assert_eq!(bar(&screen, &STEP, 20), "██████░░░░░░░░░░▓▒▒▚");
        let ascii = Screen { ascii: true, ..screen };
        assert_eq!(bar(&ascii, &STEP, 20), "######----------=++o");
        assert_eq!(bar(&ascii, &[("a", 0.0)], 4), "    ");
        assert_eq!(bar(&ascii, &[], 4), "    ");
    }

    #[test]
    fn a_bar_is_as_wide_as_asked() {
        let values = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 0.1, 7.0, f64::MAX];
        for a in values {
            for b in values {
                for width in [1, 7, 64] {
                    let drawn = bar(&Screen::plain(), &[("a", a), ("b", b), ("c", 0.3)], width);
                    assert_eq!(drawn.chars().count(), width, "{a} {b}");
                }
            }
        }
    }
}
