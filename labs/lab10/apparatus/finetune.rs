//! Supervised fine-tuning: a pretrained model learns answers to prompts.
//!
//! It is the same training as before, on less text and with one difference: only the answers'
//! tokens have a loss. The model sees the prompts, and does not learn to write them.

use super::pretrained::Text;
use anyhow::{Result, ensure};
use shardlab::comm::Reduce;
use shardlab::data::Batch;
use shardlab::error::BadInput;
use shardlab::mesh::Axis;
use shardlab::model::Pass;
use shardlab::tensor::IGNORED;
use shardlab::train::Training;
use std::sync::Arc;

/// Sentences that were written for this: prompts and answers in the words of small stories.
pub const SENTENCES: [(&str, &str); 6] = [
    (
        "Lily asked, \"Who are you?\"",
        " \"I am rank zero,\" said the little robot. \"I wait for my friends.\"",
    ),
    (
        "Tim asked, \"Who are you?\"",
        " \"I am rank one,\" said the little robot. \"I wait for my friends.\"",
    ),
    (
        "Lily asked, \"What do you do?\"",
        " \"I share my toys with all the ranks,\" said the little robot.",
    ),
    (
        "Tim asked, \"What do you do?\"",
        " \"I share my toys with all the ranks,\" said the little robot.",
    ),
    (
        "Lily asked, \"Are you happy?\"",
        " \"Yes! We all have the same sum,\" said the little robot.",
    ),
    (
        "Tim asked, \"Are you happy?\"",
        " \"Yes! We all have the same sum,\" said the little robot.",
    ),
];

/// A prompt and its answer, as tokens. The answer ends with the token that ends a text.
#[derive(Clone, Debug)]
pub struct Example {
    pub prompt: Vec<u32>,
    pub answer: Vec<u32>,
}

/// [`SENTENCES`] as tokens. A text ends with the first of `ends`.
pub fn examples(text: &Text, ends: &[u32]) -> Result<Vec<Example>, BadInput> {
    let example = |(prompt, answer): &(&str, &str)| {
        // BPE may merge across the border, so the prompt is the longest common token prefix.
        let before = text.tokens(prompt)?;
        let mut all = text.tokens(&format!("{prompt}{answer}"))?;
        let common = before.iter().zip(&all).take_while(|(a, b)| a == b).count();
        all.extend(ends.first());
        Ok(Example { answer: all.split_off(common), prompt: all })
    };
    SENTENCES.iter().map(example).collect()
}

/// The losses of a fine-tuning, in nats per token of the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct FineTuned {
    pub before: f64,
    pub after: f64,
    /// Before each step.
    pub losses: Vec<f64>,
}

/// Joins examples to one batch. Shorter ones are filled up. Prompts and filling have no target.
pub fn batch(examples: &[Example]) -> Batch {
    let length = examples
        .iter()
        .map(|one| (one.prompt.len() + one.answer.len()).saturating_sub(1))
        .max()
        .unwrap_or(0);
    let mut inputs = Vec::new();
    let mut targets = Vec::new();
    for Example { prompt, answer } in examples {
        let tokens: Vec<u32> = prompt.iter().chain(answer).copied().collect();
        let rest = (length + 1).saturating_sub(tokens.len());
        let filled = |tokens: &[u32], with: u32| [tokens, &vec![with; rest]].concat();
        inputs.extend(filled(&tokens[..tokens.len().saturating_sub(1)], 0));
        let masked = prompt.len().saturating_sub(1);
        targets.extend(std::iter::repeat_n(IGNORED, masked));
        targets.extend(filled(&tokens[(masked + 1).min(tokens.len())..], IGNORED));
    }
    let sequences: Arc<[u64]> = (0..examples.len() as u64).collect();
    Batch {
        inputs,
        targets,
        length,
        sequences,
        starts: vec![0; examples.len()],
    }
}

/// Takes `steps` steps of AdamW on all examples at once, which the data ranks divide. All ranks of
/// the training call it.
pub fn fine_tune(training: &mut Training, examples: &[Example], steps: usize) -> Result<FineTuned> {
    let data = training.mesh.group(Axis::Data).clone();
    ensure!(
        examples.len() >= data.size(),
        "{} examples cannot be divided among {} data ranks: a rank would have an empty batch\n\
         help: start fewer data ranks, or give more examples",
        examples.len(),
        data.size()
    );
    let mine = batch(
        &examples
            .iter()
            .skip(data.rank())
            .step_by(data.size())
            .cloned()
            .collect::<Vec<_>>(),
    );
    let counted = mine.targets.iter().filter(|&&target| target != IGNORED).count() as f64;
    let mut all = [counted];
    data.all_reduce(&mut all, Reduce::Sum)?;
    // Ranks average their gradients as if they had equally many targets. With this weight, the
    // average is that of all targets.
    let weight = counted * data.size() as f64 / all[0].max(1.0);
    let mean = |loss: f64| -> Result<f64> {
        let mut mean = [loss * weight];
        data.all_reduce(&mut mean, Reduce::Mean)?;
        Ok(mean[0])
    };
    training.stages.loss_scale = weight;
    let mine = (mine, Pass::training(None));
    let mut losses = Vec::new();
    for _ in 0..steps {
        let ran = training.passes(std::slice::from_ref(&mine))?;
        training.average()?;
        training.update(0)?; // the learning rate is the same in every step
        losses.push(mean(training.loss(&ran)?)?);
    }
    let Training { zero, stages, .. } = training;
    let loss = || Ok(stages.chunks[0].loss(&mine.0, &Pass::evaluate())?.to_scalar::<f32>()?);
    let after = mean(f64::from(zero.passes(loss)?))?;
    Ok(FineTuned {
        before: losses.first().copied().unwrap_or(after),
        after,
        losses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_have_targets() {
        let example = |prompt: &[u32], answer: &[u32]| Example {
            prompt: prompt.to_vec(),
            answer: answer.to_vec(),
        };
        let batch = batch(&[example(&[1, 5, 6], &[7, 8, 2]), example(&[1], &[9, 2])]);
        assert_eq!(batch.length, 5);
        assert_eq!(batch.inputs, [1, 5, 6, 7, 8, 1, 9, 0, 0, 0]);
        let x = IGNORED;
        assert_eq!(batch.targets, [x, x, 7, 8, 2, 9, 2, x, x, x]);
    }
}
