//! A transformer's shape, and what follows from it: its parameters by name, their number on a rank,
//! FLOPs.
//!
//! Every count goes over one list, [`ModelShape::block_parameters`], and what is before and after
//! the blocks. Two families are told apart. A Llama differs from a GPT in three ways that count
//! here. Groups of query heads share a key and value head (grouped-query attention, Ainslie et al.,
//! arXiv 2305.13245). The MLP has three matrices (SwiGLU, Shazeer, arXiv 2002.05202). Positions
//! have no parameters (RoPE, Su et al., arXiv 2104.09864). Other published models combine the same
//! choices differently: [`Dense`] has them one by one.
//!
//! Reading order: `dense.rs` (any dense decoder, by its choices), `rope.rs` (the frequencies of
//! rotary positions), `presets.rs` (Llamas by name).

mod dense;
mod presets;
mod rope;

pub use dense::Dense;
pub use presets::PRESETS;
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

/// A parameter's name, and its shape: rows and columns, or the length of a vector.
pub type Named = (String, Vec<usize>);

/// One of a block's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockParameter {
    /// Inside of the block: `qkv.weight`.
    pub name: &'static str,
    pub rows: usize,
    /// `None`: a vector, such as a norm's gain.
    pub columns: Option<usize>,
    /// Whether tensor ranks divide it. Each has a copy of all others.
    pub divided: bool,
}

impl BlockParameter {
    const fn matrix(name: &'static str, rows: usize, columns: usize) -> BlockParameter {
        BlockParameter { name, rows, columns: Some(columns), divided: true }
    }

    /// A gain, or the bias of a norm or of a row-parallel matrix.
    const fn copied(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter { name, rows: length, columns: None, divided: false }
    }

    /// The bias of a column-parallel matrix, of whose rows each tensor rank has some.
    const fn bias(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter { divided: true, ..BlockParameter::copied(name, length) }
    }

    pub fn dims(&self) -> Vec<usize> {
        [self.rows].into_iter().chain(self.columns).collect()
    }

