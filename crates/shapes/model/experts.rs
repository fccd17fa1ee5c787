//! Mixtures of experts: in each block several MLPs in place of one, of which a router chooses some
//! for each token (Shazeer et al., arXiv 1701.06538).

use super::{BlockParameter, ModelShape, Part};
use crate::named::named;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The experts of each block, but for [`Experts::dense_layers`]. Each is an MLP of the family's
/// kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experts {
    /// Experts of a block, on all ranks together.
    pub count: usize,
    /// Experts that compute for one token, those with the highest scores.
    pub top_k: usize,
    /// Inner width of one expert.
    pub ffn: usize,
    /// Whether the scores of a token's experts are divided by their sum before they weight the
    /// experts' results.
    pub normalized: bool,
    #[serde(default)]
    pub selection: Selection,
    /// Experts that compute for every token, beside those that are chosen: as one MLP, so many
    /// times as wide.
    #[serde(default)]
    pub shared: usize,
    /// Blocks at the beginning that have the family's MLP in place of experts, as in DeepSeek-V3
    /// (arXiv 2412.19437): `first_k_dense_replace` in Hugging Face's files. A router in the first
    /// layers is slow to balance (Dai et al., arXiv 2401.06066).
    #[serde(default)]
    pub dense_layers: usize,
}

/// How a router makes scores of its logits, and selects experts by them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    pub scores: Scores,
    /// Groups of experts, of which only some count for a token; `None`: all experts do.
    pub groups: Option<Groups>,
    /// Whether each expert has a bias, which the optimizer moves by the expert's load. It is added
    /// to scores where they select, and not where they weight results (Wang et al.,
    /// arXiv 2408.15664).
    pub bias: bool,
    /// Multiplies the weights of results: `routed_scaling_factor` in Hugging Face's files.
    pub factor: f64,
    /// The most tokens that an expert takes in training; `None`: all that chose it.
    #[serde(default)]
    pub capacity: Option<Capacity>,
}

/// A bound on the copies that one rank sends to one expert, as Megatron-LM, DeepSpeed and GShard
/// count them. A token whose copy is dropped goes on without that expert. What is dropped depends
/// on which tokens a rank has, so ranks with capacities do not train what one rank trains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The bound, as a multiple of an even load.
    pub factor: f64,
    pub drops: Drops,
}

named! {
    /// Which copies are dropped first. Megatron-LM calls the two `probs` and `position`.
    #[derive(Serialize, Deserialize)]
    pub enum Drops {
        /// Those with the lowest weights
        Probs = "lightest",
        /// Those at the end of the batch
        Position = "last",
    }
}

impl Capacity {
    /// The most copies of one rank's `tokens` for each expert.
    pub fn most(&self, tokens: usize, experts: &Experts) -> usize {
        let even = (tokens * experts.top_k) as f64 / experts.count as f64;
        (self.factor * even).ceil() as usize
    }
}

/// Mixtral's: a softmax, and nothing else.
impl Default for Selection {
    fn default() -> Selection {
        Selection {
            scores: Scores::Softmax,
            groups: None,
            bias: false,
            factor: 1.0,
            capacity: None,
        }
    }
}

named! {
    /// What a router makes of its logits: scores of all experts together, which sum up to 1, or of
    /// each expert for itself (DeepSeek-V3, arXiv 2412.19437).
    #[derive(Serialize, Deserialize)]
    pub enum Scores {
        /// Parts of one sum
        Softmax = "softmax",
        /// Each for itself, as in DeepSeek-V3
        Sigmoid = "sigmoid",
    }
}

/// Experts in groups of neighbours. A token uses experts of a few groups only, those with the
/// highest sums of their two best scores. Where a group lies on one node, fewer nodes get a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Groups of a block, on all ranks together.
    pub count: usize,
    /// Groups whose experts count for one token.
    pub top_k: usize,
}

impl Experts {
    /// The name of the selecting bias in Hugging Face's files, behind its router's.
    pub const BIAS: &str = "e_score_correction_bias";

    /// Experts among which one token's are chosen, those of its groups.
    pub fn selectable(&self) -> usize {
        match self.selection.groups {
            None => self.count,
            Some(groups) => self.count / groups.count.max(1) * groups.top_k,
        }
    }
}

impl ModelShape {
    /// The experts of block `layer`, if it has such in place of an MLP.
    pub fn experts_of(&self, layer: usize) -> Option<Experts> {
        self.experts.filter(|experts| layer >= experts.dense_layers)
    }

    /// Inner width of the MLP of block `layer`, or of one of its experts.
    pub fn ffn_of(&self, layer: usize) -> usize {
        self.experts_of(layer).map_or_else(|| self.ffn(), |experts| experts.ffn)
    }

    /// How many of the blocks `layers` have one MLP where the model's others have experts.
    pub fn dense_among(&self, layers: &Range<usize>) -> usize {
        let first = self.experts.map_or(0, |experts| experts.dense_layers);
        layers.end.min(first).saturating_sub(layers.start)
    }

