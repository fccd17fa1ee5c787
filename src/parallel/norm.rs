//! The global norm of gradients that are sharded among ranks. It has the same bits as the norm of
//! the whole gradients.

use crate::comm::{Comm, Reduce};
use crate::optim::{largest, sums};
use crate::tensor::Stored;
use anyhow::Result;

/// [`global_norm`](crate::optim::global_norm) of sharded gradients. Each rank passes the slices of
/// its shard; `numel` counts the elements of all ranks. `groups` are this rank's groups along those
/// axes of a mesh that shard the gradients. Every rank gets the same bits as from `global_norm` of
/// the whole gradients, because the sums are exact.
///
/// # Errors
/// If a collective fails. A norm that is not finite is no error here:
/// [`clip_scale`](crate::optim::clip_scale) refuses it.
pub fn sharded_norm<T: Stored>(groups: &[&Comm], shard: &[&[T]], numel: usize) -> Result<f64> {
    let mut most = [largest(shard)];
    for group in groups {
        group.all_reduce(&mut most, Reduce::Max)?;
    }
    let mut both = sums(shard, most[0], numel);
    for group in groups {
        group.all_reduce(&mut both, Reduce::Sum)?;
    }
    Ok((both[0] + both[1]).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch;
    use crate::optim::global_norm;
    use crate::tensor::random::Stream;

    #[test]
    fn no_division_among_ranks_changes_a_bit() {
        for ranks in 1..=5usize {
            let stream = Stream::new(ranks as u64, "norm");
            let number = |i: u64| {
                (stream.uniform(2 * i) - 0.5) * 10f64.powf(12.0 * stream.uniform(2 * i + 1) - 9.0)
            };
            let g: Vec<f32> = (0..10_007).map(|i| number(i) as f32).collect();
            let whole = global_norm(&g);
            // Odd cuts, of which one is empty.
            let cut = |r: usize| {
                if r == 0 { 0 } else { (r.pow(2) * 10_007) / ranks.pow(2) }
            };
            let shares = launch::run(ranks, |comm| {
                let r = comm.rank();
                let (a, b) = g[cut(r)..cut(r + 1)].split_at((cut(r + 1) - cut(r)) / 3);
                sharded_norm(&[&comm], &[b, a], g.len())
            });
            assert!(shares.unwrap().iter().all(|norm| norm.to_bits() == whole.to_bits()));
            let mut turned = g.clone();
            turned.reverse();
            assert_eq!(global_norm(&turned).to_bits(), whole.to_bits());
        }
    }

    /// The unit of the sums follows from the largest gradient of all ranks. From the sum of the
    /// ranks' largest, it would be so coarse that these small ones were lost.
    #[test]
    fn many_small_gradients_beside_a_large_one_on_each_rank_count() {
        const EACH: usize = 12_500;
        let mut g = vec![9e-10f32; 8 * EACH];
        g.iter_mut().step_by(EACH).for_each(|g| *g = 1.0);
        let whole = global_norm(&g);
        assert!(whole > 8f64.sqrt());
        let shares = launch::run(8, |comm| {
            let shard = &g[EACH * comm.rank()..][..EACH];
            sharded_norm(&[&comm], &[shard], g.len())
        });
        for norm in shares.unwrap() {
            assert_eq!(norm.to_bits(), whole.to_bits(), "{norm} {whole}");
        }
    }

    /// With two axes, the largest gradient can be on a rank that has no group in common with some.
    /// With a unit of their own, one norm in eight is another.
    #[test]
    fn the_largest_gradient_may_be_in_another_group() {
        const EACH: usize = 25;
        let gradients = |seed: u64| -> Vec<f32> {
            let stream = Stream::new(seed, "norm");
            let scale = |rank: usize| if rank == 3 { 1.0 } else { 1e-4 };
            let number = |i: usize| stream.uniform(i as u64) as f32 * scale(i / EACH);
            (0..4 * EACH).map(number).collect()
        };
        launch::run(4, |comm| {
            let r = comm.rank();
            let row = comm.split(r as u64 / 2, 0)?;
            let column = comm.split(r as u64 % 2, 0)?;
            for seed in 0..100 {
                let g = gradients(seed);
                let norm = sharded_norm(&[&row, &column], &[&g[r * EACH..][..EACH]], g.len())?;
                assert_eq!(norm.to_bits(), global_norm(&g).to_bits(), "{seed}");
            }
            Ok(())
        })
        .unwrap();
    }
}
