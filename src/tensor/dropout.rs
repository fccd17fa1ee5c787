//! Dropout with masks that are functions of (seed, step, sequence, layer, element), not of a
//! generator's state.
//!
//! Sequences are numbered over all ranks. So N ranks drop the same elements as one rank with the
//! whole batch. The backward pass recomputes a mask instead of keeping it.

use super::Slices;
use super::operation::{Operand, TensorOp, apply};
use super::random::Stream;
use candle_core::{Result, Shape, bail};
use std::sync::Arc;

/// The facts that decide the masks of one forward pass.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// The fraction of elements to drop, 0 <= p < 1.
    pub p: f32,
    pub seed: u64,
    pub step: u64,
    /// The numbers of the batch's sequences in the step's global batch.
    pub sequences: Arc<[u64]>,
    /// The positions of this rank's rows in their sequences.
    pub slices: Slices,
}

impl Dropout {
    /// The mask of the layer with this name.
    pub(crate) fn mask(&self, layer: &str) -> Mask {
        let threshold = (f64::from(self.p) * 2f64.powi(32)).round() as u64;
        let stream = Stream::new(self.seed, "dropout").branch(self.step);
        let layer = layer.bytes().fold(stream, |stream, byte| stream.branch(byte.into()));
        Mask {
            sequences: self.sequences.iter().map(|&s| layer.branch(s)).collect(),
            slices: self.slices.clone(),
            threshold,
            keep: 1.0 / (1.0 - self.p),
        }
    }
}

/// One layer's masks, one for each sequence of the batch.
pub(crate) struct Mask {
    sequences: Vec<Stream>,
    slices: Slices,
    threshold: u64,
    keep: f32,
}

impl Mask {
    /// The factor for element `i` of sequence `s` of the batch: 0, or 1 / (1 - p). `i` counts from
    /// the whole sequence's start.
    #[inline(always)]
    pub fn factor(&self, s: usize, i: usize) -> f32 {
        let kept = self.sequences[s].bits(i as u64) >> 32 >= self.threshold;
        if kept { self.keep } else { 0.0 }
    }

    /// Multiplies `x` [sequences, positions, ..] of shape `dims` by the mask.
    fn drop(&self, x: &[f32], dims: &[usize]) -> Result<Vec<f32>> {
        let n = self.sequences.len();
        let [sequences, rows, position @ ..] = dims else {
            bail!("dropout takes [sequences, positions, ..], not {dims:?}")
        };
        if *sequences != n {
            bail!("dropout has masks for {n} sequences, but the batch has the shape {dims:?}");
        }
        let width = position.iter().product::<usize>();
        let mut y = x.to_vec();
        for (s, y) in y.chunks_exact_mut((x.len() / n.max(1)).max(1)).enumerate() {
            for (row, positions) in self.slices.runs(0..*rows) {
                let first = positions.start * width;
                let here = &mut y[row * width..(row + positions.len()) * width];
                here.iter_mut().enumerate().for_each(|(i, y)| *y *= self.factor(s, first + i));
            }
        }
        Ok(y)
    }
}

/// Drops elements of `x` [sequences, positions, ..]. The name of the layer decides which ones.
///
/// # Errors
/// If `x` has other sequences than `dropout`.
pub fn dropout<X: Operand>(x: &X, dropout: &Dropout, layer: &str) -> Result<X> {
    apply(x, dropout.mask(layer))
}

impl TensorOp for Mask {
    const NAME: &'static str = "dropout";

    fn forward(&self, x: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        Ok((self.drop(x, dims)?, dims.into()))
    }

    fn input_gradient(&self, _x: &[f32], dims: &[usize], dy: &[f32]) -> Result<Vec<f32>> {
        self.drop(dy, dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Tensor};

    fn ones(sequences: &[u64], step: u64) -> Vec<Vec<f32>> {
        let rules = Dropout {
            p: 0.25,
            seed: 1,
            step,
            sequences: sequences.into(),
            slices: Slices::default(),
        };
        let x =
            Tensor::ones((sequences.len(), 4000), candle_core::DType::F32, &Device::Cpu).unwrap();
        dropout(&x, &rules, "blocks.0").unwrap().to_vec2().unwrap()
    }

    #[test]
    fn a_sequence_keeps_its_mask_in_any_batch() {
        let whole = ones(&[0, 1, 2, 3], 5);
        assert_eq!([ones(&[0, 1], 5), ones(&[2, 3], 5)].concat(), whole);
        assert_ne!(whole[0], whole[1]);
        assert_ne!(ones(&[0], 6)[0], whole[0]);
    }

    /// Ranks that share sequences by position drop what one rank with whole sequences drops.
    #[test]
    fn a_shard_of_positions_has_its_slice_of_the_mask() {
        let sequences = 2;
        let length = 6;
        let width = 50;
        let whole = Tensor::ones((sequences, length, width), candle_core::DType::F32, &Device::Cpu)
            .unwrap();
        let drop = |first, positions| {
            let rules = Dropout {
                p: 0.5,
                seed: 1,
                step: 3,
                sequences: [7u64, 9].as_slice().into(),
                slices: Slices::from(first),
            };
            let shard = whole.narrow(1, first, positions).unwrap().contiguous().unwrap();
            dropout(&shard, &rules, "blocks.0.proj").unwrap()
        };
        let shards = [drop(0, 2), drop(2, 3), drop(5, 1)];
        let numbers = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(numbers(&Tensor::cat(&shards, 1).unwrap()), numbers(&drop(0, length)));
    }

    #[test]
    fn the_gradient_goes_where_the_values_went() {
        let rules = Dropout {
            p: 0.5,
            seed: 1,
            step: 0,
            sequences: [3u64, 4].as_slice().into(),
            slices: Slices::default(),
        };
        let x = candle_core::Var::ones((2, 50), candle_core::DType::F32, &Device::Cpu).unwrap();
        let y = dropout(x.as_tensor(), &rules, "here").unwrap();
        let gradients = y.sum_all().unwrap().backward().unwrap();
        let dx = gradients.get(&x).unwrap().to_vec2::<f32>().unwrap();
        // The input is 1, so the output is the mask.
        assert_eq!(dx, y.to_vec2::<f32>().unwrap());
    }

    #[test]
    fn places_and_seeds_have_masks_of_their_own() {
        let mask = |seed, place| {
            let rules = Dropout {
                p: 0.5,
                seed,
                step: 0,
                sequences: [0u64].as_slice().into(),
                slices: Slices::default(),
            };
            (0..64).map(|i| rules.mask(place).factor(0, i)).collect::<Vec<f32>>()
        };
        assert_ne!(mask(1, "blocks.0.proj"), mask(1, "blocks.0.out"));
        assert_ne!(mask(1, "blocks.0.proj"), mask(1, "blocks.1.proj"));
        assert_ne!(mask(1, "blocks.0.proj"), mask(2, "blocks.0.proj"));
    }

    #[test]
    fn the_share_is_p_and_the_mean_is_kept() {
        let x = &ones(&[9], 0)[0];
        let dropped = x.iter().filter(|&&x| x == 0.0).count();
        // Four standard deviations of a binomial count.
        assert!(
            (dropped as f64 - 1000.0).abs() < 4.0 * (4000.0 * 0.25 * 0.75f64).sqrt(),
            "{dropped}"
        );
        assert!(x.iter().all(|&x| x == 0.0 || x == 1.0 / 0.75));
    }
}
