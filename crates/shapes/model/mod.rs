//! A transformer's shape, and what follows from it: its parameters by name, their number on a
//! rank, FLOPs.
//!
//! Every count goes over one list for each block, [`ModelShape::block_parameters`], and what is
//! before and after the blocks. A Llama differs from a GPT in ways that count here. Groups of
//! query heads share a key and value head (grouped-query attention, Ainslie et al., arXiv
//! 2305.13245). The MLP has three matrices (SwiGLU, Shazeer, arXiv 2002.05202). Positions have no
//! parameters (RoPE, Su et al., arXiv 2104.09864). Other published models combine the same choices
//! differently: [`Dense`] has them one by one.
//!
//! Reading order: `parameter.rs` (one of that list), `names.rs` (the list), `flops.rs`, `dense.rs`
//! (any dense decoder, by its choices), `experts.rs` (several MLPs in place of one), `rope.rs` (the
//! frequencies of rotary positions).

mod dense;
mod experts;
mod flops;
mod names;
mod parameter;
mod rope;

pub use dense::Dense;
pub use experts::{Capacity, Drops, Experts, Groups, Scores, Selection};
pub use parameter::{BlockParameter, Named, Part};
pub use rope::{Rope, RopeScaling};

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The numbers that define a transformer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Distinct tokens.
    pub vocabulary: usize,
    /// The longest sequence, in tokens. Trainings and plans take all sequences to be as long.
    pub block: usize,
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Width of the residual stream.
    pub embd: usize,
    /// Left out of files for this library's GPT, the only model whose shape they hold.
    #[serde(default, skip_serializing_if = "Family::is_gpt")]
    pub family: Family,
    /// Experts in place of each block's MLP; `None`: one MLP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
}

/// The layers of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Family {
    /// nanoGPT without biases, the GPT of this library: learned positions, GELU, and the token
    /// table as the head.
    #[default]
    Gpt,
    /// GPT-2 and GPT-3: the same with biases. They can be planned; no model here has them.
    Gpt2,
    /// RMSNorm, rotary positions, grouped-query attention, SwiGLU.
    Llama(LlamaExtra),
    /// Any other dense decoder, such as Qwen, BLOOM or a model of one's own. They can be planned;
    /// no model here has them.
    Dense(Dense),
}

/// The numbers that only a Llama has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LlamaExtra {
    /// Key and value heads. Each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Inner width of the MLP.
    pub ffn: usize,
    pub rope: Rope,
    /// Added to the mean square in each norm.
    pub norm_eps: f64,
    /// Whether the head is the token table.
    pub tied: bool,
}

/// What one rank holds of a model that pipeline stages and tensor ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Blocks of the rank's stage.
    pub layers: usize,
    /// How many of them have one MLP where the model's others have experts.
    pub dense: usize,
    /// Whether it is the first stage, which has the token table.
    pub first: bool,
    /// Whether it is the last stage, which has the head.
    pub last: bool,
    /// Tensor ranks that share the stage.
    pub tensor: usize,
    /// Rows of the token table with its padding, all tensor ranks together.
    pub rows: usize,
}

impl Family {
    fn is_gpt(&self) -> bool {
        *self == Family::Gpt
    }
}

impl ModelShape {
    /// A GPT-2 or GPT-3. Its MLP is four times as wide as the model.
    pub const fn gpt2(
        layers: usize,
        embd: usize,
        heads: usize,
        vocabulary: usize,
        block: usize,
    ) -> ModelShape {
        ModelShape {
            vocabulary,
            block,
            layers,
            heads,
            embd,
            family: Family::Gpt2,
            experts: None,
        }
    }

    /// Whether it is this library's GPT without experts.
    pub fn is_gpt(&self) -> bool {
        self.family == Family::Gpt && self.experts.is_none()
    }

    /// The numbers that only a Llama has.
    pub fn llama(&self) -> Option<&LlamaExtra> {
        match &self.family {
            Family::Llama(extra) => Some(extra),
            Family::Gpt | Family::Gpt2 | Family::Dense(_) => None,
        }
    }

    /// Key and value heads of a layer.
    pub fn kv_heads(&self) -> usize {
        self.dense().kv_heads
    }

    /// Inner width of the MLP.
    pub fn ffn(&self) -> usize {
        self.dense().ffn
    }

    /// Whether the head is the token table.
    pub fn tied(&self) -> bool {
        self.dense().tied
    }

    /// Logits of a position: one for each token, if the model has a head.
    pub fn logits(&self) -> usize {
        if self.dense().headless { 0 } else { self.vocabulary }
    }

    /// Width of one head.
    pub fn head(&self) -> usize {
        self.dense().head
    }

    /// Width of all queries of a position, and of attention's output before its matrix.
    pub fn q_width(&self) -> usize {
        self.heads * self.head()
    }

    /// Width of all keys of a position, and of all its values.
    pub fn kv_width(&self) -> usize {
        self.kv_heads() * self.head()
    }

