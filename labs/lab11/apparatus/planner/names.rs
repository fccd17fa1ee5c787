//! The model of a job: a published one by name, with some numbers changed or not, or one of one's own.

use super::config::read as read_config;
use clap::builder::RangedU64ValueParser;
use kit::help;
use shardlab::error::BadInput;
use shardlab::plan::{Dense, Family, ModelShape, PRESETS};
use std::path::Path;

/// A model, and what to call it.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    pub name: String,
    pub shape: ModelShape,
    /// The keys of a config.json that nothing here reads, each with its value: `sliding_window = 4096`.
    pub not_understood: Vec<String>,
}

/// A model's numbers from flags. They describe one's own model, or change another one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub struct Sizes {
    /// Layers: a model of your own, with --embd and --heads, or another one's changed
    #[arg(long, value_name = "NUMBER", value_parser = whole(LAYERS), help_heading = help::MODEL)]
    pub layers: Option<usize>,
    /// Width of the model
    #[arg(long, value_name = "NUMBER", value_parser = whole(WIDTH), hide_short_help = true, help_heading = help::MODEL)]
    pub embd: Option<usize>,
    /// Query heads
    #[arg(long, value_name = "NUMBER", value_parser = whole(HEADS), hide_short_help = true, help_heading = help::MODEL)]
    pub heads: Option<usize>,
    /// Key and value heads [default for a model of your own: as many as query heads]
    #[arg(long, value_name = "NUMBER", value_parser = whole(HEADS), hide_short_help = true, help_heading = help::MODEL)]
    pub kv_heads: Option<usize>,
    /// Inner width of the MLP [default for a model of your own: 8/3 of --embd, up to a multiple of 256]
    #[arg(long, value_name = "NUMBER", value_parser = whole(WIDTH), hide_short_help = true, help_heading = help::MODEL)]
    pub ffn: Option<usize>,
    /// Distinct tokens [default for a model of your own: 32000]
    #[arg(long, value_name = "NUMBER", value_parser = whole(WIDTH), hide_short_help = true, help_heading = help::MODEL)]
    pub vocab: Option<usize>,
    /// Tokens of a sequence [default: the model's, at most 8,192; for a model of your own 4,096]
    #[arg(long, value_name = "TOKENS", value_parser = whole(LENGTH), alias = "length", help_heading = help::MODEL)]
    pub seq: Option<usize>,
}

/// Layers of a model at most, its widths and tokens, its heads, and the tokens of a sequence. The product of all is still a number.
pub(super) const LAYERS: usize = 10_000;
pub(super) const WIDTH: usize = 1 << 24;
pub(super) const HEADS: usize = 1 << 16;
const LENGTH: usize = 1 << 22;
/// Parameters of a model at most: a quadrillion, whose FLOPs 64 bits still count.
const MOST_PARAMETERS: f64 = 1e15;

fn whole(most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most as u64)
}

impl Sizes {
    /// Whether a number of the model itself is given: any but the length of its sequences.
    pub(super) fn any(&self) -> bool {
        let length = Sizes {
            seq: self.seq,
            ..Sizes::default()
        };
        *self != length
    }
}

/// The model of `--config`, of `--model`, or of numbers alone.
///
/// # Errors
/// If there is no such model or file, numbers are missing, or they do not fit together.
pub fn described(
    config: Option<&Path>,
    name: Option<&str>,
    sizes: &Sizes,
) -> Result<Described, BadInput> {
    match (config, name) {
        (Some(path), _) => read_config(path, sizes),
        (None, Some(name)) => changed(name, sizes),
        (None, None) if sizes.any() => own(sizes),
        (None, None) => changed(USUAL, sizes),
    }
}

/// The model of a job that names none.
const USUAL: &str = "llama-3-70b";

/// A Llama of one's own.
fn own(sizes: &Sizes) -> Result<Described, BadInput> {
    let (Some(layers), Some(embd), Some(heads)) = (sizes.layers, sizes.embd, sizes.heads) else {
        let needs = [
            ("--layers", sizes.layers),
            ("--embd", sizes.embd),
            ("--heads", sizes.heads),
        ];
        let missing = needs.iter().filter(|(_, number)| number.is_none());
        let missing: Vec<&str> = missing.map(|(flag, _)| *flag).collect();
        return Err(BadInput::new(
            format!("a model of your own also needs {}", missing.join(" and ")),
            "give all of --layers, --embd and --heads, or name the model whose numbers change with --model or --config",
        ));
    };
    let usual_ffn = (8 * embd / 3).next_multiple_of(256);
    let shape = ModelShape {
        vocabulary: sizes.vocab.unwrap_or(32_000),
        block: sizes.seq.unwrap_or(4096),
        layers,
        heads,
        embd,
        family: Family::Dense(Dense::llama(
            sizes.kv_heads.unwrap_or(heads),
            head_width(embd, heads)?,
            sizes.ffn.unwrap_or(usual_ffn),
        )),
    };
    check(&shape)?;
    Ok(Described {
        name: "your model".into(),
        shape,
        not_understood: Vec::new(),
    })
}

