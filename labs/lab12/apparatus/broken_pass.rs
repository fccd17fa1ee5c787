//! A pass with one mistake in it, most often in its attention.
//!
//! That attention is the library's gather: all blocks at once, attended to in the order in which a
//! ring would bring them. So it sends a ring's bytes, and without a mistake it would compute the
//! gather's bits.

use super::Break;
use candle_core::{Error, Result, Shape, Tensor, bail};
use half::bf16;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::model::{Attend, Heads, Pass};
use shardlab::parallel::{ContextParallel, Strategy};
use shardlab::tensor::{
    BlockAttention, Documents, Dropout, Precision, Rows, Running, Slices, Stored, TensorOp, apply,
    read,
};
use std::fmt;
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

impl fmt::Debug for BrokenAttention {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "attention with the mistake {:?}", self.broken)
    }
}

impl Attend for BrokenAttention {
    fn attend(&self, qkv: Tensor, heads: &Heads, pass: &Pass, layer: &str) -> Result<Tensor> {
        let head = qkv.dim(2)? / (heads.queries.len() + 2 * heads.kv);
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
    /// The queries at the front of the rows of qkv.
    fn queries<'a>(&'a self, qkv: &'a [f32]) -> Rows<'a> {
        let stride = self.attention.width() + 2 * self.attention.kv_width();
        Rows {
            numbers: qkv,
            stride,
            slices: &self.slices[self.group.rank()],
        }
    }

    /// This rank's own keys and values [sequences, rows, keys | values].
    fn mine(&self, qkv: &[f32]) -> Vec<f32> {
        let width = self.attention.width();
        let row = width + 2 * self.attention.kv_width();
        qkv.chunks_exact(row).flat_map(|row| &row[width..]).copied().collect()
    }

    /// All ranks' keys and values, in the type in which the library sends them.
    fn gather(&self, mine: &[f32]) -> Result<Vec<f32>> {
        fn gather<T: Stored>(group: &Comm, mine: &[f32]) -> Result<Vec<f32>> {
            let mut all = vec![T::zeroed(); group.size() * mine.len()];
            group.all_gather(&T::narrowed(mine), &mut all).map_err(Error::wrap)?;
            Ok(T::widened(all))
        }
        match self.attention.products {
            Precision::F32 => gather::<f32>(&self.group, mine),
            Precision::Bf16 => gather::<bf16>(&self.group, mine),
        }
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

    fn forward(&self, qkv: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let q = self.queries(qkv);
        let rows = q.slices.rows();
        let &[sequences, _, _] = dims else {
            bail!("attention takes [sequences, positions, numbers], not {dims:?}")
        };
        let mine = self.mine(qkv);
        let all = self.gather(&mine)?;
        let stride = 2 * self.attention.kv_width();
        let mut running = self.attention.begin(sequences, rows);
        for owner in self.owners() {
            let numbers = &all[owner * mine.len()..(owner + 1) * mine.len()];
            let block = Rows { numbers, stride, slices: &self.slices[owner] };
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
        y: &Tensor,
        dy: &[f32],
    ) -> Result<Vec<f32>> {
        let q = self.queries(qkv);
        let log_sums = self.log_sums.get().map(Vec::as_slice).unwrap_or_default();
        let means = read(y, |y| Ok(self.attention.means(y, dy, q.slices.rows())))?;
        let mine = self.mine(qkv);
        let all = self.gather(&mine)?;
        let stride = 2 * self.attention.kv_width();
        let mut dqkv = vec![0.0; qkv.len()];
        let mut parts = vec![0.0; all.len()];
        for owner in self.owners() {
            let of_owner = owner * mine.len()..(owner + 1) * mine.len();
            let numbers = match self.broken {
                Break::StaleKv => &mine[..], // the first round's, in all rounds
                _ => &all[of_owner.clone()],
            };
            let block = Rows { numbers, stride, slices: &self.slices[owner] };
            let dkv = &mut parts[of_owner];
            self.attention.gradients((q, block), dy, (log_sums, &means), (&mut dqkv, dkv));
            self.round_partials(dkv);
            self.round_partials(&mut dqkv);
        }
        let mut dkv = vec![0.0; mine.len()];
        self.group.reduce_scatter(&parts, &mut dkv, Reduce::Sum).map_err(Error::wrap)?;
        let width = self.attention.width();
        let rows = dqkv.chunks_exact_mut(q.stride);
        for (row, dkv) in rows.zip(dkv.chunks_exact(stride)) {
            row[width..].copy_from_slice(dkv);
        }
        Ok(dqkv)
    }
}
