//! One number as people write it.
//!
//! Three significant digits are the rule: enough to compare with a formula, few enough to read.
//! A value that is not finite becomes `n/a`: a screen should show that a figure is missing, not
//! fail because of it.

const NOT_A_NUMBER: &str = "n/a";

/// `1115394` as `1,115,394`.
pub fn thousands(value: u64) -> String {
    group(&value.to_string())
}

/// Bytes in powers of 1000, as networks and disks are sold: `3.22 MB`, `1.61 GB`.
pub fn bytes_decimal(bytes: f64) -> String {
    bytes_in(bytes, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Bytes in powers of 1024, as memory is sold: `1.50 GiB`.
pub fn bytes_binary(bytes: f64) -> String {
    bytes_in(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// A duration from nanoseconds to days: `12.3 µs`, `31.2 ms`, `3 min 12 s`, `2 h 05 min`.
pub fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    if seconds < 0.0 {
        return format!("-{}", self::seconds(-seconds));
    }
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    // 999.6 µs would print as "1,000 µs": a unit ends where rounding reaches the next one.
    for (unit, factor, end) in
        [("ns", 1e9, 999.5), ("µs", 1e6, 999.5), ("ms", 1e3, 999.5), ("s", 1.0, 59.95)]
    {
        if seconds * factor < end {
            return format!("{} {unit}", significant(seconds * factor, 3));
        }
    }
    let whole = seconds.round() as u64; // saturates beyond 500 billion years
    let minutes = whole.saturating_add(30) / 60;
    let hours = whole.saturating_add(1800) / 3600;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else if minutes < 24 * 60 {
        format!("{} h {:02} min", minutes / 60, minutes % 60)
    } else {
        format!("{} d {:02} h", thousands(hours / 24), hours % 24)
    }
}

/// A fraction of 1 as a percentage with one decimal: `0.273` is `27.3%`.
pub fn percent(fraction: f64) -> String {
    if !fraction.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    format!("{:.1}%", 100.0 * fraction)
}

/// `value` rounded to `digits` significant digits: `significant(0.0123456, 3)` is `0.0123`.
/// Very large and very small values are written as `1.23e-7`.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = digits.clamp(1, 15);
    let rounded = format!("{value:.*e}", digits - 1);
    // Rounding comes first because it may add a digit: 9.996 has three, and so has 10.0.
    let Some(exponent) = rounded.split_once('e').and_then(|(_, e)| e.parse::<i32>().ok()) else {
        return rounded;
    };
    let Ok(value) = rounded.parse::<f64>() else {
        return rounded;
    };
    if !(-5..=11).contains(&exponent) {
        return rounded;
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    group(&format!("{value:.decimals$}"))
}

/// Puts a comma before every third digit of the whole part.
pub fn group(number: &str) -> String {
    let (sign, number) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number),
    };
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut grouped = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn bytes_in(bytes: f64, step: f64, units: &[&str]) -> String {
    if !bytes.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    let mut scaled = bytes;
    let mut unit = 0;
    while scaled.abs().round() >= step && unit + 1 < units.len() {
        scaled /= step;
        unit += 1;
    }
    let number = match unit {
        0 => group(&format!("{scaled:.0}")),
        // 1,023 MiB keeps its fourth digit.
        _ => significant(scaled, if scaled.abs() >= 999.5 { 4 } else { 3 }),
    };
    format!("{number} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_115_394), "1,115,394");
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_change_unit_where_rounding_does() {
        assert_eq!(bytes_decimal(0.0), "0 B");
        assert_eq!(bytes_decimal(999.0), "999 B");
        assert_eq!(bytes_decimal(1_000.0), "1.00 kB");
        assert_eq!(bytes_decimal(3_216_384.0), "3.22 MB");
        assert_eq!(bytes_decimal(999_999.0), "1.00 MB");
        assert_eq!(bytes_decimal(1.61e9), "1.61 GB");
        assert_eq!(bytes_decimal(-2e6), "-2.00 MB");
        assert_eq!(bytes_binary(1.5 * 1024f64.powi(3)), "1.50 GiB");
        assert_eq!(bytes_binary(1023.0), "1,023 B");
        assert_eq!(bytes_binary(1023.0 * 1024.0), "1,023 KiB");
        assert_eq!(bytes_binary(1023.9 * 1024.0), "1.00 MiB");
        assert_eq!(bytes_decimal(f64::NAN), "n/a");
    }

    #[test]
    fn seconds_change_unit_where_rounding_does() {
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(8.5e-7), "850 ns");
        assert_eq!(seconds(9.996e-7), "1.00 µs");
        assert_eq!(seconds(12.34e-6), "12.3 µs");
        assert_eq!(seconds(0.0312), "31.2 ms");
        assert_eq!(seconds(0.9996), "1.00 s");
        assert_eq!(seconds(59.94), "59.9 s");
        assert_eq!(seconds(59.97), "1 min 00 s");
        assert_eq!(seconds(192.4), "3 min 12 s");
        assert_eq!(seconds(3599.7), "1 h 00 min");
        assert_eq!(seconds(7_490.0), "2 h 05 min");
        assert_eq!(seconds(86_399.0), "1 d 00 h");
        assert_eq!(seconds(273_600.0), "3 d 04 h");
        assert_eq!(seconds(-0.5), "-500 ms");
        assert_eq!(seconds(f64::INFINITY), "n/a");
        assert!(seconds(f64::MAX).ends_with(" h"));
    }

    #[test]
    fn significant_digits() {
        assert_eq!(significant(0.0, 3), "0");
        assert_eq!(significant(std::f64::consts::PI, 3), "3.14");
        assert_eq!(significant(9.996, 3), "10.0");
        assert_eq!(significant(0.0123456, 3), "0.0123");
        assert_eq!(significant(123_456.0, 3), "123,000");
        assert_eq!(significant(-1234.5, 5), "-1,234.5");
        assert_eq!(significant(1.234e-7, 3), "1.23e-7");
        assert_eq!(significant(f64::NAN, 3), "n/a");
    }

    #[test]
    fn percentages() {
        assert_eq!(percent(0.2727), "27.3%");
        assert_eq!(percent(1.0), "100.0%");
        assert_eq!(percent(f64::NAN), "n/a");
    }
}
