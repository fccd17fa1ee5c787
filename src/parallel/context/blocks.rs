//! Attention of this rank's queries to every rank's keys and values: a block of them from each
//! rank, gathered at once or passed around a ring.
//!
//! Both ways compute with the same blocks in the same order, beginning with this rank's own, so
//! their results are bitwise the same. The gradients of keys and values are added up in another
//! order: by ranks in a gather, along the way in a ring.

use super::Exchange;
use crate::comm::{Comm, Reduce};
use crate::parallel::wire;
use crate::tensor::{BlockAttention, Rows, Slices, TensorOp};
use candle_core::{Error, Result, Shape, bail};
use std::sync::{Arc, OnceLock};

/// One layer's attention across the blocks of all ranks.
pub(super) struct AcrossBlocks {
    attention: BlockAttention,
    /// Of every rank.
    slices: Arc<[Slices]>,
    group: Comm,
    exchange: Exchange,
    /// The logarithm of each query's sum of e^score.
    log_sums: OnceLock<Vec<f32>>,
}

/// The messages of the two directions of a ring step.
const KEYS: u16 = 1;
const GRADIENTS: u16 = 2;

impl AcrossBlocks {
    pub fn new(
        attention: BlockAttention,
        slices: Arc<[Slices]>,
        group: &Comm,
        exchange: Exchange,
    ) -> AcrossBlocks {
        AcrossBlocks {
            attention,
            slices,
            group: group.clone(),
            exchange,
            log_sums: OnceLock::new(),
        }
    }

    fn queries<'a>(&'a self, qkv: &'a [f32]) -> Rows<'a> {
        self.attention.queries(qkv, &self.slices[self.group.rank()])
    }

    /// The rank whose block is here in `round`, if blocks move to the next rank in every round.
    fn owner(&self, round: usize) -> usize {
        let ranks = self.group.size();
        (self.group.rank() + ranks - round) % ranks
    }

    fn next(&self) -> usize {
        (self.group.rank() + 1) % self.group.size()
    }

    fn previous(&self) -> usize {
        self.owner(1)
    }

    /// Calls `each` with the round and its block of keys and values, once for each rank.
    fn rounds(
        &self,
        label: &'static str,
        mut kv: Vec<f32>,
        mut each: impl FnMut(usize, Rows) -> Result<()>,
    ) -> Result<()> {
        let group = self.group.labelled(label).tagged(KEYS);
        let ranks = self.group.size();
        let precision = self.attention.products;
        if self.exchange == Exchange::Gather {
            let all = wire::all_gather(&group, precision, &kv).map_err(Error::wrap)?;
            for round in 0..ranks {
                let owner = self.owner(round);
                let kv = &all[owner * kv.len()..(owner + 1) * kv.len()];
                each(round, self.attention.block(kv, &self.slices[owner]))?;
            }
            return Ok(());
        }
        for round in 0..ranks {
            let more = round + 1 < ranks;
            if more {
                // It travels while this rank computes.
                wire::send(&group, precision, &kv, self.next()).map_err(Error::wrap)?;
            }
            each(round, self.attention.block(&kv, &self.slices[self.owner(round)]))?;
            if more {
                wire::recv(&group, precision, &mut kv, self.previous()).map_err(Error::wrap)?;
            }
        }
        Ok(())
    }
}

impl TensorOp for AcrossBlocks {
    const NAME: &'static str = "attention";
    const READS_RESULT: bool = true;

    fn forward(&self, qkv: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let q = self.queries(qkv);
        let rows = q.slices.rows();
        let &[sequences, here, row] = dims else {
            bail!("attention takes [sequences, positions, numbers], not {dims:?}")
        };
        if here != rows || row != q.stride {
            bail!("attention of {rows} positions with rows of {}: {dims:?}", q.stride);
        }
        let mut running = self.attention.begin(sequences, rows);
        self.rounds("forward pass", self.attention.keys_and_values(qkv), |_, block| {
            self.attention.attend(&mut running, q, block);
            Ok(())
        })?;
        let (y, log_sums) = self.attention.finish(running, rows);
        self.log_sums.set(log_sums).ok();
        Ok((y, (sequences, rows, self.attention.width()).into()))
    }

    fn input_gradient(&self, _: &[f32], _: &[usize], _: &[f32]) -> Result<Vec<f32>> {
        bail!("attention's backward pass needs its result")
    }

    fn gradient_beside(
        &self,
        qkv: &[f32],
        _dims: &[usize],
        y: &[f32],
        dy: &[f32],
    ) -> Result<Vec<f32>> {
        let q = self.queries(qkv);
        let ranks = self.group.size();
        let log_sums = self.log_sums.get().map(Vec::as_slice).unwrap_or_default();
        let means = self.attention.means(y, dy, q.slices.rows());
        let mut dqkv = vec![0.0; qkv.len()];
        let kv = self.attention.keys_and_values(qkv);
        let len = kv.len();
        // The gradients of all ranks' keys and values, as far as this rank's queries make them; in
        // a ring, only those of this rank's.
        let gathers = self.exchange == Exchange::Gather;
        let mut parts = vec![0.0; kv.len() * if gathers { ranks } else { 1 }];
        let group = self.group.labelled("backward pass").tagged(GRADIENTS);
        self.rounds("backward pass", kv, |round, block| {
            let mut dkv = vec![0.0; len];
            self.attention
                .gradients((q, block), dy, (log_sums, &means), (&mut dqkv, &mut dkv));
            let part = if gathers { self.owner(round) } else { 0 };
            if gathers || round == 0 {
                parts[part * len..(part + 1) * len].copy_from_slice(&dkv);
                return Ok(());
            }
            // A block's gradients follow it around the ring, one round later.
            if round > 1 {
                add(&mut dkv, &group, self.previous())?;
            }
            group.send(&dkv, self.next()).map_err(Error::wrap)
        })?;
        if ranks > 1 && gathers {
            let mut sum = vec![0.0; len];
            group.reduce_scatter(&parts, &mut sum, Reduce::Sum).map_err(Error::wrap)?;
            parts = sum;
        } else if ranks > 1 {
            add(&mut parts, &group, self.previous())?;
        }
        self.attention.put_behind_queries(&mut dqkv, &parts);
        Ok(dqkv)
    }
}

/// Adds the gradients that `from` sends.
fn add(sum: &mut [f32], group: &Comm, from: usize) -> Result<()> {
    let mut arrived = vec![0.0; sum.len()];
    group.recv(&mut arrived, from).map_err(Error::wrap)?;
    sum.iter_mut().zip(&arrived).for_each(|(sum, x)| *sum += x);
    Ok(())
}
