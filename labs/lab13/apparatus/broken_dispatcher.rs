//! A way to the experts and back with a mistake on it.

use super::broken::Break;
use candle_core::{Error, Result};
use shardlab::comm::Comm;
use shardlab::model::{Counts, Dispatching, Pass, TokenDispatcher};
use shardlab::tensor::{Activation, picked};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The library's way, but for one mistake.
pub struct BrokenDispatcher {
    pub broken: Break,
    pub right: Arc<dyn TokenDispatcher>,
    /// The ranks that share the experts.
    pub group: Comm,
    /// Copies that were counted on the way.
    pub counted: Arc<AtomicU64>,
}

impl TokenDispatcher for BrokenDispatcher {
    fn dispatch(&self, copies: Activation, counts: &[usize], pass: &Pass) -> Result<Dispatching> {
        match self.broken {
            // A layer that counts where it dispatches counts again when it runs again.
            Break::CountedTwice => {
                self.counted.fetch_add(counts.iter().sum::<usize>() as u64, Relaxed);
            }
            Break::UnequalBuffers => self.exchange_padded(&copies, counts)?,
            _ => (),
        }
        self.right.dispatch(copies, counts, pass)
    }

    fn combine(&self, results: Activation, arrived: &Counts, pass: &Pass) -> Result<Activation> {
        let results = match self.broken {
            Break::SkipEmpty if arrived.arriving().iter().sum::<usize>() == 0 => {
                // "Nothing to send back": but its own tokens' results are on their way.
                let copies: usize = arrived.sent.iter().sum();
                let (_, width) = results.dims2()?;
                return Activation::new(vec![0.0; copies * width], (copies, width));
            }
            Break::WrongUnpermute => picked(&results, arrived.places().concat())?,
            _ => results,
        };
        self.right.combine(results, arrived, pass)
    }
}

impl BrokenDispatcher {
    /// Sends each rank a buffer as large as this rank's largest part. Ranks whose largest parts
    /// have equal lengths get through.
    fn exchange_padded(&self, copies: &Activation, counts: &[usize]) -> Result<()> {
        let ranks = self.group.size();
        let parts: Vec<usize> = counts
            .chunks(counts.len() / ranks)
            .map(|of_rank| of_rank.iter().sum())
            .collect();
        let largest = parts.iter().max().copied().unwrap_or(0);
        let (_, width) = copies.dims2()?;
        let mut padded = vec![0f32; ranks * largest * width];
        let mut from = 0;
        for (to, part) in parts.iter().map(|rows| rows * width).enumerate() {
            let numbers = &copies.numbers()[from..from + part];
            padded[to * largest * width..][..part].copy_from_slice(numbers);
            from += part;
        }
        let mut arrived = vec![0f32; padded.len()];
        let group = self.group.labelled("dispatch, padded");
        group.all_to_all(&padded, &mut arrived).map_err(Error::wrap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks have sent 2 and 1, and 1 and 2 copies for two experts.
    #[test]
    fn the_experts_order_is_another_one() {
        let order = |arrived: &[Vec<usize>]| {
            Counts { sent: Vec::new(), arrived: arrived.to_vec() }.places().concat()
        };
        assert_eq!(order(&[vec![2, 1], vec![1, 2]]), [0, 1, 3, 2, 4, 5]);
        assert_eq!(order(&[vec![2], vec![1]]), [0, 1, 2]);
        assert!(order(&[]).is_empty());
    }
}
