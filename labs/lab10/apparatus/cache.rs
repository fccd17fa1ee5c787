//! The keys and values of earlier positions, so that a new token computes only its own.
//!
//! To the model, a cache is attention that a pass brings along, as it is where ranks share a
//! sequence.

use candle_core::{Result, bail};
use shardlab::model::{Attend, Build, Heads, Llama, Pass};
use shardlab::tensor::math::causal_softmax;
use shardlab::tensor::matmul::{Matrix, Write, matmul};
use shardlab::tensor::{Activation, Slices};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys and values of a rank's layers and heads, for one sequence. Each forward pass appends
/// its positions.
pub struct KvCache {
    sizes: Sizes,
    /// The number of the first layer.
    first: usize,
    layers: Vec<Mutex<Layer>>,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    kv_heads: usize,
    head: usize,
    /// Positions that the cache can hold.
    capacity: usize,
}

impl Sizes {
    /// The offset of one head: [capacity, head] from there on.
    fn start(&self, kv_head: usize) -> usize {
        kv_head * self.capacity * self.head
    }
}

#[derive(Default)]
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Positions that are here.
    seen: usize,
}

impl KvCache {
    /// An empty cache for `model`'s layers, with room for `capacity` positions. `build` is the
    /// model's builder.
    pub fn new(model: &Llama, capacity: usize, build: &dyn Build) -> Arc<KvCache> {
        let kv_heads = build.heads(model.shape.kv_heads()).len();
        let sizes = Sizes { kv_heads, head: model.shape.head(), capacity };
        let numel = sizes.start(kv_heads);
        let layer = || Layer { keys: vec![0.0; numel], values: vec![0.0; numel], seen: 0 };
        let layers = model.layers.clone().map(|_| Mutex::new(layer())).collect();
        Arc::new(KvCache { sizes, first: model.layers.start, layers })
    }

    /// Positions that every layer holds: those of all complete forward passes.
    pub fn seen(&self) -> usize {
        self.layers.iter().map(|layer| locked(layer).seen).min().unwrap_or(0)
    }

    /// Positions that fit.
    pub fn capacity(&self) -> usize {
        self.sizes.capacity
    }

    /// A pass over the positions that follow those that are here.
    pub fn pass(self: &Arc<KvCache>) -> Pass {
        Pass {
            few_rows: true,
            slices: Slices::from(self.seen()),
            attention: Some(self.clone()),
            ..Pass::evaluate()
        }
    }

    /// A Llama's layers have numbers for names.
    fn layer(&self, name: &str) -> Result<MutexGuard<'_, Layer>> {
        let number: Option<usize> = name.parse().ok();
        let here = number.and_then(|number| self.layers.get(number.checked_sub(self.first)?));
        match here {
            Some(layer) => Ok(locked(layer)),
            None => bail!(
                "this cache is for layers {:?}, not {name}",
                self.first..self.first + self.layers.len()
            ),
        }
    }
}

impl Attend for KvCache {
    /// Appends the keys and values in `qkv` [1, new, (heads + 2 · kv_heads) · head] to `layer`, and
    /// lets the new queries attend to all positions up to their own: [1, new, heads · head].
    fn attend(
        &self,
        qkv: Activation,
        heads: &Heads,
        pass: &Pass,
        layer: &str,
    ) -> Result<Activation> {
        if pass.train {
            bail!("a pass with a cache has no backward pass");
        }
        let Sizes { kv_heads, head, capacity } = self.sizes;
        let heads = heads.queries.len();
        let row = (heads + 2 * kv_heads) * head;
        let (sequences, new, columns) = qkv.dims3()?;
        if (sequences, columns) != (1, row) {
            bail!("this cache is for one sequence and rows of {row} numbers, not {:?}", qkv.dims());
        }
        let mut layer = self.layer(layer)?;
        let seen = layer.seen;
        if seen + new > capacity {
            bail!("{seen} positions and {new} more do not fit into a cache of {capacity}");
        }
        if !pass.slices.positions(new).eq(seen..seen + new) {
            bail!("this cache has {seen} positions, and the pass has others than the next {new}");
        }
        let width = heads * head;
        layer.append(self.sizes, qkv.numbers(), width);
        let mut y = vec![0.0; new * width];
        for h in 0..heads {
            layer.head(self.sizes, (h, heads), qkv.numbers(), new, &mut y);
        }
        layer.seen += new;
        Activation::new(y, (1, new, width))
    }
}

