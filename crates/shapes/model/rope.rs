//! Rotary position embedding: the frequencies at which pairs of a head's numbers turn.

use serde::{Deserialize, Serialize};

/// Rotary position embedding: pair i of a head's numbers turns by `position · theta^(-2i / head)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    pub theta: f64,
    /// `None` leaves all frequencies as they are.
    pub scaling: Option<RopeScaling>,
}

/// The scaling of Llama 3.1 and 3.2 for long sequences: wavelengths above
/// `original_block / low_freq_factor` are stretched by `factor`, those below
/// `original_block / high_freq_factor` stay, and those between are blended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    pub factor: f64,
    pub low_freq_factor: f64,
    pub high_freq_factor: f64,
    /// The longest sequence before the model was trained for longer ones.
    pub original_block: usize,
}

impl Rope {
    /// The frequencies of the `head / 2` pairs, in radians per position.
    pub fn frequencies(&self, head: usize) -> Vec<f64> {
        let frequency = |i: usize| {
            let plain = self.theta.powf(-((2 * i) as f64) / head as f64);
            match self.scaling {
                Some(scaling) => scaling.of(plain),
                None => plain,
            }
        };
        (0..head / 2).map(frequency).collect()
    }
}
impl RopeScaling {
    /// The scaled frequency.
    fn of(&self, frequency: f64) -> f64 {
        // How often the pair turns within the original length.
        let turns = self.original_block as f64 * frequency / std::f64::consts::TAU;
        let low = self.low_freq_factor;
        let high = self.high_freq_factor;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        kept * frequency + (1.0 - kept) * frequency / self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::llama_3_2_1b;
    use super::super::{Family, LlamaExtra};
    use super::*;

    /// Fast pairs keep their frequency, slow ones turn 32 times slower, and no pair between is
    /// faster than a faster pair.
    #[test]
    fn llama3_scaling_slows_only_slow_pairs() {
        let shape = llama_3_2_1b();
        let Family::Llama(LlamaExtra { rope, .. }) = shape.family else {
            panic!("{shape:?}");
        };
        let scaled = rope.frequencies(64);
        let plain = Rope { scaling: None, ..rope }.frequencies(64);
        assert_eq!(plain[0], 1.0);
        assert!((plain[31] - 500_000f64.powf(-62.0 / 64.0)).abs() < 1e-18);
        for (pair, (scaled, plain)) in scaled.iter().zip(&plain).enumerate() {
            let wavelength = std::f64::consts::TAU / plain;
            let expected = match () {
                _ if wavelength < 8192.0 / 4.0 => Some(*plain),
                _ if wavelength > 8192.0 => Some(plain / 32.0),
                _ => None,
            };
            match expected {
                Some(expected) => assert!((scaled / expected - 1.0).abs() < 1e-12, "pair {pair}"),
                None => assert!(scaled < plain && *scaled > plain / 32.0, "pair {pair}"),
            }
        }
        assert!(scaled.is_sorted_by(|a, b| a > b));
    }
}
