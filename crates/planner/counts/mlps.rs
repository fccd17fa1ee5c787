//! An MLP, and experts of which a router chooses a few for each token.

use super::Count;
use super::family::Layer;
use shapes::error::BadInput;

impl Layer<'_> {
    /// Matrices of an MLP that reads and writes `d` numbers, with their biases.
    fn matrices(&self, d: u128, ffn: u128, bias: &str) -> Result<u128, BadInput> {
        let gated = if self.or("gated", 1)? > 0 { 2 } else { 1 };
        let biases = if self.yes(bias)? { gated * ffn + d } else { 0 };
        Ok((gated + 1) * d * ffn + biases)
    }

    pub fn mlp(&self) -> Result<Count, BadInput> {
        let d = self.number("hidden_size")?;
        let mut ffn = self.number("intermediate_size")?;
        if self.yes("ffn_of_a_third")? && self.yes("block_auto_adjust_ff_dim")? {
            ffn = self.adjusted(ffn)?;
        }
        let layers = self.or("num_hidden_layers", 0)?;
        let shares = self.or("num_kv_shared_layers", 0)?;
        if self.yes("use_double_wide_mlp")? && self.index as u128 + shares >= layers {
            ffn *= 2;
        }
        self.matrices(d, ffn, "mlp_bias").map(Count::of)
    }

    /// Two thirds of the width, up to a multiple (LFM2).
    fn adjusted(&self, ffn: u128) -> Result<u128, BadInput> {
        let factor = self.find("block_ffn_dim_multiplier").and_then(serde_json::Value::as_f64);
        let third = 2 * ffn / 3;
        let wide = factor.map_or(third, |factor| (factor * third as f64) as u128);
        Ok(wide.next_multiple_of(self.or("block_multiple_of", 256)?.max(1)))
    }

    /// Router, experts, those that all tokens pass, and what makes the experts' input narrow.
    pub fn experts(&self) -> Result<Count, BadInput> {
        let d = self.number("hidden_size")?;
        let experts = self.number("num_experts")?;
        let chosen = self.number("num_experts_per_tok")?;
        if chosen > experts + self.or("zero_expert_num", 0)? {
            return Err(BadInput::new(
                format!("config.json: a token cannot be sent to {chosen} of {experts} experts"),
                "is it the model's own, complete file?",
            ));
        }
        let width = self.number("moe_intermediate_size")?;
        let latent = self.or("moe_latent_size", 0)?;
        let inside = if latent > 0 { latent } else { d };
        let one = self.matrices(inside, width, "expert_bias")?;
        let zero = self.or("zero_expert_num", 0)?;
        let mut around = (experts + zero) * (d + u128::from(self.yes("router_bias")?));
        around += 2 * zero * width * inside;
        around += 2 * d * latent;
        if latent > 0 && self.yes("mlp_bias")? {
            around += d + latent;
        }
        if self.yes("bias_parameter")? {
            around += experts;
        }
        if self.yes("scaled_router")? {
            around += d + experts;
        }
        around += d * self.or("expert_norms", 0)?;
        let shared = match self.given("shared_expert_intermediate_size")? {
            Some(width) if self.yes("shared_each")? => width * self.or("n_shared_experts", 1)?,
            Some(width) => width,
            None => self.or("n_shared_experts", 0)? * self.or("shared_width", width)?,
        };
        if shared > 0 {
            around += self.matrices(d, shared, "mlp_bias")?;
        }
        if self.yes("shared_gate")? {
            around += d;
        }
        let idle = experts.saturating_sub(chosen) * one + 2 * zero * width * inside;
        Ok(Count { all: around + experts * one, idle })
    }
}
