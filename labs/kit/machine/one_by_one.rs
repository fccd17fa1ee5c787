//! One rank after the other measures something, so that ranks on shared cores do not slow each
//! other down.

use anyhow::Result;
use shardlab::comm::{Comm, Reduce};

/// What each rank has measured, in rank order and on every rank: `measure` returns seconds, and
/// other figures that are the same in every turn. Each rank has `turns` turns. The first warms up;
/// of the others the fastest counts, which other programs have disturbed least. All ranks of
/// `group` call it.
///
/// # Errors
/// Those of `measure`, and if the ranks cannot communicate.
pub fn one_by_one<const N: usize>(
    group: &Comm,
    turns: usize,
    mut measure: impl FnMut() -> Result<[f64; N]>,
) -> Result<Vec<[f64; N]>> {
    let ranks = group.size();
    let mut best = [f64::INFINITY; N];
    for turn in 0..turns * ranks {
        group.barrier()?;
        if turn % ranks != group.rank() {
            continue;
        }
        let figures = measure()?;
        if turn >= ranks {
            best.iter_mut().zip(figures).for_each(|(best, x)| *best = best.min(x));
        }
    }
    group.barrier()?;
    let mut all = vec![0.0; N * ranks];
    all[N * group.rank()..][..N].copy_from_slice(&best);
    group.all_reduce(&mut all, Reduce::Sum)?;
    Ok(all.as_chunks().0.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::launch;

    #[test]
    fn the_fastest_turn_counts_but_not_the_first() {
        let seen = launch::run(3, |comm| {
            let mut seconds = [0.5, 3.0, 2.0, 4.0].into_iter();
            one_by_one(&comm, 4, || {
                let seconds = seconds.next().unwrap_or(0.0);
                Ok([seconds + comm.rank() as f64, 7.0])
            })
        });
        assert_eq!(seen.unwrap(), vec![[[2.0, 7.0], [3.0, 7.0], [4.0, 7.0]]; 3]);
    }
}
