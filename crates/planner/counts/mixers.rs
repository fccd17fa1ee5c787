//! Kinds of mixers, what passes information between tokens: attention, its latent and compressed
//! forms, and recurrences with a state in place of keys and values.

use super::Count;
use super::family::Layer;
use serde_json::Value;
use shapes::error::BadInput;

type Number = Result<u128, BadInput>;

impl Layer<'_> {
    /// The parameters of a part of the layer.
    pub fn part(&self, name: &str) -> Result<Count, BadInput> {
        let mixer = match name {
            "mlp" => return self.mlp(),
            "experts" => return self.experts(),
            "attention" => self.attention(),
            "latent" => self.latent(),
            "delta" => self.delta(),
            "kda" => self.kda(),
            "lightning" => self.lightning(),
            "mamba1" => self.mamba1(),
            "mamba2" => self.mamba2(),
            "convolution" => self.convolution(),
            "windowed" => self.one_key(0),
            "compressed" => self.compressed(),
            "heavily-compressed" => self.heavily_compressed(),
            other => {
                let what = format!("the table of families: no part is named {other}");
                return Err(BadInput::new(what, "report it"));
            }
        };
        mixer.map(Count::of)
    }

    fn embd(&self) -> Number {
        self.number("hidden_size")
    }

    /// A vector for a matrix's result, where its bias has this key.
    fn bias(&self, key: &str, width: u128) -> Number {
        Ok(if self.yes(key)? { width } else { 0 })
    }

    fn head_width(&self) -> Number {
        match self.given("head_dim")? {
            Some(head) => Ok(head),
            None => Ok(self.embd()? / self.number("num_attention_heads")?.max(1)),
        }
    }

    fn attention(&self) -> Number {
        let d = self.embd()?;
        let heads = self.number("num_attention_heads")?;
        let head = self.head_width()?;
        let v_head = self.or("v_head_dim", head)?;
        let equal = self.yes("attention_k_eq_v")? && self.kind == "full_attention";
        let mut kv_heads = self.or("num_key_value_heads", heads)?;
        if equal {
            kv_heads = self.or("num_global_key_value_heads", kv_heads)?;
        }
        let windowed = self.kind == "sliding_attention";
        if windowed {
            kv_heads *= self.or("window_kv_times", 1)?;
        }
        let (q, k, v, out) = (heads * head, kv_heads * head, kv_heads * v_head, heads * v_head);
        let wide = if self.yes("gate_in_queries")? { 2 * q } else { q };
        let [qkv_bias, o_bias] = [self.yes("qkv_bias")?, self.yes("o_bias")?].map(u128::from);
        let mut count = wide * (d + qkv_bias) + d * (out + o_bias);
        let layers = self.or("num_hidden_layers", 0)?;
        let whole = layers.saturating_sub(self.or("num_kv_shared_layers", 0)?);
        let reads_another = (self.index as u128) >= whole && layers > 0;
        if !reads_another {
            count += (k + if equal { 0 } else { v }) * (d + qkv_bias);
        }
        let (q_norm, k_norm) = match self.text("qk_norms") {
            Some("head") => (head, head),
            Some("all") => (q, k),
            _ => (0, 0),
        };
        if self.or("qk_norms_if", 1)? > 0 {
            count += q_norm + if reads_another { 0 } else { k_norm };
        }
        if self.yes("sinks")? || (windowed && self.yes("window_sinks")?) {
            count += heads;
        }
        count += self.gate(out, heads)?;
        Ok(count)
    }

    /// A matrix that gates attention's result: each number of it, or each head.
    fn gate(&self, out: u128, heads: u128) -> Number {
        let d = self.embd()?;
        Ok(match self.find("attention_gate") {
            Some(Value::Bool(true)) => d * heads,
            Some(Value::String(by)) if by == "per-head" => d * heads,
            Some(Value::String(_)) => d * out,
            Some(_) if self.yes("gates_by_number")? => d * out,
            _ => 0,
        })
    }

    /// Latent attention (DeepSeek-V2): keys and values from one narrow vector, queries too where
    /// they have a rank. DeepSeek-V3.2's indexer chooses the positions that are read.
    fn latent(&self) -> Number {
        let d = self.embd()?;
        let heads = self.number("num_attention_heads")?;
        let [nope, rope, v] =
            ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"].map(|key| self.number(key));
        let (nope, rope, v) = (nope?, rope?, v?);
        let q = heads * (nope + rope);
        let q_rank = self.or("q_lora_rank", 0)?;
        let kv_rank = self.number("kv_lora_rank")?;
        let bias = |width| self.bias("attention_bias", width);
        let queries = match q_rank {
            0 => d * q,
            rank => d * rank + bias(rank)? + rank + rank * q,
        };
        let keys = d * (kv_rank + rope) + bias(kv_rank + rope)? + kv_rank;
        let out = heads * v;
        let mut count = queries + keys + kv_rank * heads * (nope + v) + out * d + bias(d)?;
        count += self.gate(out, heads)?;
        if self.yes("sinks")? {
            count += heads;
        }
        if self.indexes()? {
            let [index_heads, index_head] =
                [self.number("index_n_heads")?, self.number("index_head_dim")?];
            count += q_rank * index_heads * index_head
                + d * index_head
                + 2 * index_head
                + d * index_heads;
        }
        Ok(count)
    }

    fn indexes(&self) -> Result<bool, BadInput> {
        if !self.yes("indexer")? {
            return Ok(false);
        }
        if let Some(types) = self.list("indexer_types") {
            let kind = types.get(self.index).and_then(Value::as_str);
            return Ok(kind == Some("full"));
        }
        let pattern = self.text("index_topk_pattern");
        if let Some(pattern) = pattern {
            return Ok(pattern.chars().nth(self.index) == Some('F'));
        }
        let every = self.or("index_topk_freq", 1)?.max(1);
        let offset = self.or("index_skip_topk_offset", 2)?;
        Ok((self.index as u128 + 1).saturating_sub(offset) % every == 0)
    }

    /// Gated delta rule (Qwen3-Next): projections of queries, keys, values and a gate, a
    /// convolution, two numbers for each value head, a norm.
    fn delta(&self) -> Number {
        let d = self.embd()?;
        let heads = self.number("linear_num_value_heads")?;
        let value_head = self.number("linear_value_head_dim")?;
        let key = self.number("linear_num_key_heads")? * self.number("linear_key_head_dim")?;
        let value = heads * value_head;
        let convolved = 2 * key + value;
        let projections = d * (convolved + value + 2 * heads) + value * d;
        Ok(projections
            + convolved * self.number("linear_conv_kernel_dim")?
            + 2 * heads
            + value_head)
    }

    /// Kimi's delta attention: a forget gate for each number of a key, through a head's width or
    /// whole.
    fn kda(&self) -> Number {
        let d = self.embd()?;
        let of = |key: &str, inside: &str| {
            let table = self.find("linear_attn_config").and_then(|table| table.get(inside));
            match table.and_then(Value::as_u64) {
                Some(number) => Ok(u128::from(number)),
                None => self.number(key),
            }
        };
        let heads = of("linear_num_heads", "num_heads")?;
        let head = of("linear_head_dim", "head_dim")?;
        let kernel = of("linear_conv_kernel_dim", "short_conv_kernel_size")?;
        let all = heads * head;
        let gates = if self.yes("whole_gates")? {
            2 * d * all
        } else {
            2 * head * (d + all)
        };
        Ok(4 * d * all + gates + 3 * all * kernel + all + heads + d * heads + head)
    }

    /// Lightning attention (MiniMax-01): queries, keys, values, a gate and a norm.
    fn lightning(&self) -> Number {
        let all = self.number("num_attention_heads")? * self.head_width()?;
        Ok(5 * self.embd()? * all + all)
    }

    /// Mamba: a convolution and a state of its own for each inner number.
    fn mamba1(&self) -> Number {
        let d = self.embd()?;
        let inner = self.or("mamba_inner", self.number("mamba_expand")? * d)?;
        let [state, kernel] = [self.number("mamba_d_state")?, self.number("mamba_d_conv")?];
        let rank = match self.find("mamba_dt_rank").filter(|rank| rank.as_str() == Some("auto")) {
            Some(_) => d.div_ceil(16),
            None => self.given("mamba_dt_rank")?.unwrap_or(d.div_ceil(16)),
        };
        let bias = |key, width| self.bias(key, width);
        let projections = 2 * inner * d
            + bias("mamba_proj_bias", 2 * inner)?
            + inner * d
            + bias("mamba_proj_bias", d)?;
        let convolution = inner * kernel + bias("mamba_conv_bias", inner)?;
        let steps = (rank + 2 * state) * inner + rank * inner + inner;
        let norms = if self.yes("state_norms")? { rank + 2 * state } else { 0 };
        Ok(projections + convolution + steps + inner * state + inner + norms)
    }

    /// Mamba-2: a state for each head, and queries and keys that groups of heads share.
    fn mamba2(&self) -> Number {
        let d = self.embd()?;
        let heads = self.number("mamba_n_heads")?;
        let inner = match self.given("mamba_d_ssm")? {
            Some(inner) => inner,
            None if self.yes("inner_by_heads")? => heads * self.number("mamba_d_head")?,
            None => self.number("mamba_expand")? * d,
        };
        let shared = 2 * self.number("mamba_n_groups")? * self.number("mamba_d_state")?;
        let wide = 2 * inner + shared + heads;
        let convolved = inner + shared;
        let projections = wide * d
            + self.bias("mamba_proj_bias", wide)?
            + inner * d
            + self.bias("mamba_proj_bias", d)?;
        let convolution =
            convolved * self.number("mamba_d_conv")? + self.bias("mamba_conv_bias", convolved)?;
        let norm = if self.or("mamba_rms_norm", 1)? > 0 { inner } else { 0 };
        Ok(projections + convolution + 3 * heads + norm)
    }

    /// A gated short convolution (LFM2).
    fn convolution(&self) -> Number {
        let d = self.embd()?;
        let biases = self.bias("conv_bias", 3 * d + d + d)?;
        Ok(3 * d * d + d * d + d * self.number("conv_L_cache")? + biases)
    }

    /// DeepSeek-V4's attention: one key that is the value too, queries and results by ranks. Where
    /// keys are compressed, `wide` of them come from so many positions.
    fn one_key(&self, compressor: u128) -> Number {
        let d = self.embd()?;
        let [heads, head] = [self.number("num_attention_heads")?, self.number("head_dim")?];
        let rank = self.number("q_lora_rank")?;
        let results = self.number("o_groups")? * self.number("o_lora_rank")?;
        let queries = d * rank + rank + rank * heads * head;
        let outs = self.number("o_lora_rank")? * heads * head + results * d;
        Ok(heads + queries + d * head + head + outs + compressor)
    }

    /// How many positions become one key.
    fn rate(&self, kind: &str, usual: u128) -> u128 {
        let given = self.find("compress_rates").and_then(|rates| rates.get(kind)?.as_u64());
        given.map_or(usual, u128::from)
    }

    fn heavily_compressed(&self) -> Number {
        let [d, head] = [self.embd()?, self.number("head_dim")?];
        let rate = self.rate("heavily_compressed_attention", 128);
        self.one_key((rate + 2 * d) * head + head)
    }

    /// Two overlapping keys for each few positions, and an indexer that chooses among them.
    fn compressed(&self) -> Number {
        let [d, head] = [self.embd()?, self.number("head_dim")?];
        let rate = self.rate("compressed_sparse_attention", 4);
        let [heads, index] = [self.number("index_n_heads")?, self.number("index_head_dim")?];
        let compressor = |width: u128| (rate + 2 * d) * 2 * width + width;
        let indexer = compressor(index) + self.number("q_lora_rank")? * heads * index + d * heads;
        self.one_key(compressor(head) + indexer)
    }
}