    pub fn numel(&self) -> u64 {
        self.rows as u64 * self.columns.unwrap_or(1) as u64
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
        ModelShape { vocabulary, block, layers, heads, embd, family: Family::Gpt2 }
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

    /// The parameters of every block, in the order of the model. A Llama's have their names in
    /// Hugging Face's files.
    pub fn block_parameters(&self) -> Vec<BlockParameter> {
        let matrix = BlockParameter::matrix;
        let copied = BlockParameter::copied;
        let bias = BlockParameter::bias;
        let d = self.embd;
        let ffn = 4 * d;
        match self.family {
            Family::Gpt => vec![
                copied("ln1.weight", d),
                copied("ln2.weight", d),
                matrix("qkv.weight", 3 * d, d),
                matrix("proj.weight", d, d),
                matrix("fc.weight", ffn, d),
                matrix("out.weight", d, ffn),
            ],
            Family::Gpt2 => vec![
                copied("ln1.weight", d),
                copied("ln1.bias", d),
                copied("ln2.weight", d),
                copied("ln2.bias", d),
                matrix("qkv.weight", 3 * d, d),
                bias("qkv.bias", 3 * d),
                matrix("proj.weight", d, d),
                copied("proj.bias", d),
                matrix("fc.weight", ffn, d),
                bias("fc.bias", ffn),
                matrix("out.weight", d, ffn),
                copied("out.bias", d),
            ],
            Family::Llama(_) | Family::Dense(_) => dense::block(self),
        }
    }

    /// The prefix of a block's parameters.
    pub fn block_name(&self, layer: usize) -> String {
        match self.family {
            Family::Gpt | Family::Gpt2 => format!("blocks.{layer}"),
            Family::Llama(_) | Family::Dense(_) => format!("model.layers.{layer}"),
        }
    }

    /// A parameter of block `layer`, by its name inside of the block.
    ///
    /// # Panics
    ///
    /// If the family's blocks have no parameter of this name.
    pub fn block_named(&self, layer: usize, part: &str) -> Named {
        let all = self.block_parameters();
        let found = all.iter().find(|parameter| parameter.name == part);
        let dims = found.map(BlockParameter::dims);
        let name = format!("{}.{part}", self.block_name(layer));
        (name, dims.expect("a model names its own parameters"))
    }

    /// The token table.
    pub fn table_named(&self) -> Named {
        let name = match self.family {
            Family::Gpt | Family::Gpt2 => "wte.weight",
            Family::Llama(_) | Family::Dense(_) => "model.embed_tokens.weight",
        };
        (name.to_string(), vec![self.vocabulary, self.embd])
    }

    /// The table of learned positions, if the model has one.
    pub fn positions_named(&self) -> Option<Named> {
        let rows = self.dense().positions;
        (rows > 0).then(|| ("wpe.weight".to_string(), vec![rows, self.embd]))
    }

    /// The norm between the token table and the first block, if the model has one.
    fn embedding_norm_named(&self) -> Vec<Named> {
        let dense = self.dense();
        let vectors = if dense.embedding_norm { dense.norm_vectors } else { 0 };
        let names = ["model.embed_norm.weight", "model.embed_norm.bias"];
        let named = |name: &str| (name.to_string(), vec![self.embd]);
        names.into_iter().take(vectors).map(named).collect()
    }

    /// The last norm's gain, and in GPT-2 its bias.
    pub fn last_norm_named(&self) -> Vec<Named> {
        let names: &[&str] = match self.family {
            Family::Gpt => &["lnf.weight"],
            Family::Gpt2 => &["lnf.weight", "lnf.bias"],
            Family::Llama(_) => &["model.norm.weight"],
            Family::Dense(dense) => &["model.norm.weight", "model.norm.bias"][..dense.norm_vectors],
        };
        let named = |name: &&str| (name.to_string(), vec![self.embd]);
        names.iter().map(named).collect()
    }

    /// The head's own matrix, unless it is the token table.
    pub fn head_named(&self) -> Option<Named> {
        let dims = vec![self.vocabulary, self.embd];
        (!self.tied()).then(|| ("lm_head.weight".to_string(), dims))
    }

    /// All parameters, in the order of the model.
    pub fn named(&self) -> Vec<Named> {
        let mut all = vec![self.table_named()];
        all.extend(self.positions_named());
        all.extend(self.embedding_norm_named());
        let block = self.block_parameters();
        for layer in 0..self.layers {
            let prefix = self.block_name(layer);
            let named = |part: &BlockParameter| (format!("{prefix}.{}", part.name), part.dims());
            all.extend(block.iter().map(named));
        }
        all.extend(self.last_norm_named());
        all.extend(self.head_named());
        all
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

    /// Parameters of the norm after the token table.
    fn embedding_norm(&self) -> u64 {
        if self.dense().embedding_norm {
            self.last_norm()
        } else {
            0
        }
    }

    /// Parameters of a block's matrices.
    pub fn block_matrices(&self) -> u64 {
        let all = self.block_parameters().into_iter();
        let matrices = all.filter(|parameter| parameter.columns.is_some());
        matrices.map(|parameter| parameter.numel()).sum()
    }

    /// Parameters of one block.
    pub fn per_layer(&self) -> u64 {
        let all = self.block_parameters();
        all.iter().map(BlockParameter::numel).sum()
    }

    /// All parameters. A tied head is counted once, with the token table.
    pub fn parameters(&self) -> u64 {
        let tables = if self.tied() { 1 } else { 2 };
        self.layers as u64 * self.per_layer()
            + tables * self.table()
            + self.positions()
            + self.embedding_norm()
            + self.last_norm()
    }

    /// Parameters of the largest layer: a block, or the token table.
    pub fn largest_layer(&self) -> u64 {
        self.per_layer().max(self.table())
    }

    /// The portion of a pipeline's stage with `layers`, which no tensor ranks share.
    pub fn portion(&self, layers: &Range<usize>) -> Portion {
        Portion {
            layers: layers.len(),
            first: layers.start == 0,
            last: layers.end == self.layers,
            tensor: 1,
            rows: self.vocabulary,
        }
    }

    // ANCHOR: exact
    /// Parameters of a rank that holds `portion` of the model, exactly if tensor ranks divide it
    /// evenly.
    ///
    /// Tensor ranks divide matrices, the token table's `rows` (with its padding), and the biases of
    /// column-parallel matrices. All have a copy of everything else: positions, norms, the biases
    /// of row-parallel matrices. The `first` stage has the token table. The `last` one has the
    /// head, which is a copy of a tied table, unless the table is here.
    pub fn parameters_on_a_rank(&self, portion: &Portion) -> f64 {
        let Portion { layers, first, last, tensor, rows } = *portion;
        let t = tensor as f64;
        let mut block = 0.0;
        for parameter in self.block_parameters() {
            let ranks = if parameter.divided { t } else { 1.0 };
            block += parameter.numel() as f64 / ranks;
        }
        let table = rows as f64 / t * self.embd as f64;
        let mut all = layers as f64 * block;
        if first {
            all += table + (self.positions() + self.embedding_norm()) as f64;
        }
        if last {
            all += self.last_norm() as f64;
        }
        if last && !(first && self.tied()) {
            all += table;
        }
        all
    }
    // ANCHOR_END: exact

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

    /// FLOPs of the forward pass for one token that multiplies with `parameters` and sees `seen`
    /// positions: 2 for each parameter, a multiplication and an addition, and 4 · layers · width ·
    /// seen for attention's scores and weighted sum, where all heads together are as wide as the
    /// model in most families. Grouped-query attention changes the cache's size, not these. The
    /// backward pass takes twice as many.
    ///
    /// No discount for causality. All rules below are this one. They differ in the parameters and
    /// positions that they count.
    fn forward_flops(&self, parameters: u64, seen: usize) -> u64 {
        2 * parameters + 4 * self.layers as u64 * self.q_width() as u64 * seen as u64
    }

    /// FLOPs of training on one token as nanoGPT counts them: of all parameters outside the
    /// position table, and of attention (Chowdhery et al., arXiv 2204.02311, appendix B).
    pub fn flops_per_token(&self) -> u64 {
        3 * self.forward_flops(self.num_params(), self.block)
    }

    /// FLOPs of training on one token as Megatron-LM counts them: of only the matrices and the head
    /// (Narayanan et al., arXiv 2104.04473, equation 3; Korthikanti et al., arXiv 2205.05198,
    /// equation 7), and of attention.
    pub fn matmul_flops_per_token(&self) -> u64 {
        let matrices = self.layers as u64 * self.block_matrices();
        3 * self.forward_flops(matrices + self.table(), self.block)
    }

    /// FLOPs of the forward pass for one token without attention's: of every parameter (Kaplan et
    /// al., arXiv 2001.08361).
    pub fn forward_flops_per_token(&self) -> u64 {
        self.forward_flops(self.parameters(), 0)
    }

    /// FLOPs of the forward and the backward pass for one token without attention's: 6 for every
    /// parameter.
    pub fn training_flops_per_token(&self) -> u64 {
        3 * self.forward_flops_per_token()
    }

    /// FLOPs of one token's scores and weighted sum over `seen` positions, forward.
    pub fn attention_flops(&self, seen: usize) -> u64 {
        self.forward_flops(0, seen)
    }

    /// FLOPs of one layer's forward pass for one token, with attention's to all positions.
    pub fn layer_flops(&self) -> u64 {
        let one = ModelShape { layers: 1, ..*self };
        one.forward_flops(self.block_matrices(), self.block)
    }

    /// Attention's part of [`ModelShape::layer_flops`].
    pub fn layer_attention_flops(&self) -> u64 {
        let one = ModelShape { layers: 1, ..*self };
        one.attention_flops(self.block)
    }

    /// FLOPs of the head's forward pass for one token.
    pub fn head_flops(&self) -> u64 {
        2 * self.table()
    }

    /// Numbers that a KV cache holds per token: a key and a value for each key and value head of
    /// each layer.
    pub fn cached_per_token(&self) -> u64 {
        2 * self.layers as u64 * self.kv_width() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_have_all_parameters() {
        for (name, shape) in PRESETS {
            let all: u64 = shape
                .named()
                .iter()
                .map(|(_, dims)| dims.iter().map(|&n| n as u64).product::<u64>())
                .sum();
            assert_eq!(all, shape.parameters(), "{name}");
        }
        let names = ModelShape::preset("stories260k").unwrap().named();
        assert_eq!(names.len(), 1 + 5 * 9 + 1);
        assert!(names.contains(&("model.layers.4.mlp.down_proj.weight".into(), vec![64, 172])));
    }

    #[test]
    fn flops_follow_from_parameters() {
        let shape = ModelShape::preset("llama-3.2-1b").unwrap();
        assert_eq!(shape.forward_flops_per_token(), 2 * 1_235_814_400);
        assert_eq!(shape.training_flops_per_token(), 6 * 1_235_814_400);
        // Two products of 32 heads of 64 with 8,192 positions, 2 FLOPs each, in 16 layers.
        assert_eq!(shape.attention_flops(8192), 16 * 2 * 2 * 32 * 64 * 8192);
        assert_eq!(shape.cached_per_token(), 16 * 2 * 8 * 64);
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

    /// Korthikanti et al.'s equation 7: 72 BLsh² (1 + s/6h + V/12hL).
    #[test]
    fn matmul_flops_are_those_of_the_formula() {
        let gpt3 = ModelShape::gpt2(96, 12_288, 96, 51_200, 2048);
        let l = 96.0;
        let h = 12_288.0;
        let s = 2048.0;
        let v = 51_200.0;
        let formula = 72.0 * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l));
        assert!((gpt3.matmul_flops_per_token() as f64 / formula - 1.0).abs() < 1e-12);
    }

    /// Stages hold the model together, and a copy of a tied table. So do tensor ranks, with copies
    /// of whatever they do not divide.
    #[test]
    fn ranks_hold_all_parameters_together() {
        let gpt = ModelShape { family: Family::Gpt, ..ModelShape::gpt2(8, 64, 4, 128, 64) };
        let llama = ModelShape::preset("llama-2-7b").unwrap();
        for shape in [gpt, ModelShape::gpt2(8, 64, 4, 128, 64), llama] {
            let all = shape.parameters();
            let layers = shape.layers;
            assert_eq!(shape.stage_parameters(&(0..layers)), all);
            let stages = shape.stage_parameters(&(0..layers / 2))
                + shape.stage_parameters(&(layers / 2..layers));
            let copied = if shape.tied() { shape.table() } else { 0 };
            assert_eq!(stages, all + copied);

            let rank =
                shape.parameters_on_a_rank(&Portion { tensor: 4, ..shape.portion(&(0..layers)) });
            let vectors = shape.block_parameters().into_iter().filter(|p| !p.divided);
            let copies: u64 = vectors.map(|vector| vector.numel()).sum();
            let copies = layers as u64 * copies
                + shape.positions()
                + shape.embedding_norm()
                + shape.last_norm();
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
        let llama = ModelShape::preset("stories260k").unwrap();
        let text = serde_json::to_string(&llama).unwrap();
        assert_eq!(serde_json::from_str::<ModelShape>(&text).unwrap(), llama);
    }
}