    /// Parameters of the token table; an untied head has as many once more.
    pub fn table(&self) -> u64 {
        self.vocabulary as u64 * self.embd as u64
    }

    /// Parameters of the learned positions.
    pub fn positions(&self) -> u64 {
        self.dense().positions as u64 * self.embd as u64
    }

    /// Parameters of the last norm.
    fn last_norm(&self) -> u64 {
        self.dense().norm_vectors as u64 * self.embd as u64
    }

    /// Parameters of all blocks' matrices.
    pub fn matrices(&self) -> u64 {
        let of_kind = |(blocks, layer): (usize, usize)| {
            let all = self.block_parameters(layer).into_iter();
            let matrices = all.filter(|parameter| parameter.columns.is_some());
            blocks as u64 * matrices.map(|parameter| parameter.numel()).sum::<u64>()
        };
        self.kinds().into_iter().map(of_kind).sum()
    }

    /// Parameters of block `layer`.
    pub fn layer_parameters(&self, layer: usize) -> u64 {
        let all = self.block_parameters(layer);
        all.iter().map(BlockParameter::numel).sum()
    }

    /// All parameters. A tied head is counted once, with the token table.
    pub fn parameters(&self) -> u64 {
        self.stage_parameters(&(0..self.layers))
    }

    /// Parameters of the largest layer: a block of either kind, or the token table.
    pub fn largest_layer(&self) -> u64 {
        let blocks = self.kinds().map(|(_, layer)| self.layer_parameters(layer));
        blocks.into_iter().fold(self.table(), u64::max)
    }

    /// The portion of a pipeline's stage with `layers`, which no tensor ranks share.
    pub fn portion(&self, layers: &Range<usize>) -> Portion {
        Portion {
            layers: layers.len(),
            dense: self.dense_among(layers),
            first: layers.start == 0,
            last: layers.end == self.layers,
            tensor: 1,
            rows: self.vocabulary,
        }
    }

    /// Parameters of a rank that holds `portion` of the model, exactly if tensor ranks divide it
    /// evenly.
    ///
    /// Tensor ranks divide matrices, the token table's `rows` (with its padding), and the biases
    /// of column-parallel matrices. All have a copy of everything else: positions, norms, the
    /// biases of row-parallel matrices. The `first` stage has the token table. The `last` one has
    /// the head, which is a copy of a tied table, unless the table is here.
    pub fn parameters_on_a_rank(&self, portion: &Portion) -> f64 {
        let Portion { layers, dense, first, last, tensor, rows } = *portion;
        let t = tensor as f64;
        let on_a_rank = |parameter: BlockParameter| {
            parameter.numel() as f64 / if parameter.divided { t } else { 1.0 }
        };
        // A planner asks a million times: the kind of block that is not here is not counted.
        let of_kind = |blocks: usize, layer: usize| match blocks {
            0 => 0.0,
            _ => {
                let block = self.block_parameters(layer).into_iter().map(on_a_rank);
                blocks as f64 * block.sum::<f64>()
            }
        };
        let [(_, a_dense_one), (_, another)] = self.kinds();
        let table = rows as f64 / t * self.embd as f64;
        let ends = self.dense().ends.map(|numbers| numbers as f64);
        let mut all = of_kind(dense, a_dense_one) + of_kind(layers - dense, another);
        if first {
            all += table + self.positions() as f64 + ends[0];
        }
        if last {
            all += self.last_norm() as f64 + ends[1] / t;
        }
        if last && !(first && self.tied()) && !self.dense().headless {
            all += table;
        }
        all
    }

    /// Parameters of a pipeline's stage with `layers`, which no tensor ranks share.
    pub fn stage_parameters(&self, layers: &Range<usize>) -> u64 {
        self.parameters_on_a_rank(&self.portion(layers)) as u64
    }

    /// Tensors and parameters that weight decay shrinks: all matrices, and the two tables.
    pub fn decayed(&self) -> (usize, u64) {
        self.count(|dims| dims.len() > 1)
    }

    /// Tensors and parameters that do not decay: vectors, which are gains and biases.
    pub fn not_decayed(&self) -> (usize, u64) {
        self.count(|dims| dims.len() == 1)
    }

    /// Parameters in the matrices of blocks, without experts': those that Muon updates.
    pub fn hidden(&self) -> u64 {
        let of_block = |layer| {
            let all = self.block_parameters(layer).into_iter();
            let hidden = all.filter(|one| one.columns.is_some() && !one.part.is_expert());
            hidden.map(|one| one.numel()).sum::<u64>()
        };
        (0..self.layers).map(of_block).sum()
    }

    fn count(&self, counts: fn(&[usize]) -> bool) -> (usize, u64) {
        let all = self.named();
        let found = all.iter().filter(|(_, dims)| counts(dims));
        found.fold((0, 0), |(tensors, parameters), (_, dims)| {
            let numel: u64 = dims.iter().map(|&n| n as u64).product();
            (tensors + 1, parameters + numel)
        })
    }

