//! The model of a job: a shape by its name, with random weights, or a pretrained model's folder.

#[cfg(feature = "llm")]
use super::hub::fetch;
use super::pretrained::Pretrained;
use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::error::BadInput;
use shardlab::parallel::{Zero, ZeroConfig};
use shardlab::plan::{Family, LlamaExtra, ModelShape, Rope};
use shardlab::tensor::Params;
use shardlab::train::{Setup, Training};
use std::path::Path;
use std::sync::Arc;

/// A Llama, and where its weights come from.
#[derive(Clone)]
pub struct Model {
    pub name: String,
    pub shape: ModelShape,
    /// `None`: each rank makes its own part of random weights. Time and bytes do not depend on
    /// their values.
    pub weights: Option<Arc<Pretrained>>,
}

impl Model {
    /// The model that `--model` names: a model of the hub, a folder or a GGUF file with weights, or
    /// a shape by its name.
    pub fn find(model: &str) -> Result<Model, BadInput> {
        let with_weights = |name: Option<String>, path: &Path| {
            let weights = Pretrained::open(path)?;
            // A GGUF file has a name of its own, and other weights have their folder's.
            let named = match path.extension() {
                Some(end) if end == "gguf" => path.file_stem(),
                _ => weights.dir.file_name(),
            };
            let named = named.map(|name| name.to_string_lossy().into_owned());
            let name = name.or(named).unwrap_or_else(|| model.to_string());
            Ok(Model { name, shape: weights.shape, weights: Some(Arc::new(weights)) })
        };
        if let Some(name) = model.strip_prefix("hub:") {
            return with_weights(Some(name.to_string()), &fetch(name)?);
        }
        let path = Path::new(model);
        if path.exists() {
            return with_weights(None, path);
        }
        if model.contains('/') {
            let what = format!("{model} is neither a folder nor a file");
            let help = format!("is it a model of the hub? then write --model hub:{model}");
            return Err(BadInput::new(what, help));
        }
        Ok(Model {
            name: model.to_string(),
            shape: shapes::llamas::named(model)?,
            weights: None,
        })
    }

    /// A model of 3.8 million parameters with few layers and few key and value heads: each strategy
    /// alone soon ends.
    pub fn larger() -> Model {
        let small = ModelShape {
            vocabulary: 4096,
            block: 512,
            layers: 4,
            heads: 8,
            embd: 256,
            family: Family::Llama(LlamaExtra {
                kv_heads: 2,
                ffn: 688,
                rope: Rope { theta: 10_000.0, scaling: None },
                norm_eps: 1e-5,
                tied: true,
            }),
            experts: None,
        };
        Model { name: "larger".to_string(), shape: small, weights: None }
    }

    /// Begins a training: of the folder's weights, or of the random ones that `seed` gives.
    pub fn begin(
        &self,
        params: &Arc<Params>,
        data: &Comm,
        config: ZeroConfig,
        seed: u64,
    ) -> Result<Zero> {
        match &self.weights {
            Some(weights) => {
                weights.begin(data, |begin| Zero::begin_with(params, data, config, begin))
            }
            None => Zero::init(params, data, config, seed),
        }
    }

    /// The same of a whole training on `comm`'s ranks.
    pub fn train(&self, setup: Setup, comm: &Comm) -> Result<Training> {
        match &self.weights {
            Some(weights) => weights.begin(comm, |begin| setup.values(begin).begin(comm)),
            None => setup.begin(comm),
        }
    }

    /// Its pretrained weights, for a text.
    pub fn pretrained(&self) -> Result<&Arc<Pretrained>, BadInput> {
        self.weights.as_ref().ok_or_else(|| {
            let what = format!("a text needs a trained model, and {} has random weights here", self.name);
            BadInput::new(what, "give a folder with config.json, model.safetensors and tokenizer.json: --model FOLDER")
        })
    }

    /// In words: where its weights come from.
    pub fn weights_in_words(&self) -> &'static str {
        if self.weights.is_some() {
            "from its folder"
        } else {
            "random: time and bytes are the same"
        }
    }
}

#[cfg(not(feature = "llm"))]
fn fetch(name: &str) -> Result<std::path::PathBuf, BadInput> {
    let what = format!("this build downloads no models, so {name} cannot be had from the hub");
    let help = "cargo run --features llm --bin lab10 builds the download in; or give a folder: --model FOLDER";
    Err(BadInput::new(what, help))
}
