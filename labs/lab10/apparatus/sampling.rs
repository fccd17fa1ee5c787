//! The choice of the next token.

use candle_core::{Result, bail};
use shardlab::model::draw;
use shardlab::tensor::random::Stream;

/// How a token is chosen from its logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenSampling {
    /// The logits are divided by it: below 1 likely tokens become likelier. 0 always takes the
    /// likeliest (greedy).
    pub temperature: f32,
    pub seed: u64,
}

/// A token and its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likely {
    pub token: u32,
    pub probability: f32,
}

impl TokenSampling {
    /// Always the likeliest token.
    pub const GREEDY: TokenSampling = TokenSampling { temperature: 0.0, seed: 0 };

    /// Chooses the token number `i` of a text. The draw is a function of the seed and of `i`, not
    /// of earlier draws.
    ///
    /// # Errors
    /// If a logit is NaN, all are infinite, or there are none.
    pub fn choose(&self, logits: &[f32], i: u64) -> Result<u32> {
        let top = largest(logits)?;
        if self.temperature <= 0.0 {
            return Ok(logits.iter().position(|&x| x == logits[top]).unwrap_or(top) as u32);
        }
        Ok(draw(logits, self.temperature, Stream::new(self.seed, "generate").uniform(i)))
    }
}

/// The `n` likeliest tokens with their probabilities, likeliest first; of equal ones the first.
///
/// # Errors
/// If a logit is NaN, all are infinite, or there are none.
pub fn likeliest(logits: &[f32], n: usize) -> Result<Vec<Likely>> {
    let top = logits[largest(logits)?];
    if n == 0 {
        return Ok(Vec::new());
    }
    let weight = |x: f32| f64::from(x - top).exp();
    let sum: f64 = logits.iter().map(|&x| weight(x)).sum();
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit =
        |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if n < tokens.len() {
        tokens.select_nth_unstable_by(n - 1, by_logit);
        tokens.truncate(n);
    }
    tokens.sort_unstable_by(by_logit);
    let likely = |token: u32| Likely {
        token,
        probability: (weight(logits[token as usize]) / sum) as f32,
    };
    Ok(tokens.into_iter().map(likely).collect())
}

/// The position of the largest logit. Refuses logits that say nothing.
fn largest(logits: &[f32]) -> Result<usize> {
    match logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)) {
        Some((top, x)) if x.is_finite() => Ok(top),
        _ => bail!("the logits of the next token are not finite: are these the model's weights?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probabilities 0.5, 0.25, 0.125, 0.125 of tokens 2, 0, 1, 3.
    fn logits() -> Vec<f32> {
        [0.25f32, 0.125, 0.5, 0.125].map(f32::ln).to_vec()
    }

    fn counts(sampling: TokenSampling) -> [usize; 4] {
        let mut counts = [0; 4];
        (0..10_000).for_each(|i| counts[sampling.choose(&logits(), i).unwrap() as usize] += 1);
        counts
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let plain = TokenSampling { temperature: 1.0, ..TokenSampling::GREEDY };
        let near = |counts: [usize; 4], expected: [usize; 4]| {
            assert!(
                counts.iter().zip(expected).all(|(a, b)| a.abs_diff(b) < 200),
                "{counts:?}, not {expected:?}"
            );
            assert!(counts.iter().zip(expected).all(|(&a, b)| (a == 0) == (b == 0)), "{counts:?}");
        };
        near(counts(plain), [2500, 1250, 5000, 1250]);
        near(counts(TokenSampling { temperature: 0.5, ..plain }), [1818, 455, 7273, 455]);
        near(counts(TokenSampling::GREEDY), [0, 0, 10_000, 0]);
        assert_ne!(counts(plain), counts(TokenSampling { seed: 1, ..plain }));
    }

    #[test]
    fn the_likeliest_come_first_with_their_probabilities() {
        let found = likeliest(&logits(), 3).unwrap();
        assert_eq!(found.iter().map(|likely| likely.token).collect::<Vec<_>>(), [2, 0, 1]);
        assert!(
            found
                .iter()
                .zip([0.5, 0.25, 0.125])
                .all(|(likely, p)| (likely.probability - p).abs() < 1e-6)
        );
        assert_eq!([0, 9].map(|n| likeliest(&logits(), n).unwrap().len()), [0, 4]);
        assert_eq!(
            TokenSampling::GREEDY.choose(&[1.0, 3.0, 3.0], 0).unwrap(),
            1,
            "of equal ones the first"
        );
    }

    #[test]
    fn logits_that_say_nothing_are_refused() {
        for logits in [&[0.0, f32::NAN][..], &[f32::INFINITY], &[f32::NEG_INFINITY; 2], &[]] {
            assert!(
                TokenSampling::GREEDY
                    .choose(logits, 0)
                    .unwrap_err()
                    .to_string()
                    .contains("are not finite")
            );
        }
    }
}
