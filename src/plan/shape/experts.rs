//! Mixtures of experts: in each block several MLPs in place of one, of which a router chooses some
//! for each token (Shazeer et al., arXiv 1701.06538).

use super::{BlockParameter, Family, ModelShape};
use serde::{Deserialize, Serialize};

/// The experts of each block. Each is an MLP of the family's kind, with a width of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experts {
    /// Experts of a block, on all ranks together.
    pub number: usize,
    /// Experts that compute for one token, those with the highest scores.
    pub chosen: usize,
    /// Whether the scores of a token's experts are divided by their sum before they weight the
    /// experts' results.
    pub normalized: bool,
    #[serde(default)]
    pub selection: Selection,
    /// Experts that compute for every token, beside those that are chosen: as one MLP, so many
    /// times as wide.
    #[serde(default)]
    pub shared: usize,
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

/// Which copies are dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drops {
    /// Those with the lowest weights.
    Lightest,
    /// Those at the end of the batch.
    Last,
}

impl Capacity {
    /// The most copies of one rank's `tokens` for each expert.
    pub fn most(&self, tokens: usize, experts: &Experts) -> usize {
        let even = (tokens * experts.chosen) as f64 / experts.number as f64;
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

/// What a router makes of its logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scores {
    /// Of all experts together: they sum up to 1.
    Softmax,
    /// Of each expert for itself, as in DeepSeek-V3 (arXiv 2412.19437).
    Sigmoid,
}

/// Experts in groups of neighbours. A token uses experts of a few groups only, those with the
/// highest sums of their two best scores. Where a group lies on one node, fewer nodes get a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// Groups of a block, on all ranks together.
    pub number: usize,
    /// Groups whose experts count for one token.
    pub chosen: usize,
}

impl Experts {
    /// The name of the selecting bias in Hugging Face's files, behind its router's.
    pub const BIAS: &str = "e_score_correction_bias";

    /// Whether one expert has a parameter, by the `part` of its name that follows its block's.
    pub fn own(part: &str) -> bool {
        part.contains("experts.")
    }

    /// Whether a parameter is the bias by which a router selects.
    pub fn selects(part: &str) -> bool {
        part.ends_with(Experts::BIAS)
    }

    /// Experts among which one token's are chosen, those of its groups.
    pub fn selectable(&self) -> usize {
        match self.selection.groups {
            None => self.number,
            Some(groups) => self.number / groups.number.max(1) * groups.chosen,
        }
    }
}

impl ModelShape {
    /// The experts of each block, if it has such in place of an MLP.
    pub fn experts(&self) -> Option<Experts> {
        match self.family {
            Family::GptExperts { experts, .. } => Some(experts),
            Family::Llama(extra) => extra.experts,
            Family::Gpt | Family::Gpt2 | Family::Dense(_) => None,
        }
    }

    /// Experts that compute for one token: 1 in a block with one MLP.
    pub fn chosen(&self) -> usize {
        self.experts().map_or(1, |experts| experts.chosen)
    }

    /// Parameters that do not compute for a token, because its router chose other experts.
    pub fn idle(&self) -> u64 {
        let Some(Experts { number, chosen, .. }) = self.experts() else {
            return 0;
        };
        let dense = self.dense();
        let matrices = if dense.gated { 3 } else { 2 };
        let expert = matrices * dense.ffn as u64 * self.embd as u64;
        self.layers as u64 * number.saturating_sub(chosen) as u64 * expert
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
    let weight = BlockParameter::matrix(format!("{place}{router}.weight"), experts.number, embd);
    let mut all = vec![BlockParameter { divided: false, ..weight }];
    if experts.selection.bias {
        let name = format!("{place}{router}.{}", Experts::BIAS).into();
        all.push(BlockParameter { name, ..BlockParameter::copied("", experts.number) });
    }
    let mut mlp = |prefix: String, widths: usize| {
        for (name, rows, columns) in matrices(widths) {
            all.push(BlockParameter::matrix(
                format!("{place}{prefix}{name}.weight"),
                rows,
                columns,
            ));
        }
    };
    (0..experts.number).for_each(|expert| mlp(format!("experts.{expert}."), 1));
    if experts.shared > 0 {
        mlp("shared.".to_string(), experts.shared);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::LlamaExtra;
    use super::super::tests::llama_3_8b;
    use super::*;
    use crate::plan::{AttentionScores, DropoutMasks, Kept};

    /// Jiang et al., arXiv 2401.04088: 46.7 billion parameters, of which 12.9 billion compute for a
    /// token.
    #[test]
    fn mixtral_has_the_published_counts() {
        let Family::Llama(extra) = llama_3_8b().family else {
            unreachable!();
        };
        let experts =
            Some(Experts { number: 8, chosen: 2, normalized: true, ..Experts::default() });
        let family = Family::Llama(LlamaExtra { experts, ..extra });
        let mixtral = ModelShape { vocabulary: 32_000, family, ..llama_3_8b() };
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
        };
        let experts = Experts { number: 8, chosen: 2, normalized: true, ..Experts::default() };
        let mixture = ModelShape { family: Family::GptExperts { ffn: 2 * 384, experts }, ..gpt };
        let router = 6 * 8 * 384;
        assert_eq!(mixture.parameters() - mixture.idle(), gpt.parameters() + router);
        assert_eq!(mixture.flops_per_token(), gpt.flops_per_token() + 6 * router);
        assert_eq!(mixture.matmul_flops_per_token(), gpt.matmul_flops_per_token() + 6 * router);
        assert_eq!(mixture.table_named(), gpt.table_named());
        let name = "blocks.5.experts.7.out.weight".to_string();
        assert!(mixture.named().contains(&(name, vec![384, 768])));
    }
}
