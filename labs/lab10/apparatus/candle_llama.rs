//! candle's own Llama, on one rank: an independent program whose tokens ours must equal.

use candle_core::{DType, Device, Result, Tensor, safetensors};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use shardlab::error::BadInput;
use shardlab::files;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A pretrained model, as candle-transformers computes it in f32.
pub struct Reference {
    model: Llama,
    config: Config,
}

impl Reference {
    /// Reads `config.json` and the files of safetensors in a folder.
    pub fn load(folder: &Path) -> std::result::Result<Reference, BadInput> {
        let broken = |path: &Path, how: String| {
            BadInput::new(
                format!("{}: {how}", path.display()),
                "candle-transformers needs config.json and safetensors of a Llama",
            )
        };
        let path = folder.join("config.json");
        let config =
            files::text(&path, files::LIST).map_err(|error| broken(&path, error.to_string()))?;
        // candle-transformers does not know some newer keys, such as rope_parameters.
        let shape = super::from_config(&config).map_err(|error| broken(&path, error.what))?;
        let config = super::to_config(&shape)
            .ok_or_else(|| broken(&path, "it describes no Llama".to_string()))?;
        let config: LlamaConfig =
            serde_json::from_str(&config).map_err(|error| broken(&path, error.to_string()))?;
        let config = config.into_config(false);
        let mut tensors = HashMap::new();
        for path in weights(folder).map_err(|error| broken(folder, error.to_string()))? {
            let map = files::map(&path).map_err(|error| broken(&path, error.to_string()))?;
            let loaded = safetensors::load_buffer(&map, &Device::Cpu);
            tensors.extend(loaded.map_err(|error| broken(&path, error.to_string()))?);
        }
        // candle-transformers panics where a block has no such tensor.
        if let Some(name) = names(&config).find(|name| !tensors.contains_key(name)) {
            return Err(broken(folder, format!("no file has {name}")));
        }
        let vars = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
        let model =
            Llama::load(vars, &config).map_err(|error| broken(folder, error.to_string()))?;
        Ok(Reference { model, config })
    }

    /// The likeliest next tokens, one after the other, as many as asked for.
    pub fn greedy(&self, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
        let mut cache = self.cache()?;
        let mut at = 0;
        let mut next = prompt.to_vec();
        let mut tokens = Vec::new();
        while tokens.len() < count {
            let logits = self.forward(&next, at, &mut cache)?;
            at += next.len();
            let likeliest = (0..logits.len())
                .rev()
                .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
                .unwrap_or(0) as u32;
            tokens.push(likeliest);
            next = vec![likeliest];
        }
        Ok(tokens)
    }

    /// The logits of the token after `tokens`.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.forward(tokens, 0, &mut self.cache()?)
    }

    fn cache(&self) -> Result<Cache> {
        Cache::new(true, DType::F32, &self.config, &Device::Cpu)
    }

    fn forward(&self, tokens: &[u32], at: usize, cache: &mut Cache) -> Result<Vec<f32>> {
        let tokens = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        self.model.forward(&tokens, at, cache)?.squeeze(0)?.to_vec1()
    }
}

/// The files of safetensors in a folder.
fn weights(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let paths = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    Ok(paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .collect())
}

