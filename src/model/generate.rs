//! Generates text with a model, one token at a time.

use super::{Gpt, Pass};
use crate::tensor::random::Stream;
use candle_core::{Result, bail};

/// Continues `prompt` by `count` tokens, drawn from softmax(logits / temperature).
///
/// The model sees at most the last `block` tokens. The draws are a function of `stream`.
///
/// # Errors
/// If the prompt is empty, or the model fails.
pub fn generate(
    gpt: &Gpt,
    prompt: &[u32],
    count: usize,
    temperature: f32,
    stream: Stream,
) -> Result<Vec<u32>> {
    if prompt.is_empty() {
        bail!("generation continues a prompt, which must have at least one token");
    }
    let mut tokens = prompt.to_vec();
    for i in 0..count {
        let seen = &tokens[tokens.len().saturating_sub(gpt.shape.block)..];
        let logits = gpt.logits(seen, seen.len(), &Pass::evaluate())?;
        let last = logits.narrow(1, seen.len() - 1, 1)?.flatten_all()?.to_vec1::<f32>()?;
        tokens.push(draw(&last, temperature, stream.uniform(i as u64)));
    }
    Ok(tokens.split_off(prompt.len()))
}

/// The token at which the cumulative probability, by softmax(logits / temperature), exceeds `u`,
/// 0 <= u < 1.
pub fn draw(logits: &[f32], temperature: f32, u: f64) -> u32 {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> =
        logits.iter().map(|x| f64::from((x - top) / temperature).exp()).collect();
    let mut left = u * weights.iter().sum::<f64>();
    for (i, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return i as u32;
        }
    }
    // The loop ends without a token only because of rounding, or of a NaN.
    weights.len().saturating_sub(1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Family, ModelShape};

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let logits = [0.0, (3.0f32).ln(), f32::NEG_INFINITY];
        let count = |temperature| {
            let ones = (0..1000).filter(|&i| draw(&logits, temperature, i as f64 / 1000.0) == 1);
            ones.count()
        };
        assert_eq!(count(1.0), 750);
        assert_eq!(count(0.5), 900);
        assert!((0..1000).all(|i| draw(&logits, 1.0, i as f64 / 1000.0) != 2));
        assert_eq!(draw(&[f32::NAN; 3], 1.0, 0.5), 2, "a token of the vocabulary");
    }

    /// Every token follows from the last `block` tokens, or from all while there are fewer.
    #[test]
    fn the_model_sees_the_last_block_of_tokens() {
        let shape = ModelShape {
            vocabulary: 11,
            block: 4,
            layers: 1,
            heads: 2,
            embd: 8,
            family: Family::Gpt,
            experts: None,
        };
        let gpt = Gpt::new(&shape).unwrap();
        gpt.params.allocate(3);
        // Initial weights are so small that all tokens are nearly equally likely, whatever came
        // before.
        gpt.params.values_mut().iter_mut().for_each(|x| *x *= 20.0);
        let continued = |prompt: &[u32], count| {
            generate(&gpt, prompt, count, 0.1, Stream::new(5, "test")).unwrap()
        };
        let mut text = vec![7];
        text.extend(continued(&text, 40));
        // The whole text in windows of each size, one draw at a time. Only a window of `block`
        // gives this text.
        let follows = |size: usize| {
            let next = |i: usize| {
                let seen = &text[(i + 1usize).saturating_sub(size)..=i];
                let logits = gpt.logits(seen, seen.len(), &Pass::evaluate()).unwrap();
                let last = logits.narrow(1, seen.len() - 1, 1).unwrap();
                let last = last.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                draw(&last, 0.1, Stream::new(5, "test").uniform(i as u64))
            };
            (0..40).all(|i| next(i) == text[i + 1])
        };
        let sizes: Vec<usize> = (1..=shape.block).filter(|&size| follows(size)).collect();
        assert_eq!(sizes, [shape.block], "{text:?}");
    }
}
