//! The same text from an independent program: candle-transformers' Llama, in one piece.

use super::text::{Job, same_tokens};
use anyhow::Result;
use kit::Checks;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::tensor::Precision;
use std::path::Path;

/// Refuses a `--reference` that cannot run, before anything runs.
pub fn check_reference(job: Job) -> Result<(), BadInput> {
    if !job.how.reference {
        return Ok(());
    }
    if cfg!(not(feature = "llm")) {
        let help = "cargo run --features llm --bin lab10 -- --model FOLDER --reference";
        return Err(BadInput::new(
            "--reference needs candle-transformers, which this build leaves out",
            help,
        ));
    }
    if job.how.temperature != 0.0 || job.dtype != Precision::F32 {
        let help = "leave --temperature and --dtype out";
        return Err(BadInput::new(
            "--reference compares the likeliest tokens, computed in f32",
            help,
        ));
    }
    job.model.pretrained("text").map(drop)
}

/// If `--reference` asks for it, generates the text with candle-transformers on the first process.
/// Returns the difference from `ours`, the tokens of this library, if there is one.
pub fn reference(screen: &Screen, job: Job, ours: &[u32]) -> Result<Vec<String>> {
    if !job.how.reference || !launch::is_first_process() {
        return Ok(Vec::new());
    }
    let weights = job.model.pretrained("text")?;
    let prompt = weights.text()?.tokens(job.how.prompt.as_deref().unwrap_or_default())?;
    let theirs = greedy(&weights.dir, &prompt, ours.len())?;
    let mut checks = Checks::new(screen);
    same_tokens(&mut checks, "candle-transformers", ours, &theirs, String::new());
    Ok(checks.failed())
}

#[cfg(feature = "llm")]
fn greedy(folder: &Path, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
    Ok(super::candle_llama::Reference::load(folder)?.greedy(prompt, count)?)
}

#[cfg(not(feature = "llm"))]
fn greedy(_: &Path, _: &[u32], _: usize) -> Result<Vec<u32>> {
    anyhow::bail!("this build has no candle-transformers")
}

#[cfg(all(test, feature = "llm"))]
mod tests {
    use super::super::{Generation, Model};
    use super::*;
    use crate::apparatus::candle_llama::tests::{SHAPE, model};
    use crate::apparatus::hub::Source;
    use crate::apparatus::hub::tests::with_feature::{Answer, hub, source};
    use clap::Parser;

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
    fn a_model_of_the_hub_is_compared_with_candle() {
        let folder = tempfile::tempdir().unwrap();
        let cache = tempfile::tempdir().unwrap();
        model(&SHAPE, folder.path());
        std::fs::write(folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
        let mut server = hub(Answer::Right);
        for (name, bytes, sum) in &mut server.files[..3] {
            (*bytes, *sum) =
                (std::fs::read(folder.path().join(&**name)).unwrap(), name.replace('.', "-"));
        }
        let model = Model::find("hub:some/model", &source(&server.start(), cache.path())).unwrap();
        assert_eq!((&*model.name, model.shape), ("some/model", SHAPE));
        let screen = Screen::plain();
        let job = |flags: &str| {
            Flags::parse_from(format!("lab10 --reference {flags}").split_whitespace()).generation
        };
        let how = job("--prompt rank");
        let job_of = |how| Job { model: &model, how, dtype: Precision::F32 };
        let mut tokens = crate::apparatus::candle_llama::Reference::load(folder.path())
            .unwrap()
            .greedy(&[1, 3], 9)
            .unwrap();
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
        let random = Model::find("stories260k", &Source::default()).unwrap();
        assert!(check_reference(Job { model: &random, ..job_of(&how) }).is_err());
    }
}
