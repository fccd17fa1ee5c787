//! An axis: it places values and chooses the values that get a label.

use shardlab::units::group;

/// The largest absolute value a plot takes; beyond it sums and differences overflow.
const LARGEST: f64 = 1e300;

/// A range narrower than this part of its values is rounding noise, and is drawn as one value.
const NARROWEST: f64 = 1e-7;

/// First digits of a step between ticks, the most readable first. Neighbours are so close that
/// for every range one of them leads to three to five ticks.
const STEPS: [f64; 10] = [1.0, 2.0, 5.0, 2.5, 4.0, 3.0, 1.5, 6.0, 8.0, 1.2];

/// A labelled place on an axis: 0 at its beginning, 1 at its end.
#[derive(Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) place: f64,
    pub(super) value: f64,
    pub(super) label: String,
}

/// A range of numbers along one side of a plot.
pub(super) struct Axis {
    /// The smallest and the largest value of the data.
    data: (f64, f64),
    /// The values at its two ends, as powers of ten if `log`.
    ends: (f64, f64),
    log: bool,
}

/// Whether `value` has a place on any axis (on a logarithmic one: is above 0).
pub(super) fn is_drawable(value: f64, log: bool) -> bool {
    value.abs() <= LARGEST && (!log || value > 0.0) // NaN is not <= anything
}

impl Axis {
    /// The axis that just holds all `values`, which must be drawable. `None` if there are none.
    pub(super) fn covering(values: impl Iterator<Item = f64>, log: bool) -> Option<Axis> {
        let data = values.fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        })?;
        let (mut low, mut high) = if log { (data.0.log10(), data.1.log10()) } else { data };
        let size = low.abs().max(high.abs());
        if high - low <= NARROWEST * size || high - low < 1.0 / LARGEST {
            // All values are equal: they get the middle, with some room around.
            let room = if size > 10.0 / LARGEST { 0.1 * size } else { 1.0 };
            (low, high) = (low - room, high + room);
        }
        Some(Axis { data, ends: (low, high), log })
    }

    /// The place of `value` between the two ends, 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        ((value - self.ends.0) / (self.ends.1 - self.ends.0)).clamp(0.0, 1.0)
    }

    /// Three to five ticks at round values.
    pub(super) fn round_ticks(&self) -> Vec<Tick> {
        let (low, high) = self.ends;
        if !self.log {
            return self.ticks(&round_values(low, high));
        }
        let enough = |values: &Vec<f64>| (3..=5).contains(&values.len());
        let inside = |value: &f64| (low..=high).contains(&value.log10());
        // Powers of ten, then their multiples, then (less than a decade) evenly spaced values.
        let powers = (low.ceil() as i32)..=(high.floor() as i32);
        let every = |step: i32| {
            powers
                .clone()
                .filter(|power| power % step == 0)
                .map(|power| 10f64.powi(power))
                .collect()
        };
        let times = |factors: &[f64]| -> Vec<f64> {
            let powers = (low.floor() as i32)..=(high.ceil() as i32);
            powers
                .flat_map(|power| factors.iter().map(move |f| f * 10f64.powi(power)))
                .filter(inside)
                .collect()
        };
        let values = (1..=200).map(every).find(enough);
        let values = values.or_else(|| Some(times(&[1.0, 3.0])).filter(enough));
        let values = values.or_else(|| Some(times(&[1.0, 2.0, 5.0])).filter(enough));
        match values {
            // Each on its own: one number of decimals for 0.001 and 1000 would suit neither.
            Some(values) => values.iter().flat_map(|&value| self.ticks(&[value])).collect(),
            None => self.ticks(&round_values(10f64.powf(low), 10f64.powf(high))),
        }
    }

    /// Ticks at the first value, the last one and one in the middle (whole if those two are).
    pub(super) fn end_ticks(&self) -> Vec<Tick> {
        let (first, last) = self.data;
        if self.log {
            // Each on its own, as above; the middle is where the eye expects it.
            let values = if self.place(last) - self.place(first) < 0.5 {
                vec![first]
            } else {
                vec![first, (first * last).sqrt(), last]
            };
            return values.iter().flat_map(|&value| self.ticks(&[value])).collect();
        }
        let middle = first / 2.0 + last / 2.0;
        let whole = first.fract() == 0.0 && last.fract() == 0.0;
        let middle = if whole { middle.floor() } else { middle };
        if self.place(last) - self.place(first) < 0.5 {
            self.ticks(&[first]) // all values are equal
        } else if middle == first {
            self.ticks(&[first, last])
        } else {
            self.ticks(&[first, middle, last])
        }
    }

    fn ticks(&self, values: &[f64]) -> Vec<Tick> {
        let labels = labels(values);
        values
            .iter()
            .zip(labels)
            .map(|(&value, label)| Tick { place: self.place(value), value, label })
            .collect()
    }
}

