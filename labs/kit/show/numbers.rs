//! Numbers as logs and sentences write them, beside those of `shapes::units`.

/// `1 person`, `2 people`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// `value` with `digits` significant digits as C's `%g` writes it, the form of many a training log:
/// `0.0123`, `1.697e+04`, without zeros at the end.
pub fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let digits = digits.clamp(1, 15);
    // Rounded first: it decides the exponent, and the exponent the form.
    let rounded = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = rounded.split_once('e') else {
        return rounded;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |number: &str| {
        if number.contains('.') {
            let digits = number.trim_end_matches('0');
            digits.trim_end_matches('.').to_owned()
        } else {
            number.to_owned()
        }
    };
    if (-4..digits as i32).contains(&exponent) {
        short(&format!("{value:.*}", (digits as i32 - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", short(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_numbers_are_written_as_c_does() {
        for (value, digits, expected) in [
            (2152.41, 6, "2152.41"),
            (693.96, 6, "693.96"),
            (16970.0, 4, "1.697e+04"),
            (35900.0, 4, "3.59e+04"),
            (258.9, 4, "258.9"),
            (0.00377066, 6, "0.00377066"),
            (0.001003, 4, "0.001003"),
            (0.0001, 4, "0.0001"),
            (0.00001234, 4, "1.234e-05"),
            (9999.6, 4, "1e+04"),
            (0.00009999996, 4, "0.0001"),
            (100.0, 6, "100"),
            (0.0, 4, "0"),
            (-0.5, 4, "-0.5"),
            (1e100, 3, "1e+100"),
            (f64::NAN, 3, "n/a"),
        ] {
            assert_eq!(general(value, digits), expected);
        }
    }
}
