//! candle's own Llama, on one rank: an independent program whose tokens ours must equal.

use super::pretrained::{Pretrained, weight_files};
use anyhow::Result;
use candle_core::{DType, Device, Tensor, safetensors};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use shapes::config_json::to_config;
use std::collections::HashMap;

/// A pretrained model, as candle-transformers computes it in f32.
pub struct Reference {
    model: Llama,
    config: Config,
}

impl Reference {
    /// Reads the folder's files of safetensors, with candle's own reader.
    pub fn load(weights: &Pretrained) -> Result<Reference> {
        // candle-transformers does not know some newer keys, such as rope_parameters.
        let config = to_config(&weights.shape).unwrap_or_default();
        let config = serde_json::from_str::<LlamaConfig>(&config)?.into_config(false);
        let mut tensors = HashMap::new();
        for name in weight_files(&weights.dir)? {
            tensors.extend(safetensors::load(weights.dir.join(name), &Device::Cpu)?);
        }
        let vars = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
        Ok(Reference { model: Llama::load(vars, &config)?, config })
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
            next = vec![logits.argmax(0)?.to_scalar()?];
            tokens.extend(&next);
        }
        Ok(tokens)
    }

    fn cache(&self) -> Result<Cache> {
        Ok(Cache::new(true, DType::F32, &self.config, &Device::Cpu)?)
    }

    /// The logits of the token after `tokens`, before which the cache has `at`.
    fn forward(&self, tokens: &[u32], at: usize, cache: &mut Cache) -> Result<Tensor> {
        let tokens = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        Ok(self.model.forward(&tokens, at, cache)?.squeeze(0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::reference::{check_reference, reference};
    use crate::apparatus::{
        Continuation, Generation, Job, KvCache, Model, TokenSampling, generate,
    };
    use clap::Parser;
    use kit::show::Screen;
    use shardlab::difference::largest_difference;
    use shardlab::model::{Llama, Pass, Plain};
    use shardlab::plan::ModelShape;
    use shardlab::plan::{Family, LlamaExtra, Rope, RopeScaling};
    use shardlab::tensor::Precision;
    use std::path::Path;

    const SHAPE: ModelShape = ModelShape {
        vocabulary: 37,
        block: 32,
        layers: 4,
        heads: 4,
        embd: 32,
        family: Family::Llama(LLAMA),
        experts: None,
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
    fn model(shape: &ModelShape, folder: &Path) -> Llama {
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
        std::fs::write(folder.join("config.json"), to_config(shape).unwrap()).unwrap();
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
            let reference = Reference::load(&Pretrained::open(dir.path()).unwrap()).unwrap();
            let tokens: Vec<u32> = (0..30).map(|i| i * i % 37).collect();
            let logits = ours.logits(&tokens, tokens.len(), &Pass::evaluate()).unwrap();
            let logits: Vec<Vec<f32>> = logits.squeeze(0).unwrap().to_vec2().unwrap();
            let mut most = 0f64;
            let mut largest = 0f64;
            for (at, found) in logits.iter().enumerate() {
                let mut cache = reference.cache().unwrap();
                let expected = reference.forward(&tokens[..=at], 0, &mut cache).unwrap();
                let expected = expected.to_vec1::<f32>().unwrap();
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
        let cache = KvCache::new(model, prompt.len() + count, &Plain);
        let sampling = TokenSampling::GREEDY;
        let how = Continuation { count, sampling, likeliest: 0, ends: Vec::new() };
        generate(model, &cache, None, prompt, &how, |_| Ok(())).unwrap().tokens
    }

    #[test]
    fn all_tokens_are_ours() {
        let dir = tempfile::tempdir().unwrap();
        let ours = model(&SHAPE, dir.path());
        let prompt = [1, 5, 30];
        let reference = Reference::load(&Pretrained::open(dir.path()).unwrap()).unwrap();
        assert_eq!(reference.greedy(&prompt, 29).unwrap(), greedy(&ours, &prompt, 29));
    }

    /// A real model. Token 1 begins a text.
    #[test]
    #[ignore = "needs SHARDLAB_EXTRAS: a folder with models/stories260K"]
    fn the_story_has_the_same_200_tokens() {
        let extras = std::env::var_os("SHARDLAB_EXTRAS").filter(|value| !value.is_empty());
        let extras = extras.expect("SHARDLAB_EXTRAS is not set, and this test needs it");
        let dir = Path::new(&extras).join("models/stories260K");
        let weights = Pretrained::open(&dir).unwrap();
        let ours = Llama::new(&weights.shape).unwrap();
        weights.load(&ours.params, Precision::F32).unwrap();
        let reference = Reference::load(&weights).unwrap();
        assert_eq!(reference.greedy(&[1], 200).unwrap(), greedy(&ours, &[1], 200));
    }

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        generation: Generation,
    }

    /// Token 1 begins a text, and the model has 37.
    const TOKENIZER: &str = r#"{"version": "1.0", "added_tokens": [{"id": 1, "content": "<s>", "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false, "special": true}], "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "<s>": 1, "rank": 3}, "unk_token": "<unk>"}}"#;

    #[test]
    fn a_text_that_differs_is_told() {
        let folder = tempfile::tempdir().unwrap();
        model(&SHAPE, folder.path());
        std::fs::write(folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
        let model = Model::find(folder.path().to_str().unwrap()).unwrap();
        let screen = Screen::plain();
        let job = |flags: &str| {
            Flags::parse_from(format!("lab10 --reference {flags}").split_whitespace()).generation
        };
        let how = job("--prompt rank");
        let job_of = |how| Job { model: &model, how, dtype: Precision::F32 };
        let weights = model.pretrained().unwrap();
        let mut tokens = Reference::load(weights).unwrap().greedy(&[1, 3], 9).unwrap();
        assert_eq!(reference(&screen, job_of(&how), &tokens).unwrap(), Vec::<String>::new());
        tokens[2] = (tokens[2] + 1) % 37;
        let differs = "candle-transformers generates different tokens from token 3 on";
        assert_eq!(reference(&screen, job_of(&how), &tokens).unwrap(), [differs]);
        assert!(check_reference(job_of(&how)).is_ok());
        let drawn = job("--temperature 0.5");
        let error = check_reference(job_of(&drawn)).unwrap_err();
        assert!(error.what.contains("compares the likeliest tokens"), "{error}");
        let error = check_reference(Job { dtype: Precision::Bf16, ..job_of(&how) }).unwrap_err();
        assert!(error.help.contains("--dtype"), "{error}");
        let random = Model::find("stories260k").unwrap();
        assert!(check_reference(Job { model: &random, ..job_of(&how) }).is_err());
    }
}
