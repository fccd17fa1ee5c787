//! A model's parameters by name: those of a block, and all of them in the order of the model.

use super::{BlockParameter, Family, ModelShape, Named, dense, experts};

impl ModelShape {
    /// The parameters of block `layer`, in the order of the model. A Llama's have their names in
    /// Hugging Face's files.
    pub fn block_parameters(&self, layer: usize) -> Vec<BlockParameter> {
        let matrix = BlockParameter::matrix::<&'static str>;
        let copied = BlockParameter::copied;
        let bias = BlockParameter::bias;
        let d = self.embd;
        let ffn = self.ffn_of(layer);
        match self.family {
            Family::Gpt | Family::Gpt2 => {
                let mut all = vec![
                    copied("ln1.weight", d),
                    copied("ln1.bias", d),
                    copied("ln2.weight", d),
                    copied("ln2.bias", d),
                    matrix("qkv.weight", 3 * d, d),
                    bias("qkv.bias", 3 * d),
                    matrix("proj.weight", d, d),
                    copied("proj.bias", d),
                ];
                let experts = self.experts_of(layer);
                if experts.is_none() {
                    all.extend([
                        matrix("fc.weight", ffn, d),
                        bias("fc.bias", ffn),
                        matrix("out.weight", d, ffn),
                        copied("out.bias", d),
                    ]);
                }
                let biases = self.family == Family::Gpt2;
                all.retain(|parameter| biases || !parameter.name.ends_with("bias"));
                if let Some(experts) = experts {
                    let matrices = |widths| [("fc", widths * ffn, d), ("out", d, widths * ffn)];
                    all.extend(experts::block(&experts, ["", "router"], d, matrices));
                }
                all
            }
            Family::Llama(_) | Family::Dense(_) => dense::block(self, layer),
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
    /// If this block has no parameter of this name.
    pub fn block_parameter(&self, layer: usize, name: &str) -> BlockParameter {
        let mut all = self.block_parameters(layer).into_iter();
        let found = all.find(|parameter| parameter.name == name);
        found.expect("a model names its own parameters")
    }

    /// The same with its name in the model.
    ///
    /// # Panics
    ///
    /// As [`ModelShape::block_parameter`].
    pub fn block_named(&self, layer: usize, name: &str) -> Named {
        let dims = self.block_parameter(layer, name).dims();
        (format!("{}.{name}", self.block_name(layer)), dims)
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

    /// The last norm's gain, and in GPT-2 its bias.
    pub fn last_norm_named(&self) -> Vec<Named> {
        let names: &[&str] = match self.family {
            Family::Gpt | Family::Gpt2 => &["lnf.weight", "lnf.bias"],
            Family::Llama(_) | Family::Dense(_) => &["model.norm.weight", "model.norm.bias"],
        };
        let named = |name: &&str| (name.to_string(), vec![self.embd]);
        names[..self.dense().norm_vectors].iter().map(named).collect()
    }

    /// The head's own matrix, unless it is the token table.
    pub fn head_named(&self) -> Option<Named> {
        let dims = vec![self.vocabulary, self.embd];
        (!self.tied() && !self.dense().headless).then(|| ("lm_head.weight".to_string(), dims))
    }

    /// All parameters, in the order of the model.
    pub fn named(&self) -> Vec<Named> {
        let mut all = vec![self.table_named()];
        all.extend(self.positions_named());
        for layer in 0..self.layers {
            let prefix = self.block_name(layer);
            let named = |part: BlockParameter| (format!("{prefix}.{}", part.name), part.dims());
            all.extend(self.block_parameters(layer).into_iter().map(named));
        }
        all.extend(self.last_norm_named());
        all.extend(self.head_named());
        let ends = ["model.embed_norm", "lm_head.bias"].into_iter().zip(self.dense().ends);
        let ends = ends.filter(|(_, length)| *length > 0);
        all.extend(ends.map(|(name, length)| (name.to_string(), vec![length])));
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::model::tests::{llama_3_8b, stories260k};

    #[test]
    fn the_names_have_all_parameters() {
        for shape in [stories260k(), llama_3_8b()] {
            let all: u64 = shape
                .named()
                .iter()
                .map(|(_, dims)| dims.iter().map(|&n| n as u64).product::<u64>())
                .sum();
            assert_eq!(all, shape.parameters());
        }
        let names = stories260k().named();
        assert_eq!(names.len(), 1 + 5 * 9 + 1);
        assert!(names.contains(&("model.layers.4.mlp.down_proj.weight".into(), vec![64, 172])));
    }
}
