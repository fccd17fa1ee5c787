//! Number formats of 32, 16 and 8 bits, in arithmetic of f64: what a number becomes in them.
//!
//! The 8-bit formats are those of Micikevicius et al., *FP8 Formats for Deep Learning*
//! (arXiv 2209.05433), which the Open Compute Project has made a standard.

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberFormat {
    pub name: &'static str,
    /// Bits behind the point.
    pub fraction: i32,
    /// The exponent of the smallest number with all its bits. Below, the numbers are as far apart
    /// as there, down to the last one, 2^([`least`](NumberFormat::least)).
    pub normal: i32,
    /// The largest number.
    pub largest: f64,
    /// What is too large becomes this.
    pub beyond: f64,
}

impl NumberFormat {
    pub const F32: NumberFormat = NumberFormat {
        name: "f32",
        fraction: 23,
        normal: -126,
        largest: f32::MAX as f64,
        beyond: f64::INFINITY,
    };
    pub const BF16: NumberFormat = NumberFormat {
        name: "bf16",
        fraction: 7,
        largest: 3.389_531_389_251_535_5e38,
        ..NumberFormat::F32
    };
    pub const FP16: NumberFormat = NumberFormat {
        name: "fp16",
        fraction: 10,
        normal: -14,
        largest: 65_504.0,
        beyond: f64::INFINITY,
    };
    /// 5 bits of exponent, as fp16: made for gradients.
    pub const E5M2: NumberFormat = NumberFormat {
        name: "fp8 e5m2",
        fraction: 2,
        normal: -14,
        largest: 57_344.0,
        beyond: f64::INFINITY,
    };
    /// 4 bits of exponent, made for weights and activations. It has no infinity.
    pub const E4M3: NumberFormat = NumberFormat {
        name: "fp8 e4m3",
        fraction: 3,
        normal: -6,
        largest: 448.0,
        beyond: f64::NAN,
    };

    /// All of them, the widest first.
    pub const ALL: [NumberFormat; 5] = [
        NumberFormat::F32,
        NumberFormat::BF16,
        NumberFormat::FP16,
        NumberFormat::E5M2,
        NumberFormat::E4M3,
    ];

    /// The exponent of the smallest number.
    pub fn least(&self) -> i32 {
        self.normal - self.fraction
    }

    /// The nearest number; of two that are as near, the even one.
    pub fn round(&self, x: f64) -> f64 {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let apart = 2f64.powi(exponent(x).max(self.normal) - self.fraction);
        let rounded = (x / apart).round_ties_even() * apart;
        if rounded.abs() > self.largest {
            self.beyond.copysign(x)
        } else {
            rounded
        }
    }
}

/// The exponent of a number's power of two: `1.5` is in `2^0 .. 2^1`. 0 has the exponent of no
/// number here.
pub fn exponent(x: f64) -> i32 {
    const BIAS: i32 = 1023;
    (x.to_bits() >> 52 & 0x7ff) as i32 - BIAS
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn numbers_become_what_other_implementations_make_of_them() {
        for bits in (0..u32::MAX).step_by(65_537) {
            let x = f32::from_bits(bits);
            if !x.is_finite() {
                continue;
            }
            let x = f64::from(x);
            assert_eq!(NumberFormat::F32.round(x), x);
            assert_eq!(NumberFormat::BF16.round(x), f64::from(bf16::from_f64(x)), "{x}");
            assert_eq!(NumberFormat::FP16.round(x), f64::from(f16::from_f64(x)), "{x}");
        }
    }

    /// Tables 1 and 2 of the source.
    #[test]
    fn fp8_has_the_numbers_of_its_standard() {
        let e4m3 = NumberFormat::E4M3;
        let e5m2 = NumberFormat::E5M2;
        assert_eq!((e4m3.least(), e5m2.least()), (-9, -16));
        for (x, four, five) in [
            (448.0, 448.0, 448.0),
            (464.0, 448.0, 448.0),
            (57_344.0, f64::NAN, 57_344.0),
            (1e6, f64::NAN, f64::INFINITY),
            (1.06, 1.0, 1.0),
            (1.07, 1.125, 1.0),
            (1.2, 1.25, 1.25),
            (2f64.powi(-9), 2f64.powi(-9), 2f64.powi(-9)),
            (2f64.powi(-10), 0.0, 2f64.powi(-10)),
            (2f64.powi(-17), 0.0, 0.0),
        ] {
            let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
            assert!(same(e4m3.round(x), four) && same(e4m3.round(-x), -four), "e4m3 {x}");
            assert!(same(e5m2.round(x), five), "e5m2 {x}");
        }
    }
}
