//! The same text from an independent program: candle-transformers' Llama, in one piece.

use super::pretrained::Pretrained;
use super::text::{Job, same_tokens};
use anyhow::Result;
use kit::Checks;
use kit::show::Screen;
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::tensor::Precision;

/// Refuses a `--reference` that cannot run, before anything runs.
pub fn check_reference(job: Job) -> Result<(), BadInput> {
    if !job.how.reference {
        return Ok(());
    }
    if cfg!(not(feature = "llm")) {
        let help = "cargo run --features llm --bin lab10 -- --model FOLDER --reference";
        let what = "--reference needs candle-transformers, which this build leaves out";
        return Err(BadInput::new(what, help));
    }
    if job.how.temperature != 0.0 || job.dtype != Precision::F32 {
        let help = "leave --temperature and --dtype out";
        let what = "--reference compares the likeliest tokens, computed in f32";
        return Err(BadInput::new(what, help));
    }
    job.model.pretrained().map(drop)
}

/// If `--reference` asks for it, generates the text with candle-transformers on the first process.
/// Returns the difference from `ours`, the tokens of this library, if there is one.
pub fn reference(screen: &Screen, job: Job, ours: &[u32]) -> Result<Vec<String>> {
    if !job.how.reference || !launch::is_first_process() {
        return Ok(Vec::new());
    }
    let weights = job.model.pretrained()?;
    let prompt = weights.text()?.tokens(job.how.prompt.as_deref().unwrap_or_default())?;
    let theirs = greedy(weights, &prompt, ours.len())?;
    let mut checks = Checks::new(screen);
    same_tokens(&mut checks, "candle-transformers", ours, &theirs, String::new());
    Ok(checks.failed())
}

#[cfg(feature = "llm")]
fn greedy(weights: &Pretrained, prompt: &[u32], count: usize) -> Result<Vec<u32>> {
    super::candle_llama::Reference::load(weights)?.greedy(prompt, count)
}

#[cfg(not(feature = "llm"))]
fn greedy(_: &Pretrained, _: &[u32], _: usize) -> Result<Vec<u32>> {
    anyhow::bail!("this build has no candle-transformers")
}
