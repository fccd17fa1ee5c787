//! How ranks share sequences: what they send each other, and who holds which positions.

use super::slices::Slices;
use crate::named::named;

named! {
    /// What context ranks send each other for attention: Megatron-LM's `--cp-comm-type`.
    pub enum Exchange by default Gather {
        /// All keys and values at once: Megatron-LM's `all_gather`.
        Gather = "gather",
        /// Keys and values, from neighbour to neighbour (Liu et al., arXiv 2310.01889): `p2p`.
        Ring = "ring",
        /// Heads for positions (Jacobs et al., arXiv 2309.14509): `a2a`.
        Ulysses = "ulysses",
    }
}

named! {
    /// Which positions a context rank holds.
    pub enum Slicing by default ZigZag {
        /// Of 2c chunks, rank r holds numbers r and 2c-1-r: all ranks see equally many keys.
        ZigZag = "zig-zag",
        /// Of c chunks, rank r holds number r: the last rank sees most keys.
        Contiguous = "contiguous",
    }
}

impl Exchange {
    /// The numbers that each of `ranks` ranks sends for one layer, in the forward and in the
    /// backward pass: for `tokens` tokens, `queries` wide queries and `keys` wide keys.
    pub fn sent(self, ranks: usize, tokens: f64, queries: f64, keys: f64) -> [f64; 2] {
        let c = ranks as f64;
        match self {
            Exchange::Gather | Exchange::Ring => {
                let forward = 2.0 * (c - 1.0) / c * tokens * keys;
                [forward, 2.0 * forward]
            }
            Exchange::Ulysses => {
                let forward = 2.0 * (queries + keys) * (c - 1.0) / (c * c) * tokens;
                [forward, forward]
            }
        }
    }
}

impl Slicing {
    /// The positions of `rank`, one of `ranks`, in sequences of `length` tokens.
    pub fn slices(self, length: usize, ranks: usize, rank: usize) -> Slices {
        let chunk =
            |number: usize, chunks: usize| number * length / chunks..(number + 1) * length / chunks;
        match self {
            _ if ranks == 1 => Slices::one(0..length),
            Slicing::ZigZag => {
                Slices::new([rank, 2 * ranks - 1 - rank].map(|number| chunk(number, 2 * ranks)))
            }
            Slicing::Contiguous => Slices::one(chunk(rank, ranks)),
        }
    }

    /// The chunks into which a sequence is cut for `ranks` ranks.
    pub fn chunks(self, ranks: usize) -> usize {
        match self {
            _ if ranks == 1 => 1,
            Slicing::ZigZag => 2 * ranks,
            Slicing::Contiguous => ranks,
        }
    }
}