/// Multiples of a round step between `low` and `high`, three to five of them.
fn round_values(low: f64, high: f64) -> Vec<f64> {
    let exponent = (high - low).log10().floor() as i32;
    for digits in STEPS {
        for exponent in [exponent, exponent - 1] {
            let step = digits * 10f64.powi(exponent);
            let first = (low / step).ceil();
            let last = (high / step).floor();
            let count = last - first + 1.0;
            if (3.0..=5.0).contains(&count) {
                return (0..count as i32).map(|i| (first + f64::from(i)) * step).collect();
            }
        }
    }
    vec![low, high]
}

/// One label for each of `values`, all of the same form: the shortest that tells them apart.
fn labels(values: &[f64]) -> Vec<String> {
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let gap = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(largest, f64::min);
    let faithful = |labels: &Vec<String>| {
        let off = |(label, value): (&String, &f64)| {
            label.parse::<f64>().map_or(f64::MAX, |read| (read - value).abs())
        };
        labels.iter().zip(values).map(off).all(|off| off <= 0.01 * gap)
    };
    let plain = |decimals: usize| -> Vec<String> {
        values.iter().map(|v| format!("{v:.decimals$}")).collect()
    };
    let powers = |decimals: usize| -> Vec<String> {
        values.iter().map(|v| format!("{v:.decimals$e}")).collect()
    };
    let found = (0..=5).map(plain).find(|labels| largest < 1e7 && faithful(labels));
    match found {
        // Up to 9,999 a comma only takes room.
        Some(labels) if largest >= 1e4 => labels.iter().map(|label| group(label)).collect(),
        Some(labels) => labels,
        None => (0..=8).map(powers).find(faithful).unwrap_or_else(|| powers(8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(low: f64, high: f64, log: bool) -> Axis {
        Axis::covering([low, high].into_iter(), log).expect("two values")
    }

    fn words(ticks: Vec<Tick>) -> String {
        ticks.into_iter().map(|tick| tick.label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round() {
        let ticks = |low, high| words(axis(low, high, false).round_ticks());
        assert_eq!(ticks(1.97, 4.21), "2 3 4");
        assert_eq!(ticks(0.0, 1.0), "0.0 0.5 1.0");
        assert_eq!(ticks(-3.0, 3.0), "-2 0 2");
        assert_eq!(ticks(-0.5, 3.5), "0 1 2 3");
        assert_eq!(ticks(0.0, 40_000.0), "0 10,000 20,000 30,000 40,000");
        assert_eq!(ticks(0.011, 0.0139), "0.011 0.012 0.013");
        assert_eq!(ticks(0.0, 3e9), "0e0 1e9 2e9 3e9");
        assert_eq!(ticks(5.0, 5.0), "4.6 4.8 5.0 5.2 5.4");
    }

    #[test]
    fn logarithmic_ticks_are_round() {
        let ticks = |low, high| words(axis(low, high, true).round_ticks());
        assert_eq!(ticks(0.001, 10.0), "0.001 0.01 0.1 1 10");
        assert_eq!(ticks(1e-9, 1.0), "1e-8 1e-6 0.0001 0.01 1");
        assert_eq!(ticks(1.5, 150.0), "3 10 30 100");
        assert_eq!(ticks(2.0, 4.2), "2 3 4");
    }

    #[test]
    fn every_range_gets_three_to_five_ticks() {
        for start in [0.0, -1.0, 1.0, 1e3, -1e-3] {
            for i in 1..4000 {
                let length = 1.01f64.powi(i - 2000);
                let ticks = axis(start, start + length, false).round_ticks();
                assert!((3..=5).contains(&ticks.len()), "{start} {length}: {ticks:?}");
                let log = axis(length, length * (2.0 + f64::from(i)), true).round_ticks();
                assert!((3..=5).contains(&log.len()), "{length} {i}: {log:?}");
                for pair in ticks.windows(2).chain(log.windows(2)) {
                    assert!(
                        pair[0].place < pair[1].place && pair[0].label != pair[1].label,
                        "{pair:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn places_are_within_the_axis() {
        let log = axis(0.01, 100.0, true);
        assert_eq!((log.place(0.01), log.place(1.0), log.place(100.0)), (0.0, 0.5, 1.0));
        assert_eq!(axis(7.0, 7.0, false).place(7.0), 0.5);
        assert_eq!(axis(0.0, 0.0, false).place(0.0), 0.5);
        assert_eq!(axis(-LARGEST, LARGEST, false).place(0.0), 0.5);
        assert!(Axis::covering(std::iter::empty(), false).is_none());
        assert!(!is_drawable(f64::MAX, false) && !is_drawable(-f64::MAX, false));
        assert!(!is_drawable(f64::NAN, false) && !is_drawable(f64::INFINITY, false));
        assert!(is_drawable(0.0, false) && !is_drawable(0.0, true));
    }

    #[test]
    fn end_ticks_show_where_the_data_ends() {
        assert_eq!(words(axis(1.0, 300.0, false).end_ticks()), "1 150 300");
        assert_eq!(words(axis(0.0, 1.0, false).end_ticks()), "0 1");
        assert_eq!(words(axis(0.5, 1.0, false).end_ticks()), "0.50 0.75 1.00");
        assert_eq!(words(axis(3.0, 3.0, false).end_ticks()), "3");
    }
}
