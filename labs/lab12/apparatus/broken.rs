//! Mistakes of context parallelism. Most of them were in released programs.

use shardlab::data::Batch;
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
use shardlab::parallel::context::{Exchange, Slicing};
use shardlab::tensor::IGNORED;

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// The ring forgets where documents begin: they attend to each other
    Documents,
    /// The backward pass takes the first round's keys and values in all rounds
    StaleKv,
    /// Labels are shifted after the sequence is sliced
    Shift,
    /// Each rank divides its loss by its own count of targets
    OwnCount,
    /// The loss is multiplied by the number of context ranks once too often
    LossScale,
    /// A larger score in a later round does not rescale the partial sums
    NoRescale,
    /// Each rank counts its positions from 0
    Positions,
    /// What each round adds is rounded to bf16
    Bf16Partials,
    /// Each rank holds neighbouring positions: all right, and slow
    Contiguous,
}

impl Break {
    /// Refuses an exchange, or a number of documents in a sequence, with which it is none.
    ///
    /// # Errors
    /// With Ulysses, no keys come block by block; and one document sees only itself.
    pub fn ensure_made_by(self, exchange: Exchange, documents: usize) -> Result<(), BadInput> {
        if self == Break::Documents && documents < 2 {
            let what = "one document in a sequence attends to no other";
            return Err(BadInput::new(what, "give --documents 2 or more with this --break"));
        }
        let is_of_rounds = matches!(self, Break::StaleKv | Break::NoRescale | Break::Bf16Partials);
        if is_of_rounds && exchange == Exchange::Ulysses {
            let what = "this mistake is one of rounds, and ulysses has all keys in one";
            return Err(BadInput::new(what, "give --comm ring or --comm gather with this --break"));
        }
        Ok(())
    }

    /// The factor of the loss in the backward pass.
    pub fn loss_scale(self, strategy: &Strategy) -> f64 {
        match self {
            Break::LossScale => strategy.context as f64,
            _ => 1.0,
        }
    }
}

/// Gives each position the next input of its rank's own rows as its target, as labels are that a
/// rank shifts after slicing. A rank's last row has no next one.
pub fn shift_after_slicing(batch: &mut Batch, slicing: Slicing, ranks: usize) {
    let length = batch.length;
    for rank in 0..ranks {
        let slices = slicing.slices(length, ranks, rank);
        let positions: Vec<usize> = slices.positions(slices.rows()).collect();
        for sequence in 0..batch.inputs.len() / length {
            let start = sequence * length;
            for pair in positions.windows(2) {
                // The ends of documents stay without a target.
                if batch.targets[start + pair[0]] != IGNORED {
                    batch.targets[start + pair[0]] = batch.inputs[start + pair[1]];
                }
            }
            if let Some(last) = positions.last() {
                batch.targets[start + last] = IGNORED;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 0 of two has positions 0, 1, 6 and 7, and rank 1 those between. A document ends at 4.
    #[test]
    fn each_ranks_last_label_is_lost() {
        let mut targets: Vec<u32> = (11..19).collect();
        targets[4] = IGNORED;
        let mut batch = Batch {
            inputs: (10..18).collect(),
            targets,
            length: 8,
            sequences: [0].into(),
            starts: vec![0],
            documents: Vec::new().into(),
        };
        shift_after_slicing(&mut batch, Slicing::ZigZag, 2);
        assert_eq!(batch.targets, [11, 16, 13, 14, IGNORED, IGNORED, 17, IGNORED]);
    }
}
