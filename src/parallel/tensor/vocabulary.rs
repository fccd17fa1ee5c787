//! A token table whose rows are sharded: the embedding, and the head with a loss that never gathers
//! the logits.
//!
//! Each rank has the logits of its part of the vocabulary. The cross-entropy needs three numbers of
//! each row that only all ranks together know: the largest logit, the sum of e^(logit - largest),
//! and the target's logit. Two all-reduces of one and two numbers per token take the place of a
//! gathered row of the whole vocabulary.

use super::{Parallel, TensorParallel};
use crate::comm::{Comm, Reduce};
use crate::model::{Entry, Exit, Pass};
use crate::parallel::wire::exchange_axes;
use crate::tensor::math::{exp, exp_sum, max};
use crate::tensor::{self, Activation, IGNORED, Param, TensorOp, apply, counted, fit, rows};
use candle_core::{Error, Result, Shape, bail};
use std::ops::Range;
use std::sync::OnceLock;

/// The vocabulary with padding: the next multiple of `multiple` × `ranks`. Megatron-LM pads to
/// multiples of 128 per rank, so that matrices keep sizes that a GPU likes: 50,257 becomes 50,432
/// on 2 ranks.
pub fn padded(vocabulary: usize, ranks: usize, multiple: usize) -> usize {
    vocabulary.next_multiple_of((multiple * ranks).max(1))
}

/// Token plus position: each rank looks up the tokens that it has, and the sum over ranks is the
/// embedding.
pub(super) struct VocabularyEmbedding {
    pub tokens: Param,
    pub positions: Option<Param>,
    pub leave: Parallel,
    pub build: TensorParallel,
}

impl Entry for VocabularyEmbedding {
    fn forward(&self, ids: &[u32], length: usize, pass: &Pass) -> Result<Activation> {
        let x = self.leave.apply(pass.embed(ids, length, &self.tokens)?, pass)?;
        let x = match &self.positions {
            Some(positions) => {
                tensor::add_positions(x, positions, &self.build.stream(&pass.slices, length))?
            }
            None => x,
        };
        pass.rounded(pass.drop(x, "embedding")?)
    }
}

/// The head over this rank's part of the vocabulary, and the cross-entropy over the whole.
pub(super) struct VocabularyHead {
    pub enter: Parallel,
    pub weight: Param,
}

impl VocabularyHead {
    /// This rank's columns of the logits: [sequences, length, part of the vocabulary].
    fn local(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        pass.linear(&self.enter.apply(x.clone(), pass)?, &self.weight)
    }
}

impl Exit for VocabularyHead {
    fn logits(&self, x: &Activation, pass: &Pass) -> Result<Activation> {
        let group = &self.enter.group;
        let local = self.local(x, pass)?;
        let (sequences, length, columns) = local.dims3()?;
        let n = sequences * length;
        let all = group.gathered(local.numbers()).map_err(Error::wrap)?;
        let mut rows = vec![0.0; all.len()];
        exchange_axes(&all, [group.size(), n], &mut rows);
        // Padding is last.
        let vocabulary = self.weight.spec().whole.shape[0];
        let rows = rows.chunks_exact(columns * group.size());
        let logits = rows.flat_map(|row| &row[..vocabulary]).copied().collect();
        Activation::new(logits, (sequences, length, vocabulary))
    }

    fn loss(&self, x: &Activation, targets: &[u32], pass: &Pass) -> Result<Activation> {
        let spec = self.weight.spec();
        let loss = VocabularyCrossEntropy {
            group: self.enter.group.clone(),
            here: spec.cut.row_range(&spec.whole),
            vocabulary: spec.whole.shape[0],
            targets: targets.to_vec(),
            log_sums: OnceLock::new(),
        };
        apply(&self.local(x, pass)?, loss)
    }
}

/// The mean of `-ln softmax(logits)[target]` over all rows, of which each rank has the columns of
/// its tokens, then padding.
struct VocabularyCrossEntropy {
    group: Comm,
    /// The tokens of this rank's columns.
    here: Range<usize>,
    vocabulary: usize,
    targets: Vec<u32>,
    /// For every row, the logarithm of the sum of e^logit over all ranks.
    log_sums: OnceLock<Vec<f32>>,
}

impl VocabularyCrossEntropy {
    /// A row's target among this rank's columns.
    fn column(&self, target: u32) -> Option<usize> {
        let target = target as usize;
        self.here.contains(&target).then(|| target - self.here.start)
    }
}

impl TensorOp for VocabularyCrossEntropy {
    const NAME: &'static str = "cross-entropy";

    fn forward(&self, logits: &[f32], dims: &[usize]) -> Result<(Vec<f32>, Shape)> {
        let (n, columns) = rows(dims)?;
        if !fit(&self.targets, n, self.vocabulary) {
            bail!(
                "{n} rows need {n} targets below {}, got {}",
                self.vocabulary,
                self.targets.len()
            );
        }
        // ANCHOR: loss
        let row = |i: usize| &logits[i * columns..][..self.here.len()];
        let mut tops: Vec<f32> = (0..n).map(|i| max(row(i))).collect();
        self.group.all_reduce(&mut tops, Reduce::Max).map_err(Error::wrap)?;
        // First every row's sum of exponentials, then every row's target.
        let mut both = vec![0.0; 2 * n];
        let mut scratch = vec![0.0; self.here.len()];
        for (i, (&top, &target)) in tops.iter().zip(&self.targets).enumerate() {
            scratch.copy_from_slice(row(i));
            both[i] = exp_sum(&mut scratch, top);
            both[n + i] = self.column(target).map_or(0.0, |column| row(i)[column]);
        }
        self.group.all_reduce(&mut both, Reduce::Sum).map_err(Error::wrap)?;
        let (sums, chosen) = both.split_at(n);
        let log_sums: Vec<f32> = tops.iter().zip(sums).map(|(top, sum)| top + sum.ln()).collect();
        let rows = log_sums
            .iter()
            .zip(chosen)
            .zip(&self.targets)
            .filter(|(_, target)| **target != IGNORED);
        let sum: f64 = rows.map(|((log_sum, logit), _)| f64::from(log_sum - logit)).sum();
        // ANCHOR_END: loss
        self.log_sums.set(log_sums).ok();
        Ok((vec![(sum / counted(&self.targets).max(1) as f64) as f32], Shape::from(())))
    }

    /// `(softmax(logits) - one_hot(target)) / rows`: every rank has what it needs for its columns.
    fn input_gradient(&self, logits: &[f32], dims: &[usize], dloss: &[f32]) -> Result<Vec<f32>> {
        let (_, columns) = rows(dims)?;
        let log_sums = self.log_sums.get().map(Vec::as_slice).unwrap_or_default();
        let scale = dloss[0] / counted(&self.targets).max(1) as f32;
        let mut dlogits = vec![0.0; logits.len()];
        let both = dlogits.chunks_exact_mut(columns).zip(logits.chunks_exact(columns));
        let rows = both
            .zip(log_sums.iter().zip(&self.targets))
            .filter(|(_, (_, target))| **target != IGNORED);
        for ((dlogits, logits), (log_sum, &target)) in rows {
            // Padding has no part in the sum, and no gradient.
            let here = dlogits.iter_mut().zip(logits).take(self.here.len());
            here.for_each(|(d, logit)| *d = scale * exp(logit - log_sum));
            if let Some(column) = self.column(target) {
                dlogits[column] -= scale;
            }
        }
        Ok(dlogits)
    }
}
