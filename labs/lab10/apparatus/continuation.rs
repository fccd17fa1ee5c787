//! Text from a model that ranks share, one token at a time.
//!
//! The first pass takes the whole prompt (*prefill*): many rows for each weight that is read. Every
//! later pass takes one token (*decode*), and reads all weights for a single row, so that memory
//! decides its time. The KV cache keeps what earlier positions have computed.
//!
//! All ranks run the same loop. Tensor ranks and ranks that gather weights have the same logits,
//! and choose the same token. In a pipeline only the last stage has logits. It broadcasts its
//! choice.

use super::cache::KvCache;
use super::sampling::{Likely, TokenSampling, likeliest};
use anyhow::{Result, ensure};
use shardlab::comm::Comm;
use shardlab::model::{Input, Llama, Pass, Positions};
use shardlab::tensor::Activation;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a text is continued.
#[derive(Clone, Debug)]
pub struct Continuation {
    /// The most tokens to generate.
    pub count: usize,
    pub sampling: TokenSampling,
    /// So many of the likeliest tokens are reported with each token.
    pub likeliest: usize,
    /// Tokens that end the text. They are reported, too.
    pub ends: Vec<u32>,
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    pub token: u32,
    /// The tokens that the model expected, likeliest first.
    pub likeliest: Vec<Likely>,
}

/// A generated text.
#[derive(Clone, Debug, Default)]
pub struct Continued {
    pub tokens: Vec<u32>,
    /// Time from the prompt to the first token.
    pub prefill: Duration,
    /// Time for all later tokens.
    pub decode: Duration,
}

impl Continued {
    /// Tokens per second after the first one; `None` if there are none.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let later = self.tokens.len().saturating_sub(1);
        (later > 0).then(|| later as f64 / self.decode.as_secs_f64().max(1e-9))
    }
}

/// Continues `prompt`, and calls `each` with every token on every rank. `model` is this rank's
/// part, and `cache` its own. `pipeline` is its group of stages, if there are several. All ranks
/// call it with the same prompt.
///
/// # Errors
/// If the prompt is empty, if the cache has no room for all tokens, if a pass or a message fails,
/// and `each`'s own.
pub fn generate(
    model: &Llama,
    cache: &Arc<KvCache>,
    pipeline: Option<&Comm>,
    prompt: &[u32],
    how: &Continuation,
    mut each: impl FnMut(&Generated) -> Result<()>,
) -> Result<Continued> {
    ensure!(
        !prompt.is_empty(),
        "a prompt has at least one token: the one that begins a text, for an empty one"
    );
    let needed = prompt.len() + how.count.saturating_sub(1);
    let room = cache.capacity() - cache.seen();
    ensure!(
        needed <= room,
        "a prompt of {} tokens and {} more need {needed} positions, and the cache has room for {room}\n\
         help: generate fewer tokens, or choose a model with a longer context",
        prompt.len(),
        how.count
    );
    let mut text = Continued::default();
    let start = Instant::now();
    let mut next = prompt.to_vec();
    while text.tokens.len() < how.count {
        let logits = forward_through(model, pipeline, &next, &cache.pass())?;
        let generated = choose(logits, pipeline, how, text.tokens.len() as u64)?;
        text.tokens.push(generated.token);
        if text.tokens.len() == 1 {
            text.prefill = start.elapsed();
        }
        each(&generated)?;
        if how.ends.contains(&generated.token) {
            break;
        }
        next = vec![generated.token];
    }
    text.decode = start.elapsed() - text.prefill;
    Ok(text)
}

/// Runs one forward pass through all stages of a pipeline: the logits of the last token on the last
/// stage's rank, and `None` on all others. Without a pipeline, this rank has all layers.
fn forward_through(
    model: &Llama,
    pipeline: Option<&Comm>,
    ids: &[u32],
    pass: &Pass,
) -> Result<Option<Activation>> {
    let input = Input::Tokens { ids, length: ids.len() };
    let Some(stages) = pipeline.filter(|stages| stages.size() > 1) else {
        return Ok(Some(model.predict(input, pass, Positions::Last)?));
    };
    let stages = stages.labelled("forward pass");
    let y = if stages.rank() == 0 {
        model.predict(input, pass, Positions::Last)?
    } else {
        let shape = (1, ids.len(), model.shape.embd);
        let mut x = vec![0f32; ids.len() * model.shape.embd];
        stages.recv(&mut x, stages.rank() - 1)?;
        let x = Activation::new(x, shape)?;
        model.predict(Input::Hidden(&x), pass, Positions::Last)?
    };
    if stages.rank() + 1 == stages.size() {
        return Ok(Some(y));
    }
    stages.send(y.numbers(), stages.rank() + 1)?;
    Ok(None)
}

/// Chooses token number `i` from the logits of one position. A pipeline's last rank chooses for
/// all.
fn choose(
    logits: Option<Activation>,
    pipeline: Option<&Comm>,
    how: &Continuation,
    i: u64,
) -> Result<Generated> {
    let mine = |logits: &Activation| -> candle_core::Result<Generated> {
        Ok(Generated {
            token: how.sampling.choose(logits.numbers(), i)?,
            likeliest: likeliest(logits.numbers(), how.likeliest)?,
        })
    };
    let generated = logits.as_ref().map(mine).transpose()?;
    let Some(stages) = pipeline.filter(|stages| stages.size() > 1) else {
        return generated
            .ok_or_else(|| anyhow::anyhow!("this rank has no logits, and is in no pipeline"));
    };
    // A token's number is exact in f64. A vocabulary may have fewer tokens than were asked for.
    let mut numbers = vec![-1f64; 1 + 2 * how.likeliest];
    if let Some(Generated { token, likeliest }) = &generated {
        numbers[0] = f64::from(*token);
        for (pair, likely) in numbers[1..].chunks_exact_mut(2).zip(likeliest) {
            pair.copy_from_slice(&[f64::from(likely.token), f64::from(likely.probability)]);
        }
    }
    stages.labelled("next token").broadcast(&mut numbers, stages.size() - 1)?;
    let pairs = numbers[1..].chunks_exact(2).take_while(|pair| pair[0] >= 0.0);
    let likeliest = pairs
        .map(|pair| Likely { token: pair[0] as u32, probability: pair[1] as f32 })
        .collect();
    Ok(Generated { token: numbers[0] as u32, likeliest })
}
