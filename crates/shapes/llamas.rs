//! Llama models by name.
//!
//! The numbers are those of each model's config.json on the Hugging Face Hub (November 2026). The
//! test has the published counts. stories260k is a model of Karpathy's llama2.c.

use crate::error::BadInput;
use crate::model::{Family, LlamaExtra, ModelShape, Rope, RopeScaling};

/// All models, by the name that `--model` takes.
pub const LLAMAS: &[(&str, ModelShape)] = &[
    ("stories260k", shape(512, [64, 5, 8, 4, 172], 512, rope(10_000.0), true)),
    (
        "smollm2-135m",
        shape(49_152, [576, 30, 9, 3, 1536], 8192, rope(100_000.0), true),
    ),
    (
        "smollm2-360m",
        shape(49_152, [960, 32, 15, 5, 2560], 8192, rope(100_000.0), true),
    ),
    (
        "tinyllama-1.1b",
        shape(32_000, [2048, 22, 32, 4, 5632], 2048, rope(10_000.0), false),
    ),
    (
        "llama-3.2-1b",
        shape(128_256, [2048, 16, 32, 8, 8192], 131_072, longer(500_000.0, 32.0), true),
    ),
    (
        "llama-3.2-3b",
        shape(128_256, [3072, 28, 24, 8, 8192], 131_072, longer(500_000.0, 32.0), true),
    ),
    (
        "llama-2-7b",
        shape(32_000, [4096, 32, 32, 32, 11_008], 4096, rope(10_000.0), false),
    ),
    (
        "llama-2-13b",
        shape(32_000, [5120, 40, 40, 40, 13_824], 4096, rope(10_000.0), false),
    ),
    (
        "llama-2-70b",
        shape(32_000, [8192, 80, 64, 8, 28_672], 4096, rope(10_000.0), false),
    ),
    (
        "llama-3-8b",
        shape(128_256, [4096, 32, 32, 8, 14_336], 8192, rope(500_000.0), false),
    ),
    (
        "llama-3-70b",
        shape(128_256, [8192, 80, 64, 8, 28_672], 8192, rope(500_000.0), false),
    ),
    (
        "llama-3.1-8b",
        shape(128_256, [4096, 32, 32, 8, 14_336], 131_072, longer(500_000.0, 8.0), false),
    ),
    (
        "llama-3.1-405b",
        shape(128_256, [16_384, 126, 128, 8, 53_248], 131_072, longer(500_000.0, 8.0), false),
    ),
];

const fn shape(
    vocabulary: usize,
    [embd, layers, heads, kv_heads, ffn]: [usize; 5],
    block: usize,
    rope: Rope,
    tied: bool,
) -> ModelShape {
    ModelShape {
        vocabulary,
        block,
        layers,
        heads,
        embd,
        family: Family::Llama(LlamaExtra { kv_heads, ffn, rope, norm_eps: 1e-5, tied }),
        experts: None,
    }
}

const fn rope(theta: f64) -> Rope {
    Rope { theta, scaling: None }
}

/// Of a model that was first trained on 8,192 tokens and then on longer sequences.
const fn longer(theta: f64, factor: f64) -> Rope {
    Rope {
        theta,
        scaling: Some(RopeScaling {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_block: 8192,
        }),
    }
}

/// The Llama of this name, in any case.
///
/// # Errors
/// If no Llama has the name.
pub fn named(name: &str) -> Result<ModelShape, BadInput> {
    among(LLAMAS, name)
}

/// Of models with names, the one of this name, in any case.
///
/// # Errors
/// If none has the name.
pub fn among(models: &[(&str, ModelShape)], name: &str) -> Result<ModelShape, BadInput> {
    let known = models.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, shape)| *shape).ok_or_else(|| {
        let names: Vec<&str> = models.iter().map(|(name, _)| *name).collect();
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
    fn published_counts() {
        let published = [
            ("stories260k", 260_032),
            ("smollm2-135m", 134_515_008),
            ("smollm2-360m", 361_821_120),
            ("tinyllama-1.1b", 1_100_048_384),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("llama-2-7b", 6_738_415_616),
            ("llama-2-13b", 13_015_864_320),
            ("llama-2-70b", 68_976_648_192),
            ("llama-3-8b", 8_030_261_248),
            ("llama-3-70b", 70_553_706_496),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-405b", 405_853_388_800),
        ];
        assert_eq!(published.len(), LLAMAS.len());
        for (name, parameters) in published {
            let shape = named(name).unwrap();
            assert_eq!(shape.parameters(), parameters, "{name}");
        }
    }

    #[test]
    fn a_name_without_a_model_is_refused_with_all_names() {
        assert_eq!(named("Llama-3.2-1B"), named("llama-3.2-1b"));
        let error = named("gpt-5").unwrap_err().to_string();
        assert!(
            error.contains("no model is named gpt-5") && error.contains("llama-3-70b"),
            "{error}"
        );
    }

    #[test]
    fn the_names_have_all_parameters() {
        for (name, shape) in LLAMAS {
            let named = shape.named();
            let all = named.iter().map(|(_, dims)| dims.iter().map(|&n| n as u64).product::<u64>());
            assert_eq!(all.sum::<u64>(), shape.parameters(), "{name}");
        }
    }
}