/// The tensors that the model needs.
fn names(config: &Config) -> impl Iterator<Item = String> {
    const OF_BLOCK: [&str; 9] = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
        "input_layernorm",
        "post_attention_layernorm",
    ];
    let blocks = (0..config.num_hidden_layers)
        .flat_map(|block| OF_BLOCK.map(|part| format!("model.layers.{block}.{part}.weight")));
    let ends = ["model.embed_tokens.weight", "model.norm.weight"].map(str::to_string);
    let head = (!config.tie_word_embeddings).then(|| "lm_head.weight".to_string());
    ends.into_iter().chain(head).chain(blocks)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use shardlab::difference::largest_difference;
    use shardlab::model::Input;
    use shardlab::model::{Llama, Pass, Plain, Positions, TokenSampling};
    use shardlab::plan::ModelShape;
    use shardlab::plan::{Family, LlamaExtra, Rope, RopeScaling};

    pub(crate) const SHAPE: ModelShape = ModelShape {
        vocabulary: 37,
        block: 32,
        layers: 4,
        heads: 4,
        embd: 32,
        family: Family::Llama(LLAMA),
    };

    const LLAMA: LlamaExtra = LlamaExtra {
        kv_heads: 2,
        ffn: 48,
        rope: Rope {
            theta: 100.0,
            scaling: Some(RopeScaling {
                factor: 4.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_block: 16,
            }),
        },
        norm_eps: 1e-3,
        tied: true,
    };

    /// A model with random matrices, so large that attention prefers some positions, and with
    /// different gains; and its folder.
    pub(crate) fn model(shape: &ModelShape, folder: &Path) -> Llama {
        let llama = Llama::new(shape).unwrap();
        llama.params.allocate(7);
        let mut tensors = HashMap::new();
        for spec in llama.params.specs() {
            let mut values = llama.params.values_mut();
            let values = &mut values[spec.range()];
            match spec.shape.len() {
                1 => values
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, gain)| *gain += 0.3 * (i as f32).sin()),
                _ => values.iter_mut().for_each(|value| *value *= 10.0),
            }
            let tensor = Tensor::from_slice(values, &spec.shape[..], &Device::Cpu).unwrap();
            tensors.insert(spec.name.clone(), tensor);
        }
        candle_core::safetensors::save(&tensors, folder.join("model.safetensors")).unwrap();
        std::fs::write(folder.join("config.json"), crate::apparatus::to_config(shape).unwrap())
            .unwrap();
        llama
    }

    #[test]
    fn all_logits_are_ours() {
        for (tied, scaling) in [(true, LLAMA.rope.scaling), (false, None)] {
            let dir = tempfile::tempdir().unwrap();
            let rope = Rope { scaling, ..LLAMA.rope };
            let ours = model(
                &ModelShape {
                    family: Family::Llama(LlamaExtra { tied, rope, ..LLAMA }),
                    ..SHAPE
                },
                dir.path(),
            );
            if scaling.is_none() {
                let config = dir.path().join("config.json");
                let newer = std::fs::read_to_string(&config)
                    .unwrap()
                    .replace("\"rope_theta\"", "\"old\"")
                    .replace(
                        "\"rope_scaling\": null",
                        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100.0}",
                    );
                assert!(newer.contains("rope_parameters"), "{newer}");
                std::fs::write(config, newer).unwrap();
            }
            let reference = Reference::load(dir.path()).unwrap();
            let tokens: Vec<u32> = (0..30).map(|i| i * i % 37).collect();
            let logits = ours.logits(&tokens, tokens.len(), &Pass::evaluate()).unwrap();
            let logits: Vec<Vec<f32>> = logits.squeeze(0).unwrap().to_vec2().unwrap();
            let mut most = 0f64;
            let mut largest = 0f64;
            for (at, found) in logits.iter().enumerate() {
                let expected = reference.logits(&tokens[..=at]).unwrap();
                most = most.max(largest_difference(found, &expected));
                largest = largest.max(largest_difference(&expected, &vec![0.0; expected.len()]));
            }
            println!(
                "tied {tied}: logits up to {largest}, from which ours differ by at most {most:e}"
            );
            assert!(
                largest > 1.0 && most < 5e-6 * largest,
                "logits up to {largest} differ by {most}"
            );
        }
    }

    /// The likeliest next tokens by our model.
    fn greedy(model: &Llama, prompt: &[u32], count: usize) -> Vec<u32> {
        let pass = Pass::cached(&model.cache(1, prompt.len() + count, &Plain));
        let mut next = prompt.to_vec();
        let mut tokens = Vec::new();
        while tokens.len() < count {
            let logits = model
                .predict(Input::Tokens { ids: &next, length: next.len() }, &pass, Positions::Last)
                .unwrap();
            let logits = logits.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            next = vec![TokenSampling::GREEDY.choose(&logits, 0).unwrap()];
            tokens.extend(&next);
        }
        tokens
    }

    #[test]
    fn all_tokens_are_ours() {
        let dir = tempfile::tempdir().unwrap();
        let ours = model(&SHAPE, dir.path());
        let prompt = [1, 5, 30];
        assert_eq!(
            Reference::load(dir.path()).unwrap().greedy(&prompt, 29).unwrap(),
            greedy(&ours, &prompt, 29)
        );
    }

    /// A real model. Token 1 begins a text.
    #[test]
    #[ignore = "needs SHARDLAB_EXTRAS: a folder with models/stories260K"]
    fn the_story_has_the_same_200_tokens() {
        let extras = std::env::var_os("SHARDLAB_EXTRAS").filter(|value| !value.is_empty());
        let extras = extras.expect("SHARDLAB_EXTRAS is not set, and this test needs it");
        let dir = Path::new(&extras).join("models/stories260K");
        let ours = Llama::new(&ModelShape::preset("stories260k").unwrap()).unwrap();
        ours.params.allocate(0);
        let stored = safetensors::load(dir.join("model.safetensors"), &Device::Cpu).unwrap();
        for spec in ours.params.specs() {
            let stored = stored[&spec.name].flatten_all().unwrap().to_vec1::<f32>().unwrap();
            ours.params.values_mut()[spec.range()].copy_from_slice(&stored);
        }
        assert_eq!(
            Reference::load(&dir).unwrap().greedy(&[1], 200).unwrap(),
            greedy(&ours, &[1], 200)
        );
    }

    #[test]
    fn a_folder_that_candle_cannot_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = || {
            let error = Reference::load(dir.path()).err().expect("a bad folder").to_string();
            assert!(error.contains("\nhelp: candle-transformers needs"), "{error}");
            error
        };
        assert!(refused().contains("config.json"));
        model(&SHAPE, dir.path());
        std::fs::write(
            dir.path().join("config.json"),
            crate::apparatus::to_config(&ModelShape { layers: 5, ..SHAPE }).unwrap(),
        )
        .unwrap();
        assert!(refused().contains("no file has model.layers.4.self_attn.q_proj.weight"));
        std::fs::write(dir.path().join("model.safetensors"), "cut short").unwrap();
        assert!(refused().contains("model.safetensors: "));
    }
}
