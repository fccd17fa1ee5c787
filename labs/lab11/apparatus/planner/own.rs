//! The model of a job: a published one by name, with some numbers changed or not, one from a file,
//! or one of one's own.

use super::config::read as read_config;
use super::names::model;
use super::sizes::{Described, Sizes, check, head_width};
use shardlab::error::BadInput;
use shardlab::plan::{Dense, Family, ModelShape};
use std::path::Path;

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
        let needs = [("--layers", sizes.layers), ("--embd", sizes.embd), ("--heads", sizes.heads)];
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
    Ok(Described { name: "your model".into(), shape, not_understood: Vec::new() })
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
    // A GPT's key and value heads and its MLP follow from its heads and its width, a Llama's do
    // not.
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
    Ok(Described { name, shape, not_understood: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::super::sizes::{LAYERS, WIDTH};
    use super::*;

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
            (Sizes { layers: Some(8), ..none }, "also needs --embd and --heads"),
            (Sizes { ffn: Some(8), ..none }, "also needs --layers and --embd and --heads"),
            (Sizes { vocab: Some(8), ..none }, "also needs --layers and"),
            (Sizes { heads: Some(7), ..OWN }, "7 heads cannot share a width of 5120 evenly"),
            (Sizes { kv_heads: Some(3), ..OWN }, "40 query heads cannot share 3 key"),
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
            assert!(error.what.contains(says) && !error.help.is_empty(), "{error}");
        }
    }

    #[test]
    fn a_named_model_with_other_numbers() {
        let none = Sizes::default();
        // The length of sequences alone changes no model, and names none.
        let longer = of(None, Sizes { seq: Some(16), ..none }).unwrap();
        assert_eq!((longer.name.as_str(), longer.shape.block), (USUAL, 16));
        assert_eq!(of(Some("llama-3-8b"), none).unwrap().shape, model("llama-3-8b").unwrap());

        let deeper =
            of(Some("llama-3-8b"), Sizes { layers: Some(40), vocab: Some(32_000), ..none })
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
        let heads = of(Some("llama-2-7b"), Sizes { heads: Some(16), ..none }).unwrap().shape;
        assert_eq!([heads.kv_heads(), heads.head()], [16, 256]);
        let few = of(Some("llama-3-8b"), Sizes { heads: Some(4), ..none }).unwrap_err();
        assert!(
            few.what.contains("4 query heads cannot share 8") && few.help.contains("--kv-heads"),
            "{few}"
        );

        let gpt = of(Some("gpt2"), Sizes { heads: Some(16), embd: Some(1024), ..none })
            .unwrap()
            .shape;
        assert_eq!((gpt.family, gpt.kv_heads(), gpt.ffn()), (Family::Gpt2, 16, 4096));
        let narrow = of(Some("gpt2"), Sizes { ffn: Some(1000), ..none }).unwrap().shape;
        let fewer = 12 * (2 * 768 + 1) * (3072 - 1000);
        assert_eq!(model("gpt2").unwrap().parameters() - narrow.parameters(), fewer);
        assert!(of(Some("gpt2"), Sizes { heads: Some(7), ..none }).is_err());
    }
}
