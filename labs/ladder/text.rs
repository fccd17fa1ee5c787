//! What the model learns from: each row is four characters of a play, and the fifth is what it
//! should predict.

use crate::model::WIDTH;
use shardlab::data::Corpus;
use shardlab::error::BadInput;
use shardlab::tensor::random::Stream;

/// Characters that the model sees.
const CONTEXT: usize = 4;
/// Rows of a step's batch, over all its parts.
pub const ROWS: usize = 256;
const SEED: u64 = 31;

pub struct Text {
    tokens: Vec<u32>,
    /// Each character's code: numbers that stay as they are.
    codes: Vec<Vec<f32>>,
}

impl Text {
    /// The play that comes with the library.
    pub fn new() -> Result<Text, BadInput> {
        let corpus = Corpus::embedded()?;
        let code = |token: usize| {
            let stream = Stream::new(SEED, "codes").branch(token as u64);
            let numbers = (0..(WIDTH / CONTEXT) as u64).map(|i| stream.normal(i) as f32);
            numbers.collect()
        };
        Ok(Text {
            codes: (0..corpus.vocabulary.size()).map(code).collect(),
            tokens: corpus.train,
        })
    }

    /// Different characters.
    pub fn vocabulary(&self) -> usize {
        self.codes.len()
    }

    /// Where the contexts of a part's rows begin in the text.
    fn offsets(&self, step: usize, part: usize, parts: usize) -> impl Iterator<Item = usize> {
        let stream = Stream::new(SEED, "rows").branch(step as u64);
        let last = (self.tokens.len() - CONTEXT) as u64;
        let rows = ROWS / parts;
        (part * rows..(part + 1) * rows).map(move |row| stream.below(last, row as u64) as usize)
    }

    /// The rows of a part, `WIDTH` numbers each: the codes of the four characters.
    pub fn input(&self, step: usize, part: usize, parts: usize) -> Vec<f32> {
        let mut rows = Vec::with_capacity(ROWS / parts * WIDTH);
        for start in self.offsets(step, part, parts) {
            for token in &self.tokens[start..start + CONTEXT] {
                rows.extend(&self.codes[*token as usize]);
            }
        }
        rows
    }

    /// The character that each row should predict.
    pub fn targets(&self, step: usize, part: usize, parts: usize) -> Vec<u32> {
        let offsets = self.offsets(step, part, parts);
        offsets.map(|start| self.tokens[start + CONTEXT]).collect()
    }
}
