//! A mixture of experts in place of an MLP: for each token a router chooses a few of the block's
//! MLPs, and weights what they compute (Shazeer et al., arXiv 1701.06538).
//!
//! The router is a small matrix. A softmax makes scores of its products, the experts with the
//! highest scores compute, and their results are added up, each times its score. So the router
//! learns only from experts that it has chosen. Auxiliary losses keep it from choosing the same few
//! for ever: `balance.rs`.
//!
//! Cost: a token is copied once for each of its experts, and a step computes as many products as
//! experts were chosen, however many there are.

use super::layers::{Layer, Pass};
use crate::plan::Experts;
use crate::tensor::{self, Device, Param, Precision, Tensor, read};
use candle_core::{D, Result};

/// A block's experts and their router.
pub struct Mixture {
    /// `[experts, width]`
    pub router: Param,
    pub experts: Vec<Box<dyn Layer>>,
    pub rules: Experts,
    /// The layer's name, which decides its dropout masks and names its load.
    pub name: String,
}

impl Layer for Mixture {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let rows = x.flatten_to(D::Minus2)?;
        let (chosen, weights) = self.route(&rows, pass)?;
        let dispatch = Dispatch::new(&chosen, &self.rules);

        // Each expert gets copies of its tokens. Masks of dropout belong to positions, which
        // experts do not know: it follows when all is in its old order again.
        let undropped = Pass { dropout: None, ..pass.clone() };
        let mut results = Vec::new();
        let mut rest = &dispatch.tokens[..];
        for (expert, count) in self.experts.iter().zip(&dispatch.counts) {
            let (mine, others) = rest.split_at(*count);
            let copies = rows.index_select(&indices(mine)?, 0)?.unsqueeze(0)?;
            results.push(expert.forward(&copies, &undropped)?.squeeze(0)?);
            rest = others;
        }

        let weights = weights.flatten_all()?.index_select(&indices(&dispatch.choices)?, 0)?;
        let results = Tensor::cat(&results, 0)?.broadcast_mul(&weights.unsqueeze(1)?)?;
        let y = rows.zeros_like()?.index_add(&indices(&dispatch.tokens)?, &results, 0)?;
        pass.drop(y.reshape(x.shape())?, &self.name)
    }
}

impl Mixture {
    /// The experts of each row, in the order of their scores, and the weights of their results:
    /// [rows, chosen].
    fn route(&self, rows: &Tensor, pass: &Pass) -> Result<(Vec<u32>, Tensor)> {
        // In f32, whatever the type of other products: a small difference chooses another expert.
        let logits = tensor::linear(rows, &self.router, Precision::F32)?;
        let Experts { number, chosen, normalized } = self.rules;
        let ids = read(&logits, |logits| Ok(highest(logits, number, chosen)))?;
        let logits = match &pass.balance {
            Some(balance) => balance.watch(&self.name, &logits, &ids)?,
            None => logits,
        };
        let largest = logits.detach().max_keepdim(D::Minus1)?;
        let scores = logits.broadcast_sub(&largest)?.exp()?;
        let scores = scores.broadcast_div(&scores.sum_keepdim(D::Minus1)?)?;
        let table = Tensor::from_slice(&ids, (rows.dim(0)?, chosen), &Device::Cpu)?;
        let weights = scores.gather(&table, D::Minus1)?;
        let weights = if normalized {
            weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?
        } else {
            weights
        };
        Ok((ids, weights))
    }
}

/// For each row of `numbers` numbers the places of the `chosen` highest, highest first. Of equal
/// numbers the first is taken.
fn highest(rows: &[f32], numbers: usize, chosen: usize) -> Vec<u32> {
    let mut all = Vec::with_capacity(rows.len() / numbers * chosen);
    let mut places: Vec<u32> = Vec::new();
    for row in rows.chunks_exact(numbers) {
        places.clear();
        places.extend(0..numbers as u32);
        places.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize])); // stable
        all.extend(&places[..chosen]);
    }
    all
}