/// A named model with the numbers that are given.
fn changed(name: &str, sizes: &Sizes) -> Result<Described, BadInput> {
    let known = model(name)?;
    let mut shape = ModelShape {
        vocabulary: sizes.vocab.unwrap_or(known.vocabulary),
        block: sizes.seq.unwrap_or(known.block),
        layers: sizes.layers.unwrap_or(known.layers),
        heads: sizes.heads.unwrap_or(known.heads),
        embd: sizes.embd.unwrap_or(known.embd),
        family: known.family,
    };
    head_width(shape.embd, shape.heads)?;
    // A GPT's key and value heads and its MLP follow from its heads and its width, a Llama's do not.
    let groups = sizes.heads.is_some() && known.llama().is_some();
    if sizes.kv_heads.is_some() || sizes.ffn.is_some() || groups {
        let mut dense = shape.dense();
        // Without groups, each query head keeps a key and value head of its own.
        if known.kv_heads() == known.heads {
            dense.kv_heads = shape.heads;
        }
        dense.kv_heads = sizes.kv_heads.unwrap_or(dense.kv_heads);
        dense.ffn = sizes.ffn.unwrap_or(dense.ffn);
        shape.family = Family::Dense(dense);
    }
    check(&shape)?;
    let name = if sizes.any() {
        format!("your {name}")
    } else {
        name.to_string()
    };
    Ok(Described {
        name,
        shape,
        not_understood: Vec::new(),
    })
}

/// The width of each of `heads` heads that share a model's width.
pub(super) fn head_width(embd: usize, heads: usize) -> Result<usize, BadInput> {
    if embd.is_multiple_of(heads) {
        return Ok(embd / heads);
    }
    Err(BadInput::new(
        format!("{heads} heads cannot share a width of {embd} evenly"),
        format!(
            "give {heads} heads a width of {}, for example",
            embd.next_multiple_of(heads)
        ),
    ))
}

/// Refuses numbers that no model can have, and products that 64 bits do not count. Each number by itself is in its range.
pub(super) fn check(shape: &ModelShape) -> Result<(), BadInput> {
    let heads = shape.heads;
    let kv_heads = shape.kv_heads();
    if !heads.is_multiple_of(kv_heads) {
        return Err(BadInput::new(
            format!("{heads} query heads cannot share {kv_heads} key and value heads evenly"),
            format!("give --kv-heads a divisor of {heads}"),
        ));
    }
    let q = shape.q_width();
    if q > WIDTH {
        return Err(BadInput::new(
            format!("{heads} heads of width {} are {q} wide", shape.head()),
            format!("all heads together are at most {WIDTH} wide"),
        ));
    }
    let blocks = shape.layers as f64 * shape.per_layer() as f64;
    let parameters = blocks + 2.0 * shape.table() as f64 + shape.positions() as f64;
    if parameters > MOST_PARAMETERS {
        return Err(BadInput::new(
            format!("a model of {parameters:.1e} parameters is more than the planner counts"),
            format!("give one of at most {MOST_PARAMETERS:.0e}"),
        ));
    }
    Ok(())
}

/// GPTs with names, beside the Llamas of [`PRESETS`].
///
/// Sources: Radford et al., *Language Models are Unsupervised Multitask Learners* (2019); Brown et al. (arXiv 2005.14165), table 2.1; Smith et
/// al. (arXiv 2201.11990); Korthikanti et al. (arXiv 2205.05198), table 3, whose vocabulary is 51,200 with its padding.
pub const MODELS: [(&str, ModelShape); 7] = [
    ("gpt2", ModelShape::gpt2(12, 768, 12, 50_257, 1024)),
    ("gpt2-xl", ModelShape::gpt2(48, 1600, 25, 50_257, 1024)),
    ("gpt3-13b", ModelShape::gpt2(40, 5120, 40, 51_200, 2048)),
    ("megatron-22b", ModelShape::gpt2(48, 6144, 64, 51_200, 2048)),
    ("gpt3-175b", ModelShape::gpt2(96, 12_288, 96, 51_200, 2048)),
    (
        "mt-nlg-530b",
        ModelShape::gpt2(105, 20_480, 128, 51_200, 2048),
    ),
    (
        "megatron-1t",
        ModelShape::gpt2(128, 25_600, 160, 51_200, 2048),
    ),
];

/// Tokens that sequences have in pretraining at most. Longer ones came later, in a last, short part of the training.
pub(super) const LONGEST: usize = 8192;

