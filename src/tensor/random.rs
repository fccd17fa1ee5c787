//! Random numbers that are functions of an address (seed, name, index), not of earlier draws.
//!
//! A generator with a state would give a shard different numbers than the whole, and rank 1
//! different numbers than rank
//! 0. Here every number has an address, so any rank can compute any part of an initial weight, a
//!    dropout mask or a
//! batch. The mixing function is SplitMix64's (Steele, Lea, Flood 2014), applied to key + index.

/// A sequence of random numbers, each with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of a name under a seed.
    pub fn new(seed: u64, name: &str) -> Stream {
        name.bytes()
            .fold(Stream { key: mix(seed) }, |stream, byte| stream.branch(byte.into()))
    }

    /// The stream at index `i` of a family of streams (a step, a sequence, a layer).
    pub fn branch(self, i: u64) -> Stream {
        Stream {
            key: mix(self.key ^ mix(i.wrapping_add(0x5851_F42D_4C95_7F2D))),
        }
    }

    /// 64 random bits at index `i`.
    #[inline(always)]
    pub fn bits(self, i: u64) -> u64 {
        mix(self.key.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Uniform in [0, 1) with 53 bits.
    pub fn uniform(self, i: u64) -> f64 {
        (self.bits(i) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [0, 1) with 24 bits, the most that an f32 can hold. A rounded 53-bit number could
    /// be 1.
    pub fn uniform_f32(self, i: u64) -> f32 {
        (self.bits(i) >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A number below `n`. All are equally likely, up to 1 part in 2^64 / n.
    pub fn below(self, n: u64, i: u64) -> u64 {
        ((u128::from(self.bits(i)) * u128::from(n)) >> 64) as u64
    }

    /// Standard normal (Box-Muller). Indices 2k and 2k+1 are the two halves of one draw.
    pub fn normal(self, i: u64) -> f64 {
        let pair = i & !1;
        let radius = (-2.0 * (1.0 - self.uniform(pair)).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.uniform(pair + 1);
        radius * if i == pair { angle.cos() } else { angle.sin() }
    }
}

#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The rule for a parameter's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// Uniform between minus and plus this bound. PyTorch initialises a `Linear`'s weight and bias
    /// this way, with 1 / √in.
    Uniform(f32),
    /// The same value for all elements.
    Constant(f32),
}

impl Init {
    /// Writes elements `start..start + out.len()` of the parameter `name` under `seed`. A number
    /// does not depend on how the parameter is cut.
    pub fn fill(self, seed: u64, name: &str, start: usize, out: &mut [f32]) {
        let stream = Stream::new(seed, name);
        for (x, i) in out.iter_mut().zip(start as u64..) {
            *x = match self {
                Init::Constant(value) => value,
                Init::Uniform(bound) => bound * (2.0 * stream.uniform_f32(i) - 1.0),
                Init::Normal(std) => std * stream.normal(i) as f32,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_the_slice_of_the_whole() {
        for init in [Init::Normal(0.02), Init::Uniform(0.1), Init::Constant(1.0)] {
            let fill = |start, len| {
                let mut x = vec![0.0; len];
                init.fill(1337, "wte.weight", start, &mut x);
                x
            };
            let whole = fill(0, 101);
            for cut in [1, 2, 50, 99] {
                assert_eq!([fill(0, cut), fill(cut, 101 - cut)].concat(), whole);
            }
        }
    }

    #[test]
    fn uniform_starts_are_uniform_within_their_bound() {
        let n = 100_000;
        let mut x = vec![0.0; n];
        Init::Uniform(0.5).fill(7, "fc.weight", 0, &mut x);
        assert!(x.iter().all(|x| (-0.5..=0.5).contains(x)));
        let moment = |k: i32| x.iter().map(|&x| f64::from(x).powi(k)).sum::<f64>() / n as f64;
        // Four standard errors of the mean and of the mean square, whose variances are 1/12 and
        // 1/80 - 1/144.
        assert!(moment(1).abs() < 4.0 * (1.0 / 12.0 / n as f64).sqrt());
        assert!(
            (moment(2) - 1.0 / 12.0).abs() < 4.0 * ((1.0 / 80.0 - 1.0 / 144.0) / n as f64).sqrt()
        );
        let unit: Vec<f32> = (0..1000).map(|i| Stream::new(1, "x").uniform_f32(i)).collect();
        assert!(unit.iter().all(|x| (0.0..1.0).contains(x)));
    }

    #[test]
    fn names_seeds_and_indices_give_different_numbers() {
        let x = Stream::new(1, "a").bits(0);
        for other in [
            Stream::new(2, "a").bits(0),
            Stream::new(1, "b").bits(0),
            Stream::new(1, "a").bits(1),
        ] {
            assert_ne!(x, other);
        }
    }

    #[test]
    fn normal_numbers_are_normal() {
        let n = 100_000;
        let x: Vec<f64> = (0..n).map(|i| Stream::new(7, "test").normal(i)).collect();
        let moment = |k: i32| x.iter().map(|x| x.powi(k)).sum::<f64>() / n as f64;
        // Four standard errors of each moment of a standard normal: sqrt(var / n).
        let bound = |variance: f64| 4.0 * (variance / n as f64).sqrt();
        assert!(moment(1).abs() < bound(1.0));
        assert!((moment(2) - 1.0).abs() < bound(2.0));
        assert!(moment(3).abs() < bound(15.0));
        assert!((moment(4) - 3.0).abs() < bound(96.0));
        let neighbours = x.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n as f64;
        assert!(neighbours.abs() < bound(1.0));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut counts = [0i32; 10];
        (0..100_000).for_each(|i| counts[Stream::new(3, "below").below(10, i) as usize] += 1);
        assert!(counts.iter().all(|c| (c - 10_000).abs() < 400), "{counts:?}");
    }
}
