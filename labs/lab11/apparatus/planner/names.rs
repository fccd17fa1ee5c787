//! Published models by name.

use shardlab::error::BadInput;
use shardlab::plan::strategy::Model;
use shardlab::plan::{LlamaShape, PRESETS};

/// GPTs with names, beside the Llamas of [`PRESETS`].
///
/// Sources: Radford et al., *Language Models are Unsupervised Multitask Learners* (2019); Brown et al. (arXiv 2005.14165), table 2.1; Smith et
/// al. (arXiv 2201.11990); Korthikanti et al. (arXiv 2205.05198), table 3, whose vocabulary is 51,200 with its padding.
pub const MODELS: [(&str, Model); 7] = [
    ("gpt2", Model::gpt(12, 768, 12, 50_257, 1024)),
    ("gpt2-xl", Model::gpt(48, 1600, 25, 50_257, 1024)),
    ("gpt3-13b", Model::gpt(40, 5120, 40, 51_200, 2048)),
    ("megatron-22b", Model::gpt(48, 6144, 64, 51_200, 2048)),
    ("gpt3-175b", Model::gpt(96, 12_288, 96, 51_200, 2048)),
    ("mt-nlg-530b", Model::gpt(105, 20_480, 128, 51_200, 2048)),
    ("megatron-1t", Model::gpt(128, 25_600, 160, 51_200, 2048)),
];

/// Tokens that a Llama's sequences have in pretraining at most. Longer ones came later, in a last, short part of the training.
const LONGEST: usize = 8192;

/// The model of that name.
pub fn model(name: &str) -> Result<Model, BadInput> {
    let gpt = MODELS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, model)| *model);
    let llama =
        || LlamaShape::preset(name).map(|shape| Model::llama(&shape, shape.block.min(LONGEST)));
    gpt.map_or_else(llama, Ok).map_err(|_| {
        let names: Vec<&str> = MODELS
            .iter()
            .map(|(name, _)| *name)
            .chain(PRESETS.iter().map(|(name, _)| *name))
            .collect();
        BadInput::new(
            format!("no model is named {name}"),
            format!("choose one of {}", names.join(", ")),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_parameters_that_they_say() {
        for (name, billions) in [
            ("gpt2", 0.124),
            ("gpt2-xl", 1.557),
            ("gpt3-13b", 12.9),
            ("megatron-22b", 22.1),
        ] {
            let is = model(name).unwrap().parameters() / 1e9;
            assert!((is / billions - 1.0).abs() < 0.01, "{name}: {is}");
        }
        let billions = |name| (model(name).unwrap().parameters() / 1e9).round();
        assert_eq!(
            ["gpt3-175b", "mt-nlg-530b", "megatron-1t", "llama-3-70b"].map(billions),
            [175.0, 530.0, 1008.0, 71.0]
        );
        assert_eq!(model("llama-3.1-405b").unwrap().length, 8192);
        let error = model("gpt-5").unwrap_err();
        assert!(
            error.help.contains("gpt3-175b") && error.help.contains("llama-3-70b"),
            "{error}"
        );
    }
}
