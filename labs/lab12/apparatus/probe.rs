//! A probe: change one token, and count whose outputs change. It needs no second training to
//! compare with, and finds what a loss hides.

use super::{Break, Packed, break_pass};
use anyhow::Result;
use shardlab::comm::Reduce;
use shardlab::model::{Input, Pass, Positions};
use shardlab::train::{Config, Training};
use std::ops::Range;

/// The positions whose logits change with one token of the first document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probed {
    /// The position of the token.
    pub token: usize,
    /// Later positions of its document, and those that changed.
    pub own: [u64; 2],
    /// All other positions, and those that changed.
    pub others: [u64; 2],
}

/// Changes one token of the first sequence's first document. All ranks call it.
pub fn probe(
    training: &Training,
    config: &Config,
    (packed, broken): (&Packed, Option<Break>),
    text: &[u32],
) -> Result<Probed> {
    let packed = Packed { broken: None, ..*packed };
    let batch = packed.pack(config.sampler(0).batch(text, 0, 0));
    let length = batch.length;
    let second = batch.documents.first().and_then(|starts| starts.first());
    let end = second.copied().unwrap_or(length);
    let token = end / 2;
    let mut changed = batch.clone();
    changed.inputs[token] = (changed.inputs[token] + 1) % config.shape.vocabulary as u32;
    let logits = |batch| -> Result<(Vec<Vec<f32>>, Vec<usize>)> {
        let pass = Pass { precision: config.precision, ..Pass::evaluate() };
        let (mine, mut pass) = training.context.share(batch, pass);
        if let Some(broken) = broken {
            pass = break_pass(broken, &training.context, &training.strategy, &mine, pass);
        }
        let input = Input::Tokens { ids: &mine.inputs, length: mine.length };
        let logits = training.stages.chunks[0].predict(input, &pass, Positions::All)?;
        let (_, rows, vocabulary) = logits.dims3()?;
        let of_first =
            logits.numbers().chunks(vocabulary).take(rows).map(<[f32]>::to_vec).collect();
        // The true positions, whatever the pass believes.
        let strategy = &training.strategy;
        let rank = training.context.group().rank();
        let slices = strategy.slicing.slices(length, strategy.context, rank);
        Ok((of_first, slices.positions(mine.length).collect()))
    };
    let (before, positions) = logits(batch)?;
    let (after, _) = logits(changed)?;
    let mut counts = changed_positions([&before, &after], &positions, token..end);
    let group = training.context.group().labelled("probe");
    group.all_reduce(counts.as_flattened_mut(), Reduce::Sum)?;
    let [own, others] = counts;
    Ok(Probed { token, own, others })
}

/// The positions in `own`, and those of them whose logits differ `before` and `after`; then the
/// same of all others.
fn changed_positions(
    [before, after]: [&[Vec<f32>]; 2],
    positions: &[usize],
    own: Range<usize>,
) -> [[u64; 2]; 2] {
    let mut counts = [[0; 2]; 2];
    for ((before, after), position) in before.iter().zip(after).zip(positions) {
        let [all, changed] = &mut counts[usize::from(!own.contains(position))];
        *all += 1;
        *changed += u64::from(before != after);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::data::Corpus;
    use shardlab::launch;
    use shardlab::parallel::Strategy;

    /// A model whose outputs do not depend on a token has changed nowhere.
    #[test]
    fn a_probe_counts_what_it_hears() {
        let quiet = vec![vec![1.0, 2.0]; 4];
        let count = |after: &[Vec<f32>]| changed_positions([&quiet, after], &[0, 1, 4, 5], 1..5);
        assert_eq!(count(&quiet), [[2, 0]; 2]);
        let mut heard = quiet.clone();
        heard[2][1] = 2.5;
        assert_eq!(count(&heard), [[2, 1], [2, 0]]);
        heard[3][0] = f32::NAN;
        assert_eq!(count(&heard), [[2, 1]; 2]);
    }

    /// Without a mistake the token reaches all later positions of its document, on whatever rank,
    /// and no other. With one document, the others are those before it.
    #[test]
    fn a_token_reaches_its_document() {
        let corpus = Corpus::embedded().unwrap();
        let config = Config::small(1, &corpus);
        let length = config.shape.block as u64;
        let strategy: Strategy = "cp=2".parse().unwrap();
        let packed = Packed { documents: 1, seed: 1, broken: None };
        let probed = launch::run(2, |comm| {
            let training = Training::new(&config, &strategy, &comm)?;
            probe(&training, &config, (&packed, None), &corpus.train)
        });
        let token = length / 2;
        let own = [length - token; 2];
        let expected = Probed { token: token as usize, own, others: [token, 0] };
        assert_eq!(probed.unwrap(), [expected; 2]);
    }
}