/// The model of that name.
pub fn model(name: &str) -> Result<ModelShape, BadInput> {
    let gpt = MODELS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, model)| *model);
    if let Some(gpt) = gpt {
        return Ok(gpt);
    }
    let llama = ModelShape::preset(name).map(|shape| ModelShape {
        block: shape.block.min(LONGEST),
        ..shape
    });
    llama.map_err(|_| {
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

    fn of(name: Option<&str>, sizes: Sizes) -> Result<Described, BadInput> {
        described(None, name, &sizes)
    }

    const OWN: Sizes = Sizes {
        layers: Some(40),
        embd: Some(5120),
        heads: Some(40),
        kv_heads: None,
        ffn: None,
        vocab: None,
        seq: None,
    };

    /// Three numbers are a Llama 2 13B: the others follow as its own do.
    #[test]
    fn three_numbers_are_a_model() {
        let own = of(None, OWN).unwrap();
        let llama = model("llama-2-13b").unwrap();
        assert_eq!(own.name, "your model");
        assert_eq!(own.shape.dense(), llama.dense());
        assert_eq!(own.shape.parameters(), llama.parameters());
        assert_eq!((own.shape.block, own.shape.vocabulary), (4096, 32_000));
        let more = Sizes {
            kv_heads: Some(8),
            ffn: Some(1000),
            vocab: Some(100),
            seq: Some(512),
            ..OWN
        };
        let own = of(None, more).unwrap().shape;
        assert_eq!([own.kv_heads(), own.ffn()], [8, 1000]);
        assert_eq!([own.vocabulary, own.block], [100, 512]);
    }

    #[test]
    fn what_a_model_of_ones_own_lacks_is_named() {
        let none = Sizes::default();
        for (sizes, says) in [
            (Sizes { embd: None, ..OWN }, "also needs --embd"),
            (
                Sizes {
                    layers: Some(8),
                    ..none
                },
                "also needs --embd and --heads",
            ),
            (
                Sizes {
                    ffn: Some(8),
                    ..none
                },
                "also needs --layers and --embd and --heads",
            ),
            (
                Sizes {
                    vocab: Some(8),
                    ..none
                },
                "also needs --layers and",
            ),
            (
                Sizes {
                    heads: Some(7),
                    ..OWN
                },
                "7 heads cannot share a width of 5120 evenly",
            ),
            (
                Sizes {
                    kv_heads: Some(3),
                    ..OWN
                },
                "40 query heads cannot share 3 key",
            ),
            (
                Sizes {
                    layers: Some(LAYERS),
                    embd: Some(WIDTH),
                    heads: Some(1),
                    ..none
                },
                "parameters is more than the planner counts",
            ),
        ] {
            let error = of(None, sizes).unwrap_err();
            assert!(
                error.what.contains(says) && !error.help.is_empty(),
                "{error}"
            );
        }
    }

    #[test]
    fn a_named_model_with_other_numbers() {
        let none = Sizes::default();
        // The length of sequences alone changes no model, and names none.
        let longer = of(
            None,
            Sizes {
                seq: Some(16),
                ..none
            },
        )
        .unwrap();
        assert_eq!((longer.name.as_str(), longer.shape.block), (USUAL, 16));
        assert_eq!(
            of(Some("llama-3-8b"), none).unwrap().shape,
            model("llama-3-8b").unwrap()
        );

        let deeper = of(
            Some("llama-3-8b"),
            Sizes {
                layers: Some(40),
                vocab: Some(32_000),
                ..none
            },
        )
        .unwrap();
        assert_eq!(deeper.name, "your llama-3-8b");
        assert!(deeper.shape.llama().is_some());
        assert_eq!((deeper.shape.layers, deeper.shape.vocabulary), (40, 32_000));
        let grouped = of(
            Some("llama-2-7b"),
            Sizes {
                kv_heads: Some(8),
                ffn: Some(14_336),
                vocab: Some(128_256),
                ..none
            },
        );
        assert_eq!(grouped.unwrap().shape.parameters(), 8_030_261_248); // Llama 3 8B
        let heads = of(
            Some("llama-2-7b"),
            Sizes {
                heads: Some(16),
                ..none
            },
        )
        .unwrap()
        .shape;
        assert_eq!([heads.kv_heads(), heads.head()], [16, 256]);
        let few = of(
            Some("llama-3-8b"),
            Sizes {
                heads: Some(4),
                ..none
            },
        )
        .unwrap_err();
        assert!(
            few.what.contains("4 query heads cannot share 8") && few.help.contains("--kv-heads"),
            "{few}"
        );

        let gpt = of(
            Some("gpt2"),
            Sizes {
                heads: Some(16),
                embd: Some(1024),
                ..none
            },
        )
        .unwrap()
        .shape;
        assert_eq!(
            (gpt.family, gpt.kv_heads(), gpt.ffn()),
            (Family::Gpt2, 16, 4096)
        );
        let narrow = of(
            Some("gpt2"),
            Sizes {
                ffn: Some(1000),
                ..none
            },
        )
        .unwrap()
        .shape;
        let fewer = 12 * (2 * 768 + 1) * (3072 - 1000);
        assert_eq!(
            model("gpt2").unwrap().parameters() - narrow.parameters(),
            fewer
        );
        assert!(
            of(
                Some("gpt2"),
                Sizes {
                    heads: Some(7),
                    ..none
                }
            )
            .is_err()
        );
    }
}