    /// The figure that nanoGPT and the seed call num_params: without the position table.
    pub fn num_params(&self) -> u64 {
        self.parameters() - self.positions()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn llama(
        [vocabulary, embd, layers, heads, kv_heads, ffn]: [usize; 6],
        rope: Rope,
        tied: bool,
    ) -> ModelShape {
        let extra = LlamaExtra { kv_heads, ffn, rope, norm_eps: 1e-5, tied };
        let family = Family::Llama(extra);
        ModelShape {
            vocabulary,
            block: 512,
            layers,
            heads,
            embd,
            family,
            experts: None,
        }
    }

    /// A model of Karpathy's llama2.c.
    pub(crate) fn stories260k() -> ModelShape {
        llama([512, 64, 5, 8, 4, 172], Rope { theta: 10_000.0, scaling: None }, true)
    }

    pub(crate) fn llama_3_2_1b() -> ModelShape {
        let [factor, low_freq_factor, high_freq_factor] = [32.0, 1.0, 4.0];
        let original_block = 8192;
        let scaling =
            Some(RopeScaling { factor, low_freq_factor, high_freq_factor, original_block });
        llama([128_256, 2048, 16, 32, 8, 8192], Rope { theta: 500_000.0, scaling }, true)
    }

    /// With a head of its own.
    pub(crate) fn llama_3_8b() -> ModelShape {
        llama(
            [128_256, 4096, 32, 32, 8, 14_336],
            Rope { theta: 500_000.0, scaling: None },
            false,
        )
    }

    /// This library's GPT, with the seed's (wordplay) and nanoGPT's figures.
    #[test]
    fn a_gpt_has_the_published_counts() {
        let shape = |layers, heads, embd, block| ModelShape {
            vocabulary: 65,
            block,
            layers,
            heads,
            embd,
            family: Family::Gpt,
            experts: None,
        };
        let baby = shape(4, 4, 128, 64);
        let char = shape(6, 6, 384, 256);
        let wordplay = shape(12, 12, 768, 1024);
        assert_eq!((baby.num_params(), baby.parameters()), (795_904, 804_096));
        assert_eq!((char.num_params(), char.parameters()), (10_646_784, 10_745_088));
        assert_eq!((wordplay.num_params(), wordplay.parameters()), (85_003_776, 85_790_208));
        assert_eq!(wordplay.decayed(), (50, 85_771_008));
        assert_eq!(wordplay.not_decayed(), (25, 19_200));
        assert_eq!(baby.flops_per_token(), 5_168_640);
        assert_eq!(char.flops_per_token(), 70_958_592);
        // nanoGPT counts gains with the matrices. They are 2 h of each layer's 12 h².
        let apart = char.matmul_flops_per_token() as f64 / char.flops_per_token() as f64 - 1.0;
        assert!(apart != 0.0 && apart.abs() < 1e-3, "{apart}");
    }

    /// Stages hold the model together, and a copy of a tied table. So do tensor ranks, with copies
    /// of whatever they do not divide.
    #[test]
    fn ranks_hold_all_parameters_together() {
        let gpt = ModelShape { family: Family::Gpt, ..ModelShape::gpt2(8, 64, 4, 128, 64) };
        let llama = llama_3_8b();
        for shape in [gpt, ModelShape::gpt2(8, 64, 4, 128, 64), llama] {
            let all = shape.parameters();
            let layers = shape.layers;
            let stages = shape.stage_parameters(&(0..layers / 2))
                + shape.stage_parameters(&(layers / 2..layers));
            let copied = if shape.tied() { shape.table() } else { 0 };
            assert_eq!(stages, all + copied);

            let rank =
                shape.parameters_on_a_rank(&Portion { tensor: 4, ..shape.portion(&(0..layers)) });
            let vectors = shape.block_parameters(0).into_iter().filter(|p| !p.divided);
            let copies: u64 = vectors.map(|vector| vector.numel()).sum();
            let copies = layers as u64 * copies + shape.positions() + shape.last_norm();
            assert_eq!(4.0 * rank, (all + 3 * copies) as f64, "{shape:?}");
        }
    }

    /// A file has the five numbers of this library's GPT, and no family.
    #[test]
    fn a_gpts_file_is_what_it_always_was() {
        let text = r#"{"vocabulary":65,"block":64,"layers":4,"heads":2,"embd":32}"#;
        let shape: ModelShape = serde_json::from_str(text).unwrap();
        assert_eq!(shape.family, Family::Gpt);
        assert_eq!(serde_json::to_string(&shape).unwrap(), text);
        let llama = stories260k();
        let text = serde_json::to_string(&llama).unwrap();
        assert_eq!(serde_json::from_str::<ModelShape>(&text).unwrap(), llama);
    }
}
