//! Noise for the figures that a page's script computes, too.

/// Noise between -0.5 and 0.5: a few operations on 32 bits, which a script can do as well.
pub fn noise(number: usize) -> f64 {
    let mut x = (number as u32).wrapping_mul(0x9E37_79B1);
    x = (x ^ (x >> 15)).wrapping_mul(0x85EB_CA6B);
    f64::from(x ^ (x >> 13)) / 2f64.powi(32) - 0.5
}
