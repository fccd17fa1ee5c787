//! Random numbers that are functions of a place: (seed, name, index), not of what was drawn before.
//!
//! A generator with a state would give other numbers to a shard than to the whole, and to rank 1 than to rank 0. Here
//! every number has an address, so any rank can compute any part of an initial weight, a dropout mask or a batch.
//! The mixing function is SplitMix64's (Steele, Lea, Flood 2014), applied to key + index.

/// One addressable sequence of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream that belongs to a name under a seed.
    pub fn new(seed: u64, name: &str) -> Stream {
        name.bytes().fold(Stream { key: mix(seed) }, |stream, byte| stream.branch(byte.into()))
    }

    /// The stream at index `i` of a family of streams (a step, a sequence, a layer).
    pub fn branch(self, i: u64) -> Stream {
        Stream { key: mix(self.key ^ mix(i.wrapping_add(0x5851_F42D_4C95_7F2D))) }
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

    /// An index below `n`, each equally likely up to 1 part in 2^64 / n.
    pub fn below(self, n: u64, i: u64) -> u64 {
        ((u128::from(self.bits(i)) * u128::from(n)) >> 64) as u64
    }

    /// Standard normal (Box-Muller): indices 2k and 2k+1 are the two halves of one draw.
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

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with mean 0 and this standard deviation.
    Normal(f32),
    /// All elements equal.
    Constant(f32),
}

impl Init {
    /// Writes elements `start..start + out.len()` of the parameter `name` under `seed`: the same numbers, however the
    /// parameter is cut.
    pub fn fill(self, seed: u64, name: &str, start: usize, out: &mut [f32]) {
        match self {
            Init::Constant(value) => out.fill(value),
            Init::Normal(std) => {
                let stream = Stream::new(seed, name);
                for (i, x) in out.iter_mut().enumerate() {
                    *x = std * stream.normal((start + i) as u64) as f32;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_the_slice_of_the_whole() {
        let fill = |start, len| {
            let mut x = vec![0.0; len];
            Init::Normal(0.02).fill(1337, "wte.weight", start, &mut x);
            x
        };
        let whole = fill(0, 101);
        for cut in [1, 2, 50, 99] {
            assert_eq!([fill(0, cut), fill(cut, 101 - cut)].concat(), whole);
        }
    }

    #[test]
    fn names_seeds_and_indices_give_different_numbers() {
        let x = Stream::new(1, "a").bits(0);
        for other in [Stream::new(2, "a").bits(0), Stream::new(1, "b").bits(0), Stream::new(1, "a").bits(1)] {
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
