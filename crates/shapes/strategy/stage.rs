//! The stages of ZeRO.

use crate::named::named;

named! {
    /// The state that ranks shard.
    #[derive(PartialOrd, Ord)]
    pub enum Stage by default Ddp {
        /// Nothing: plain data parallelism.
        Ddp = "0",
        /// The optimizer's state.
        One = "1",
        /// The optimizer's state and the gradients.
        Two = "2",
        /// The optimizer's state, the gradients and the parameters.
        Three = "3",
    }
}

impl Stage {
    pub fn number(self) -> usize {
        self as usize
    }
}