    /// Blocks that are alike: how many, and the index of one. First those with one MLP in place of
    /// experts, then all others.
    pub(crate) fn kinds(&self) -> [(usize, usize); 2] {
        let dense = self.dense_among(&(0..self.layers));
        [(dense, 0), (self.layers - dense, dense)]
    }

    /// Experts that compute for one token in a block that has such: 1 in a model without.
    pub fn top_k(&self) -> usize {
        self.experts.map_or(1, |experts| experts.top_k)
    }

    /// Parameters that do not compute for a token, because its router chose other experts.
    pub fn idle(&self) -> u64 {
        let Some(Experts { count, top_k, ffn, .. }) = self.experts else {
            return 0;
        };
        let matrices = if self.dense().gated { 3 } else { 2 };
        let expert = matrices * ffn as u64 * self.embd as u64;
        let [_, (layers, _)] = self.kinds();
        layers as u64 * count.saturating_sub(top_k) as u64 * expert
    }
}

/// The router, which every tensor rank has, and each expert's matrices: name, rows, columns, for an
/// MLP of so many experts' width. The names of all begin with `place`.
pub(super) fn block<const N: usize>(
    experts: &Experts,
    [place, router]: [&str; 2],
    embd: usize,
    matrices: impl Fn(usize) -> [(&'static str, usize, usize); N],
) -> Vec<BlockParameter> {
    let weight = BlockParameter::matrix(format!("{place}{router}.weight"), experts.count, embd);
    let mut all = vec![BlockParameter { divided: false, ..weight }];
    if experts.selection.bias {
        let name = format!("{place}{router}.{}", Experts::BIAS).into();
        let part = Part::SelectionBias;
        all.push(BlockParameter { name, part, ..BlockParameter::copied("", experts.count) });
    }
    let mut mlp = |prefix: String, part: Part, widths: usize| {
        all.extend(matrices(widths).map(|(name, rows, columns)| {
            let name = format!("{place}{prefix}{name}.weight");
            BlockParameter { part, ..BlockParameter::matrix(name, rows, columns) }
        }));
    };
    (0..experts.count).for_each(|n| mlp(format!("experts.{n}."), Part::Expert(n), 1));
    if experts.shared > 0 {
        mlp("shared.".to_string(), Part::Common, experts.shared);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::llama_3_8b;
    use super::super::{Family, LlamaExtra};
    use super::*;
    use crate::{AttentionScores, DropoutMasks, Kept, Shards};

    /// Jiang et al., arXiv 2401.04088: 46.7 billion parameters, of which 12.9 billion compute for a
    /// token.
    #[test]
    fn mixtral_has_the_published_counts() {
        let experts = Some(Experts { count: 8, top_k: 2, ffn: 14_336, ..Experts::default() });
        let mixtral = ModelShape { vocabulary: 32_000, experts, ..llama_3_8b() };
        assert_eq!(mixtral.parameters(), 46_702_792_704);
        assert_eq!(mixtral.parameters() - mixtral.idle(), 12_879_925_248);
        assert_eq!(mixtral.forward_flops_per_token(), 2 * 12_879_925_248);
        let named = mixtral.named();
        assert_eq!(named.len(), 1 + 32 * (6 + 1 + 8 * 3) + 2);
        let name = "model.layers.31.block_sparse_moe.experts.7.w2.weight".to_string();
        assert!(named.contains(&(name, vec![4096, 14_336])));
        assert_eq!(llama_3_8b().idle(), 0);
        // Two copies of a token, their results, and three numbers as wide as an expert for each.
        let kept = |shape| Kept::of(shape, 2.0, AttentionScores::None, DropoutMasks::None);
        let more = kept(&mixtral).on_a_rank(1, 1) - kept(&llama_3_8b()).on_a_rank(1, 1);
        assert_eq!(more, 2.0 * (4.0 * 4096.0 + 3.0 * 14_336.0));
    }

    /// DeepSeek-V3 (arXiv 2412.19437), without the layer that predicts a second token: 671 billion
    /// parameters, of which 37 billion compute for a token. Latent attention, which no shape has,
    /// is counted here.
    #[test]
    fn deepseek_v3_has_the_published_counts() {
        let experts = Experts {
            count: 256,
            top_k: 8,
            ffn: 2048,
            selection: Selection { bias: true, ..Selection::default() },
            shared: 1,
            dense_layers: 3,
            ..Experts::default()
        };
        let Family::Llama(extra) = llama_3_8b().family else {
            unreachable!();
        };
        let extra = LlamaExtra { kv_heads: 128, ffn: 18_432, ..extra };
        let shape = ModelShape {
            vocabulary: 129_280,
            block: 4096,
            layers: 61,
            heads: 128,
            embd: 7168,
            family: Family::Llama(extra),
            experts: Some(experts),
        };
        let queries = (7168 + 1) * 1536 + 1536 * 128 * (128 + 64);
        let keys = 7168 * (512 + 64) + 512 + 512 * 128 * (128 + 128);
        let latent = queries + keys + 128 * 128 * 7168;
        let all = shape.parameters() - 61 * 4 * 7168 * 7168 + 61 * latent;
        assert_eq!(all, 671_026_419_200);
        assert_eq!(shape.idle(), 58 * 248 * 3 * 7168 * 2048);
        assert_eq!((all - shape.idle()) / 1_000_000_000, 37);
        assert_eq!(shape.decayed().1 + shape.not_decayed().1, shape.parameters());
        assert_eq!(shape.named().len(), 1 + 61 * 6 + 3 * 3 + 58 * (2 + 257 * 3) + 2);
    }

    /// A dense block and two with experts, by hand: lists, stages, tensor ranks, FLOPs.
    #[test]
    fn a_dense_first_block_is_counted_where_it_is() {
        let experts = Experts {
            count: 4,
            top_k: 1,
            ffn: 6,
            shared: 1,
            dense_layers: 1,
            ..Experts::default()
        };
        let shape = ModelShape {
            vocabulary: 5,
            block: 3,
            layers: 3,
            heads: 2,
            embd: 4,
            family: Family::Gpt,
            experts: Some(experts),
        };
        let (norms, attention) = (2 * 4, (12 + 4) * 4);
        let (router, expert) = (4 * 4, 2 * 4 * 6);
        let first = norms + attention + 2 * 4 * 16;
        let other = norms + attention + router + 5 * expert;
        assert_eq!([0, 1, 2].map(|layer| shape.layer_parameters(layer)), [first, other, other]);
        assert_eq!(shape.largest_layer(), other);
        let [table, positions, last_norm] = [5 * 4, 3 * 4, 4];
        let all = table + positions + first + 2 * other + last_norm;
        assert_eq!(shape.parameters(), all);
        assert_eq!(shape.not_decayed(), (7, 3 * norms + last_norm));
        assert_eq!(shape.decayed(), (2 + 4 + 2 * 13, all - 3 * norms - last_norm));
        let named = shape.named();
        assert!(named.contains(&("blocks.0.fc.weight".to_string(), vec![16, 4])));
        assert!(!named.iter().any(|(name, _)| name.starts_with("blocks.0.experts")));

        // By stages, with a copy of the table.
        let stages = [0..1, 1..3].map(|layers| shape.stage_parameters(&layers));
        let last = 2 * other + last_norm + table;
        assert_eq!(stages, [table + positions + first, last]);
        let shards = Shards { shape, tensor: 2, pipeline: 2, sequence: false, rows: 6 };
        let copied = 3 * norms + 2 * router + positions + last_norm;
        let of_two = (all - table - copied) / 2 + copied + 3 * 4;
        assert_eq!(shards.parameters(&[0..1, 1..3]), of_two);

        let idle = 2 * 3 * expert;
        assert_eq!(shape.idle(), idle);
        assert_eq!(shape.forward_flops_per_token(), 2 * (all - idle));
        let products = 3 * attention + 2 * 4 * 16 + 2 * (router + 2 * expert) + table;
        let attended = 2 * 2 * 4 * 3 * 3;
        assert_eq!(shape.matmul_flops_per_token(), 3 * (2 * products + attended));

        // Copies of a token are for experts: two of each chosen one, and the shared one's.
        let masks = DropoutMasks::None;
        let [first, other] =
            [0, 1].map(|layer| Kept::of_layer(&shape, layer, 1.0, AttentionScores::None, masks));
        let heads = 4.0 * 4.0;
        assert_eq!([first.whole, first.divided], [0.0, heads + 2.0 * 16.0]);
        assert_eq!([other.whole, other.divided], [3.0 * 4.0, heads + 2.0 * 2.0 * 6.0]);
        let blocks = first.on_a_rank(2, 1) + 2.0 * other.on_a_rank(2, 1);
        let ends: f64 = shards.kept_by_the_ends(masks).iter().sum();
        assert_eq!(shards.activations(1, masks), 4.0 * 3.0 * (ends + blocks));
    }

    /// Two of eight experts, each half as wide as a GPT's MLP, compute as much as that MLP, and the
    /// router.
    #[test]
    fn experts_of_half_the_width_compute_like_an_mlp() {
        let gpt = ModelShape {
            vocabulary: 65,
            block: 256,
            layers: 6,
            heads: 6,
            embd: 384,
            family: Family::Gpt,
            experts: None,
        };
        let experts = Experts { count: 8, top_k: 2, ffn: 2 * 384, ..Experts::default() };
        let mixture = ModelShape { experts: Some(experts), ..gpt };
        let router = 6 * 8 * 384;
        assert_eq!(mixture.parameters() - mixture.idle(), gpt.parameters() + router);
        assert_eq!(mixture.flops_per_token(), gpt.flops_per_token() + 6 * router);
        assert_eq!(mixture.matmul_flops_per_token(), gpt.matmul_flops_per_token() + 6 * router);
        assert_eq!(mixture.table_named(), gpt.table_named());
        let name = "blocks.5.experts.7.out.weight".to_string();
        assert!(mixture.named().contains(&(name, vec![384, 768])));
    }
}
