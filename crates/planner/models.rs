//! Models with names.

use shapes::error::BadInput;
use shapes::llamas::{LLAMAS, among};
use shapes::model::ModelShape;

/// GPTs with names, beside the Llamas of [`LLAMAS`].
///
/// Sources: Radford et al., *Language Models are Unsupervised Multitask Learners* (2019); Brown et
/// al. (arXiv 2005.14165), table 2.1; Smith et al. (arXiv 2201.11990); Korthikanti et al.
/// (arXiv 2205.05198), table 3, whose vocabulary is 51,200 with its padding.
pub const MODELS: [(&str, ModelShape); 7] = [
    ("gpt2", ModelShape::gpt2(12, 768, 12, 50_257, 1024)),
    ("gpt2-xl", ModelShape::gpt2(48, 1600, 25, 50_257, 1024)),
    ("gpt3-13b", ModelShape::gpt2(40, 5120, 40, 51_200, 2048)),
    ("megatron-22b", ModelShape::gpt2(48, 6144, 64, 51_200, 2048)),
    ("gpt3-175b", ModelShape::gpt2(96, 12_288, 96, 51_200, 2048)),
    ("mt-nlg-530b", ModelShape::gpt2(105, 20_480, 128, 51_200, 2048)),
    ("megatron-1t", ModelShape::gpt2(128, 25_600, 160, 51_200, 2048)),
];

/// Tokens that sequences have at most in most of a pretraining. Longer ones are asked for, and
/// context ranks may share them.
pub const USUAL_LENGTH: usize = 8192;

/// All models that have names.
pub fn models() -> impl Iterator<Item = (&'static str, ModelShape)> {
    let llamas = LLAMAS.iter().copied();
    MODELS.into_iter().chain(llamas)
}

/// The model of that name.
pub fn model(name: &str) -> Result<ModelShape, BadInput> {
    let shape = among(&models().collect::<Vec<_>>(), name)?;
    Ok(ModelShape { block: shape.block.min(USUAL_LENGTH), ..shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_parameters_that_they_say() {
        for (name, billions) in
            [("gpt2", 0.124), ("gpt2-xl", 1.557), ("gpt3-13b", 12.9), ("megatron-22b", 22.1)]
        {
            let is = model(name).unwrap().parameters() as f64 / 1e9;
            assert!((is / billions - 1.0).abs() < 0.01, "{name}: {is}");
        }
        let billions = |name| (model(name).unwrap().parameters() as f64 / 1e9).round();
        assert_eq!(
            ["gpt3-175b", "mt-nlg-530b", "megatron-1t", "llama-3-70b"].map(billions),
            [175.0, 530.0, 1008.0, 71.0]
        );
        assert_eq!(model("llama-3.1-405b").unwrap().block, 8192);
        let error = model("gpt-5").unwrap_err();
        assert!(
            error.help.contains("gpt3-175b") && error.help.contains("llama-3-70b"),
            "{error}"
        );
    }
}
