//! What a pass computes for one token, by three published rules, and what it caches.

use super::ModelShape;

impl ModelShape {
    /// FLOPs of the forward pass for one token that multiplies with `parameters` and sees `seen`
    /// positions: 2 for each parameter, a multiplication and an addition, and 4 · layers · width ·
    /// seen for attention's scores and weighted sum, where all heads together are as wide as the
    /// model in most families. Grouped-query attention changes the cache's size, not these. The
    /// backward pass takes twice as many.
    ///
    /// Of several experts only those count that compute for the token. No discount for causality.
    /// All rules below are this one. They differ in the parameters and positions that they count.
    fn forward_flops(&self, parameters: u64, seen: usize) -> u64 {
        2 * parameters + 4 * self.q_width() as u64 * self.seen_by_layers(seen)
    }

    /// Positions out of `seen` that all layers together see: one with a window sees no more.
    fn seen_by_layers(&self, seen: usize) -> u64 {
        let [windowed, window] = self.dense().windows;
        let whole = self.layers.saturating_sub(windowed);
        whole as u64 * seen as u64 + windowed as u64 * seen.min(window) as u64
    }

    /// FLOPs of training on one token as nanoGPT counts them: of all parameters outside the
    /// position table, and of attention (Chowdhery et al., arXiv 2204.02311, appendix B).
    pub fn flops_per_token(&self) -> u64 {
        3 * self.forward_flops(self.num_params() - self.idle(), self.block)
    }

    /// FLOPs of training on one token as Megatron-LM counts them: of only the matrices and the head
    /// (Narayanan et al., arXiv 2104.04473, equation 3; Korthikanti et al., arXiv 2205.05198,
    /// equation 7), and of attention.
    pub fn matmul_flops_per_token(&self) -> u64 {
        let matrices = self.matrices() - self.idle();
        3 * self.forward_flops(matrices + self.head_flops() / 2, self.block)
    }

    /// FLOPs of the forward pass for one token without attention's: of every parameter (Kaplan et
    /// al., arXiv 2001.08361).
    pub fn forward_flops_per_token(&self) -> u64 {
        self.forward_flops(self.parameters() - self.idle(), 0)
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

    /// FLOPs of the head's forward pass for one token.
    pub fn head_flops(&self) -> u64 {
        2 * self.logits() as u64 * self.embd as u64
    }

    /// Numbers that a KV cache holds of a text: for each token a key and a value for each key and
    /// value head of each layer. A layer with a window keeps no more tokens than that.
    pub fn cached(&self, tokens: usize) -> u64 {
        2 * self.kv_width() as u64 * self.seen_by_layers(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::llama_3_2_1b;
    use super::*;

    #[test]
    fn flops_follow_from_parameters() {
        let shape = llama_3_2_1b();
        assert_eq!(shape.forward_flops_per_token(), 2 * 1_235_814_400);
        assert_eq!(shape.training_flops_per_token(), 6 * 1_235_814_400);
        // Two products of 32 heads of 64 with 8,192 positions, 2 FLOPs each, in 16 layers.
        assert_eq!(shape.attention_flops(8192), 16 * 2 * 2 * 32 * 64 * 8192);
        assert_eq!(shape.cached(1), 16 * 2 * 8 * 64);
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
}