impl Layer {
    /// Writes new keys and values after those that are here. They begin at column `width` of
    /// `rows`.
    fn append(&mut self, sizes: Sizes, rows: &[f32], width: usize) {
        let Sizes { kv_heads, head, .. } = sizes;
        for (i, row) in rows.chunks_exact(width + 2 * kv_heads * head).enumerate() {
            let (keys, values) = row[width..].split_at(kv_heads * head);
            for kv in 0..kv_heads {
                let at = sizes.start(kv) + (self.seen + i) * head;
                self.keys[at..at + head].copy_from_slice(&keys[kv * head..][..head]);
                self.values[at..at + head].copy_from_slice(&values[kv * head..][..head]);
            }
        }
    }

    /// Attention of query head `h` of `heads` over the positions that are here and `new` ones.
    fn head(
        &self,
        sizes: Sizes,
        (h, heads): (usize, usize),
        qkv: &[f32],
        new: usize,
        y: &mut [f32],
    ) {
        let Sizes { kv_heads, head, .. } = sizes;
        let row = (heads + 2 * kv_heads) * head;
        let all = self.seen + new;
        let start = sizes.start(h / (heads / kv_heads));
        let keys = Matrix::new(&self.keys[start..], all, head);
        let values = Matrix::new(&self.values[start..], all, head);
        let queries = Matrix::strided(&qkv[h * head..], new, head, row);
        let mut p = vec![0.0; new * all];
        matmul(&mut p, all, Write::Replace, queries, keys.t());
        // A backward pass would need the logarithms.
        causal_softmax(&mut p, &mut vec![0.0; new], self.seen, 1.0 / (head as f32).sqrt());
        let p = Matrix::new(&p, new, all);
        matmul(&mut y[h * head..], heads * head, Write::Replace, p, values);
    }
}

fn locked(layer: &Mutex<Layer>) -> MutexGuard<'_, Layer> {
    layer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::largest_difference;
    use shardlab::model::Plain;
    use shardlab::tensor::random::Stream;
    use shardlab::tensor::{self, Device, Precision, Tensor, grouped_attention};

    /// Positions that come in parts see what they see all at once, in every layer of the cache.
    #[test]
    fn a_cache_remembers_earlier_positions() {
        let shape = shapes::llamas::named("stories260k").unwrap();
        let model = Llama::stage(&shape, 3..5, &Plain).unwrap();
        let cache = KvCache::new(&model, 9, &Plain);
        let heads = Heads { queries: 0..shape.heads, kv: shape.kv_heads() };
        let row = (shape.heads + 2 * shape.kv_heads()) * shape.head();
        let qkv = |layer: &str| {
            let numbers = Stream::new(28, layer);
            let number = |i| 3.0 * numbers.uniform(i as u64) as f32 - 1.5;
            let numbers = (0..9 * row).map(number).collect();
            Tensor::from_vec(numbers, (1, 9, row), &Device::Cpu).unwrap()
        };
        let attend = |layer: &str, first, new, pass: Pass| {
            let part = qkv(layer).narrow(1, first, new).unwrap().contiguous().unwrap();
            let pass = Pass { slices: Slices::from(first), ..pass };
            tensor::node(&part, |part| cache.attend(part.clone(), &heads, &pass, layer))?
                .flatten_all()?
                .to_vec1::<f32>()
        };
        for layer in ["3", "4"] {
            let expected =
                grouped_attention(&qkv(layer), shape.heads, shape.kv_heads(), Precision::F32);
            let expected = expected.unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let mut found = Vec::new();
            for (first, new) in [(0, 4), (4, 1), (5, 3), (8, 1)] {
                assert_eq!(cache.layer(layer).unwrap().seen, first);
                found.extend(attend(layer, first, new, cache.pass()).unwrap());
            }
            let apart = largest_difference(&found, &expected);
            assert!(apart < 1e-6, "layer {layer}: {apart:e}");
        }
        assert_eq!((cache.seen(), cache.capacity()), (9, 9));
        let refused = |layer, first, pass| attend(layer, first, 1, pass).unwrap_err().to_string();
        let error = refused("3", 0, cache.pass());
        assert!(error.contains("9 positions and 1 more do not fit into a cache of 9"), "{error}");
        let error = refused("5", 0, cache.pass());
        assert!(error.contains("for layers 3..5, not 5"), "{error}");
        let error = refused("3", 0, Pass::training(None));
        assert!(error.contains("no backward pass"), "{error}");
    }

    #[test]
    fn a_pass_takes_the_next_positions() {
        let shape = shapes::llamas::named("stories260k").unwrap();
        let model = Llama::new(&shape).unwrap();
        model.params.allocate(1);
        let cache = KvCache::new(&model, 9, &Plain);
        let logits = |pass: &Pass| model.logits(&[1, 2], 2, pass).map(drop);
        let first = cache.pass();
        logits(&first).unwrap();
        logits(&cache.pass()).unwrap();
        let error = logits(&first).unwrap_err().to_string();
        assert!(error.contains("this cache has 4 positions"), "{error}");
    }
}
