//! Mixtures of experts: in each block several MLPs in place of one, of which a router chooses some
//! for each token (Shazeer et al., arXiv 1701.06538).

use super::{BlockParameter, Family, ModelShape};
use serde::{Deserialize, Serialize};

/// The experts of each block. Each is an MLP of the family's kind, with a width of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experts {
    /// Experts of a block, on all ranks together.
    pub number: usize,
    /// Experts that compute for one token, those with the highest scores.
    pub chosen: usize,
    /// Whether the scores of a token's experts are divided by their sum before they weight the
    /// experts' results.
    pub normalized: bool,
}

impl Experts {
    /// Whether one expert has a parameter, by the `part` of its name that follows its block's.
    pub fn own(part: &str) -> bool {
        part.contains("experts.")
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

/// The router, which every tensor rank has, and each expert's `matrices`: name, rows, columns. The
/// names of all begin with `place`.
pub(super) fn block(
    experts: &Experts,
    [place, router]: [&str; 2],
    embd: usize,
    matrices: &[(&str, usize, usize)],
) -> Vec<BlockParameter> {
    let router = format!("{place}{router}.weight");
    let router = BlockParameter::matrix(router, experts.number, embd);
    let mut all = vec![BlockParameter { divided: false, ..router }];
    for expert in 0..experts.number {
        for (name, rows, columns) in matrices {
            let name = format!("{place}experts.{expert}.{name}.weight");
            all.push(BlockParameter::matrix(name, *rows, *columns));
        }
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
        let experts = Some(Experts { number: 8, chosen: 2, normalized: true });
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
        let experts = Experts { number: 8, chosen: 2, normalized: true };
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