/// Copies of tokens in the order of their experts.
struct Dispatch {
    /// Copies that each expert gets.
    counts: Vec<usize>,
    /// For each copy its token.
    tokens: Vec<u32>,
    /// For each copy its place among all choices, of which each token has as many.
    choices: Vec<u32>,
}

impl Dispatch {
    /// Of `chosen` experts: each token's, one token after the other.
    fn new(chosen: &[u32], rules: &Experts) -> Dispatch {
        let mut counts = vec![0; rules.number];
        chosen.iter().for_each(|&expert| counts[expert as usize] += 1);
        let mut choices: Vec<u32> = (0..chosen.len() as u32).collect();
        choices.sort_by_key(|&choice| chosen[choice as usize]); // stable: tokens stay in order
        let tokens = choices.iter().map(|choice| choice / rules.chosen as u32).collect();
        Dispatch { counts, tokens, choices }
    }
}

fn indices(all: &[u32]) -> Result<Tensor> {
    Tensor::from_slice(all, all.len(), &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gpt, Input};
    use crate::plan::{Family, ModelShape};
    use std::sync::{Arc, Mutex};

    #[test]
    fn the_highest_come_first_and_of_equals_the_first() {
        let rows = [0.5, 2.0, -1.0, 2.0, f32::NEG_INFINITY, -3.0, -3.0, -4.0];
        assert_eq!(highest(&rows, 4, 2), [1, 3, 1, 2]);
        assert_eq!(highest(&rows, 4, 4), [1, 3, 0, 2, 1, 2, 3, 0]);
        assert!(highest(&[], 4, 2).is_empty());
    }

    /// A model of two experts, of which the router's ties always choose the first: the other one
    /// has no rows, and its gradient, which ranks wait for, is complete all the same.
    #[test]
    fn an_expert_may_have_no_tokens() {
        let experts = Experts { number: 2, chosen: 1, normalized: false };
        let shape = ModelShape {
            vocabulary: 5,
            block: 4,
            layers: 1,
            heads: 1,
            embd: 4,
            family: Family::GptExperts { ffn: 8, experts },
        };
        let gpt = Gpt::new(&shape).unwrap();
        gpt.params.allocate(3);
        let specs = gpt.params.specs();
        let of = |part: &str| specs.iter().find(|spec| spec.name.contains(part)).unwrap();
        gpt.params.values_mut()[of("router").range()].fill(0.0);
        let complete = Arc::new(Mutex::new(Vec::new()));
        let heard = complete.clone();
        let _listener = gpt.params.listen(Box::new(move |_, spec| {
            heard.lock().unwrap().push(spec.index);
            Ok(())
        }));
        let input = Input::Tokens { ids: &[0, 1, 2, 3], length: 4 };
        let loss = gpt.forward(input, &[1, 2, 3, 4], &Pass::training(None)).unwrap();
        loss.backward().unwrap();
        let gradients = gpt.params.gradients();
        let largest = |part: &str| {
            gradients[of(part).range()].iter().fold(0f32, |largest, g| largest.max(g.abs()))
        };
        assert!(loss.to_scalar::<f32>().unwrap().is_finite());
        assert!(largest("experts.0.fc") > 0.0 && largest("router") > 0.0);
        assert_eq!((largest("experts.1.fc"), largest("experts.1.out")), (0.0, 0.0));
        assert!(complete.lock().unwrap().contains(&of("experts.1.fc").index));
    }

    #[test]
    fn copies_are_sorted_by_expert_and_then_by_token() {
        let rules = Experts { number: 4, chosen: 2, normalized: true };
        let dispatch = Dispatch::new(&[3, 0, 0, 1, 3, 1], &rules);
        assert_eq!(dispatch.counts, [2, 2, 0, 2]);
        assert_eq!(dispatch.tokens, [0, 1, 1, 2, 0, 2]);
        assert_eq!(dispatch.choices, [1, 2, 3, 5, 0, 4]);
    }
}
