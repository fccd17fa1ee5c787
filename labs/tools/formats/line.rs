//! The number line: the formats, and a step's numbers on the same scale.

use crate::seen::{EXPONENTS, Step};
use kit::number_format::NumberFormat;
use kit::show::{Screen, pad_left, pad_right};

/// Powers of two in a column.
const EACH: i32 = 5;
/// Columns before the line.
const NAMES: usize = 20;
/// The powers of ten that are named.
const NAMED: [i32; 7] = [-38, -24, -12, 0, 12, 24, 38];

/// Draws the line.
pub fn drawn(screen: &Screen, step: &Step) -> String {
    let columns = EXPONENTS.len().div_ceil(EACH as usize);
    let range = |column: usize| {
        let start = EXPONENTS.start + column as i32 * EACH;
        start..start + EACH
    };
    let mut lines = vec![axis(columns)];
    for format in NumberFormat::ALL {
        let (all_bits, fewer) = screen.either(('█', '░'), ('#', '-'));
        let cells = (0..columns).map(|column| {
            let largest = kit::number_format::exponent(format.largest);
            let exponents = range(column);
            match exponents {
                _ if exponents.end > format.normal && exponents.start <= largest => all_bits,
                _ if exponents.end > format.least() && exponents.start <= largest => fewer,
                _ => ' ',
            }
        });
        let bits = format!("{} {:>2} bits", pad_right(format.name, 9), format.fraction + 1);
        lines.push(row(&bits, cells.collect()));
    }
    lines.push(String::new());
    for (name, seen) in step.all() {
        let counts: Vec<u64> = (0..columns).map(|column| seen.within(range(column))).collect();
        lines.push(row(name, heights(screen, &counts)));
    }
    let words = "bits: those of a number in the full blocks; in the light ones it has fewer. Heights: how many numbers \
                 a step has of this size. Activations are what matrix products read.";
    format!("{}\n{}\n", lines.join("\n"), screen.wrap(words, 2))
}

fn row(name: &str, cells: String) -> String {
    format!("  {}{}", pad_right(name, NAMES), cells.trim_end())
}

/// A power of ten, as a person writes it.
pub fn power_of_ten(power: i32) -> String {
    match power {
        0 => "1".to_string(),
        power => format!("1e{power}"),
    }
}

/// The powers of ten above their columns.
fn axis(columns: usize) -> String {
    let mut line = String::new();
    for power in NAMED {
        let exponent = (f64::from(power) * std::f64::consts::LOG2_10).floor() as i32;
        let column = ((exponent - EXPONENTS.start) / EACH) as usize;
        let name = power_of_ten(power);
        if column < columns {
            line = pad_right(&line, column + 1 - name.chars().count().min(column)) + &name;
        }
    }
    format!("  {}{line}", pad_left("", NAMES))
}

/// Bars of one line. What is there has at least the lowest bar.
fn heights(screen: &Screen, counts: &[u64]) -> String {
    let bars: Vec<char> = screen.either("▁▂▃▄▅▆▇█", ".:-=+*%#").chars().collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let bar = |&count: &u64| match count {
        0 => ' ',
        count => bars[((count as f64 / most * bars.len() as f64).ceil() as usize).max(1) - 1],
    };
    counts.iter().map(bar).collect()
}
