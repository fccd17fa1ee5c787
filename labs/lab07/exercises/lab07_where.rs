//! lab07-where · Who sends it activations?
//!
//! A mesh of 8 tensor, 5 data and 4 pipeline ranks, in Megatron-LM's order. Which rank of the stage
//! before sends its activations to rank 110?
//!
//! ```text
//! rank       0   1  …   7   8  …   ?  →  110
//! tensor     0   1      7   0
//! data       0   0      0   1
//! pipeline   0   0      0   0
//! ```

pub fn sender() -> usize {
    todo!("a rank's number")
}
