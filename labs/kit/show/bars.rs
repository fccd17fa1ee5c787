//! Shares of a whole: as a sentence and as a bar. Bars of one picture have one scale.

use super::screen::Screen;

/// `forward 31% · backward 52% · all-reduce 3%`, in the order given.
///
/// The whole percentages sum to 100: what rounding leaves over goes to the largest fractions.
/// A negative or non-finite part counts as 0.
pub fn shares(screen: &Screen, parts: &[(&str, f64)]) -> String {
    let percents = apportion(parts, 100);
    let words = parts.iter().zip(percents).map(|((name, value), percent)| {
        // Something that took time is never called nothing.
        let amount = if percent == 0 && size(*value) > 0.0 {
            "<1".to_owned()
        } else {
            percent.to_string()
        };
        format!("{name} {amount}%")
    });
    words.collect::<Vec<_>>().join(screen.separator())
}

/// An amount within its whole: `share` of `width` columns are `█`, the rest of the whole is `░`. A
/// share that is not 0 has a column at least.
pub fn bar(screen: &Screen, share: f64, width: usize) -> String {
    bar_to_scale(screen, share, 1.0, 1.0, width)
}

/// An amount on the scale of its picture, in which `most` is `width` columns long: the amount is
/// `█`, the rest of its `whole` is `░`, and the columns after the whole are empty. All bars of a
/// picture have the same `most`, so they can be compared. An amount that is not 0 has a column at
/// least.
pub fn bar_to_scale(screen: &Screen, amount: f64, whole: f64, most: f64, width: usize) -> String {
    let (full, rest) = glyphs(screen);
    let held = columns_to_scale(amount, most, width);
    let whole = columns_to_scale(whole, most, width).max(held);
    [vec![full; held], vec![rest; whole - held], vec![' '; width - whole]]
        .concat()
        .into_iter()
        .collect()
}

/// How many of `width` columns an amount takes where `most` takes all.
pub(super) fn columns_to_scale(amount: f64, most: f64, width: usize) -> usize {
    let amount = size(amount);
    let most = size(most);
    if amount == 0.0 || most == 0.0 {
        return 0;
    }
    let columns = (amount / most * width as f64).round() as usize;
    columns.clamp(1, width.max(1))
}

/// The amount that is held, and the rest of the whole: the same two glyphs in every picture of
/// amounts.
pub fn glyphs(screen: &Screen) -> (char, char) {
    if screen.ascii { ('#', '-') } else { ('█', '░') }
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

    const STEP: [(&str, f64); 5] = [
        ("forward", 0.62),
        ("backward", 1.04),
        ("all-reduce", 0.06),
        ("optimizer", 0.18),
        ("data", 0.1),
    ];

    #[test]
    fn a_sentence_of_shares() {
        let screen = Screen::plain();
        let expected = "forward 31% · backward 52% · all-reduce 3% · optimizer 9% · data 5%";
        assert_eq!(shares(&screen, &STEP), expected);
        let ascii = Screen { ascii: true, ..screen.clone() };
        assert_eq!(shares(&ascii, &STEP), expected.replace('·', "|"));
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
    fn bars_of_one_picture_are_in_proportion() {
        let screen = Screen::plain_ascii();
        let bar = |amount, whole| bar_to_scale(&screen, amount, whole, 4.8, 6);
        assert_eq!(
            [bar(4.8, 4.8), bar(2.4, 2.4), bar(1.2, 4.8), bar(0.6, 2.4)],
            ["######", "###   ", "##----", "#--   "]
        );
        for width in 1..40 {
            for amount in 1..=100 {
                let bar = bar_to_scale(&screen, f64::from(amount), 0.0, 100.0, width);
                let drawn = bar.matches('#').count() as f64;
                let exact = f64::from(amount) * width as f64 / 100.0;
                assert!(
                    (drawn - exact).abs() <= 0.5 || (drawn == 1.0 && exact < 0.5),
                    "{amount} of 100: {bar}"
                );
            }
        }
        for nothing in [0.0, f64::NAN, -1.0] {
            assert_eq!(bar(nothing, nothing), "      ");
        }
        assert_eq!(
            bar_to_scale(&screen, 9.0, 9.0, 4.8, 6),
            "######",
            "never longer than the picture"
        );
    }

    #[test]
    fn a_bar_shows_an_amount_and_the_rest_of_its_whole() {
        let screen = Screen::plain();
        assert_eq!(bar(&screen, 0.25, 8), "██░░░░░░");
        assert_eq!(bar(&Screen { ascii: true, ..screen }, 1.0, 8), "########");
        for (share, drawn) in [(0.0, 0), (1e-9, 1), (0.99, 7), (1e300, 7), (-1.0, 0), (f64::NAN, 0)]
        {
            let expected = format!("{}{}", "#".repeat(drawn), "-".repeat(7 - drawn));
            assert_eq!(bar(&Screen::plain_ascii(), share, 7), expected, "{share}");
        }
    }
}
