//! A pass with one mistake in it, most often in its attention.
//!
//! That attention is the library's gather: all blocks at once, attended to in the order in which a
//! ring would bring them. So it sends a ring's bytes, and without a mistake it would compute the
//! gather's bits.

use super::Break;
use candle_core::{Error, Result, Shape, bail};
use half::bf16;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::model::{Attend, Heads, Pass};
use shardlab::parallel::context::all_gather;
use shardlab::parallel::{ContextParallel, Strategy};
use shardlab::tensor::{
    Activation, BlockAttention, Documents, Dropout, Rows, Running, Slices, TensorOp, apply,
};
use std::sync::{Arc, OnceLock};

/// A rank's pass, with the mistake in it, if it is one of passes. `batch` is sliced already.
pub fn break_pass(
    broken: Break,
    context: &ContextParallel,
    strategy: &Strategy,
    batch: &Batch,
    pass: Pass,
) -> Pass {
    let group = context.group().clone();
    let length = batch.length * group.size();
    match broken {
        Break::Documents => {
            let attention = context.attention(length, &Documents::default());
            Pass { attention: Some(attention), ..pass }
        }
        Break::Positions => {
            let slices = Slices::default();
            let dropout = pass.dropout;
            let dropout = dropout.map(|dropout| Dropout { slices: slices.clone(), ..dropout });
            Pass { slices, dropout, ..pass }
        }
        Break::StaleKv | Break::NoRescale | Break::Bf16Partials => {
            let ranks = group.size();
            let slices = |rank| strategy.slicing.slices(length, ranks, rank);
            let slices = (0..ranks).map(slices).collect();
            let documents = batch.documents.clone();
            let attention = BrokenAttention { broken, group, length, slices, documents };
            Pass { attention: Some(Arc::new(attention)), ..pass }
        }
        Break::OwnCount => Pass { weight: None, ..pass },
        Break::Shift | Break::LossScale | Break::Contiguous => pass,
    }
}

/// What the pass of one rank brings along in place of the library's attention.
struct BrokenAttention {
    broken: Break,
    /// The ranks that share the sequences.
    group: Comm,
    /// Tokens of a whole sequence.
    length: usize,
    /// Of every rank.
    slices: Arc<[Slices]>,
    documents: Documents,
}

impl Attend for BrokenAttention {
    fn attend(
        &self,
        qkv: Activation,
        heads: &Heads,
        pass: &Pass,
        layer: &str,
    ) -> Result<Activation> {
        let (_, _, row) = qkv.dims3()?;
        let head = row / (heads.queries.len() + 2 * heads.kv);
        let queries = heads.queries.clone();
        let attention = BlockAttention::new(queries, heads.kv, head, self.length, pass.precision)
            .with_documents(&self.documents)
            .with_dropout(pass.dropout.as_ref(), layer);
        let layer = Layer {
            broken: self.broken,
            group: self.group.clone(),
            slices: self.slices.clone(),
            attention,
            log_sums: OnceLock::new(),
        };
        apply(&qkv, layer)
    }
}

/// One layer's attention.
struct Layer {
    broken: Break,
    group: Comm,
    slices: Arc<[Slices]>,
    attention: BlockAttention,
    /// The logarithm of each query's sum of e^score.
    log_sums: OnceLock<Vec<f32>>,
}

impl Layer {
    fn queries<'a>(&'a self, qkv: &'a [f32]) -> Rows<'a> {
        self.attention.queries(qkv, &self.slices[self.group.rank()])
    }

    /// The ranks in the order in which a ring would bring their blocks: this one, and those before.
    fn owners(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.group.rank();
        let ranks = self.group.size();
        (0..ranks).map(move |round| (rank + ranks - round) % ranks)
    }

    /// Adds a block's result to what there is without making that smaller, where the block brings a
    /// larger score.
    fn add_without_rescaling(&self, running: &mut Running, block: Running, rows: usize) {
        let heads = self.attention.heads.len();
        let head = self.attention.head;
        for (i, top) in running.tops.iter_mut().enumerate() {
            *top = top.max(block.tops[i]);
            let share = (block.tops[i] - *top).exp();
            if block.sums[i] == 0.0 {
                continue; // the query sees none of this block
            }
            running.sums[i] += share * block.sums[i];
            let (sequence, h, row) = (i / rows / heads, i / rows % heads, i % rows);
            let start = ((sequence * rows + row) * heads + h) * head;
            for at in start..start + head {
                running.out[at] += share * block.out[at];
            }
        }
    }

    fn round_partials(&self, numbers: &mut [f32]) {
        if self.broken == Break::Bf16Partials {
            numbers.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
        }
    }
}

impl TensorOp for Layer {
    const NAME: &'static str = "attention";
    const READS_RESULT: bool = true;

    fn forward(&self, qkv: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let q = self.queries(qkv);
        let rows = q.slices.rows();
        let &[sequences, _, _] = dims else {
            bail!("attention takes [sequences, positions, numbers], not {dims:?}")
        };
        let mine = self.attention.keys_and_values(qkv);
        let all = all_gather(&self.group, self.attention.products, &mine).map_err(Error::wrap)?;
        let mut running = self.attention.begin(sequences, rows);
        for owner in self.owners() {
            let numbers = &all[owner * mine.len()..(owner + 1) * mine.len()];
            let block = self.attention.block(numbers, &self.slices[owner]);
            if self.broken == Break::NoRescale {
                let mut of_block = self.attention.begin(sequences, rows);
                self.attention.attend(&mut of_block, q, block);
                self.add_without_rescaling(&mut running, of_block, rows);
            } else {
                self.attention.attend(&mut running, q, block);
            }
            self.round_partials(&mut running.out);
        }
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
        let log_sums = self.log_sums.get().map(Vec::as_slice).unwrap_or_default();
        let means = self.attention.means(y, dy, q.slices.rows());
        let mine = self.attention.keys_and_values(qkv);
        let all = all_gather(&self.group, self.attention.products, &mine).map_err(Error::wrap)?;
        let mut dqkv = vec![0.0; qkv.len()];
        let mut parts = vec![0.0; all.len()];
        for owner in self.owners() {
            let of_owner = owner * mine.len()..(owner + 1) * mine.len();
            let numbers = match self.broken {
                Break::StaleKv => &mine[..], // the first round's, in all rounds
                _ => &all[of_owner.clone()],
            };
            let block = self.attention.block(numbers, &self.slices[owner]);
            let dkv = &mut parts[of_owner];
            self.attention.gradients((q, block), dy, (log_sums, &means), (&mut dqkv, dkv));
            self.round_partials(dkv);
            self.round_partials(&mut dqkv);
        }
        let mut dkv = vec![0.0; mine.len()];
        self.group.reduce_scatter(&parts, &mut dkv, Reduce::Sum).map_err(Error::wrap)?;
        self.attention.put_behind_queries(&mut dqkv, &dkv);
        Ok(dqkv)
    }
}
