//! Activations that a layer keeps for its backward pass.
//!
//! Source: Korthikanti et al. (arXiv 2205.05198), table 2, for GPTs. The counts for a Llama and for this library's GPT go
//! over their operations in the same way.

use super::degrees::{Recompute, Strategy};
use super::model::{Family, Model};

/// The activations that one layer keeps for each token: bytes for each unit of the model's width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The layer's input, which is the residual stream.
    pub input: f64,
    /// On every tensor rank, with and without sequence parallelism.
    pub whole: f64,
    /// Sequence parallelism divides these: the residual stream, norms, dropout masks.
    pub stream: f64,
    /// Tensor ranks divide these: heads, and the MLP's inner width.
    pub divided: f64,
    /// Attention's scores, which tensor ranks divide as well.
    pub scores: f64,
}

impl Kept {
    /// A layer of `model`, whose numbers have `element` bytes. With `flash`, attention keeps no scores.
    pub fn of(model: &Model, element: f64, flash: bool) -> Kept {
        let h = model.width as f64;
        let ffn = model.ffn as f64;
        let kv = model.kv_width() as f64 / h;
        let scores = (model.heads * model.length) as f64 / h;
        // Two copies of the scores, and the mask of their dropout, a byte each: 5as/h in 16 bits.
        let scores = if flash {
            0.0
        } else {
            (2.0 * element + 1.0) * scores
        };
        match model.family {
            // The inputs of two norms and of two matrices, and two masks; q, k, v, the output of attention, and of the MLP the
            // results of its first matrix and of GELU. In 16 bits: 10 + 24/t, and 34 in all.
            Family::Gpt => {
                let divided = element * (2.0 + 2.0 * kv + 2.0 * ffn / h);
                Kept {
                    input: element,
                    whole: 0.0,
                    stream: 4.0 * element + 2.0,
                    divided,
                    scores,
                }
            }
            // The same without masks. A fused SwiGLU keeps its two inputs and its result, and no product between them.
            Family::Llama => {
                let divided = element * (2.0 + 2.0 * kv + 3.0 * ffn / h);
                Kept {
                    input: element,
                    whole: 0.0,
                    stream: 4.0 * element,
                    divided,
                    scores,
                }
            }
            // lab05's count, in numbers: 2 + 4/t + 12/t, and two masks. Gathered inputs stay, because candle keeps its graph.
            Family::Here { dropout } => {
                let stream = element * if dropout { 6.0 } else { 4.0 };
                Kept {
                    input: element,
                    whole: 2.0 * element,
                    stream,
                    divided: 12.0 * element,
                    scores: 0.0,
                }
            }
        }
    }

    /// Bytes per token and unit of width on a rank.
    pub fn on_a_rank(&self, strategy: &Strategy) -> f64 {
        let t = strategy.tensor as f64;
        match strategy.recompute {
            Recompute::None => self.all(strategy) + self.scores / t,
            Recompute::Selective => self.all(strategy),
            // The layer's input, in 16 bits: 2sbh. Sequence parallelism divides it.
            Recompute::Full => self.input / strategy.stream(),
        }
    }

    /// Everything but the scores.
    fn all(&self, strategy: &Strategy) -> f64 {
        self.whole + self.stream / strategy.stream() + self.divided / strategy.tensor as f64
    }

    /// Bytes per token and unit of width that the forward pass writes, whatever is recomputed later.
    pub fn written(&self, strategy: &Strategy) -> f64 {
        self.all(strategy) + self.scores / strategy.tensor as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 2, line by line.
    #[test]
    fn the_papers_table() {
        for (a, h) in [(96usize, 12_288usize), (128, 20_480), (64, 6144)] {
            let model = Model::gpt(1, h, a, 51_200, 2048);
            let kept = Kept::of(&model, 2.0, false);
            let scores = 5.0 * (a * 2048) as f64 / h as f64;
            let one = Strategy::SINGLE;
            let t8 = Strategy { tensor: 8, ..one };
            let sp = Strategy {
                sequence: true,
                ..t8
            };
            let with = |recompute, strategy: Strategy| {
                kept.on_a_rank(&Strategy {
                    recompute,
                    ..strategy
                })
            };
            use Recompute::{Full, None, Selective};
            for (is, formula) in [
                (with(None, one), 34.0 + scores),
                (with(None, t8), 10.0 + 24.0 / 8.0 + scores / 8.0),
                (with(None, sp), (34.0 + scores) / 8.0),
                (with(Selective, t8), 10.0 + 24.0 / 8.0),
                (with(Selective, sp), 34.0 / 8.0),
                (with(Full, t8), 2.0),
            ] {
                assert!((is - formula).abs() < 1e-9, "{is} is not {formula}");
            }
        }
        assert_eq!(
            Kept::of(&Model::gpt(1, 12_288, 96, 1, 2048), 2.0, false).scores,
            80.0
        );
        assert_eq!(
            Kept::of(&Model::gpt(1, 20_480, 128, 1, 2048), 2.0, false).scores,
            64.0
        );
    }

    /// Korthikanti et al.'s figure 7: per cent of what tensor parallelism alone keeps. And in GiB for the 22-billion model.
    #[test]
    fn the_papers_figure() {
        let gib = |strategy: &Strategy| {
            let model = Model::gpt(48, 6144, 64, 51_200, 2048);
            let tokens = (4 * 2048 * 6144) as f64 * 48.0;
            Kept::of(&model, 2.0, false).on_a_rank(strategy) * tokens / f64::from(1 << 30)
        };
        let t8 = Strategy {
            tensor: 8,
            ..Strategy::SINGLE
        };
        let sp = Strategy {
            sequence: true,
            ..t8
        };
        let selective = Strategy {
            recompute: Recompute::Selective,
            ..sp
        };
        for (strategy, expected) in [
            (Strategy::SINGLE, 316.5),
            (t8, 59.25),
            (sp, 39.56),
            (selective, 9.56),
        ] {
            assert!(
                (gib(&strategy) - expected).abs() < 0.01,
                "{}",
                gib(&strategy)
            );
        }
        assert_eq!(
            gib(&Strategy {
                recompute: Recompute::Full,
                ..t8
            }),
            4.5
        );
        assert!(
            (gib(&sp) / gib(&t8) - 0.6684).abs() < 0.002
                && (gib(&selective) / gib(&t8) - 0.1618).abs() < 0.002
        );
    }

    /// This library's layers keep what lab05 measures.
    #[test]
    fn here_it_is_lab05s_count() {
        let shape = crate::plan::GptShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 1 << 20,
        };
        for (tensor, sequence, dropout) in [
            (1, false, false),
            (2, false, true),
            (4, false, false),
            (2, true, true),
        ] {
            let kept = Kept::of(&Model::here(&shape, dropout), 4.0, true);
            let shards = crate::plan::TensorShards {
                shape,
                ranks: tensor,
                sequence,
                rows: 65,
            };
            let strategy = Strategy {
                tensor,
                sequence,
                ..Strategy::SINGLE
            };
            let is = kept.on_a_rank(&strategy);
            let says = 4.0 * shards.kept_by_a_block(dropout);
            assert!((is - says).abs() < 1e-3, "{is} is not {says}");
        }
    }
}
