//! lab01-which · Which collective was it?
//!
//! Three ranks bring three numbers each, and make one call together. Below is what they hold after each of five calls. A `-`
//! says that a rank gets nothing from the call. Which calls were these?
//!
//! ```text
//!           rank 0           rank 1           rank 2
//! bring      1   2   3       10  20  30      100 200 300
//!
//! A        111 222 333      111 222 333      111 222 333
//! B         10  20  30       10  20  30       10  20  30
//! C        111              222              333
//! D         10               20               30
//! E          -                -              111 222 333
//! ```

/// The calls of lab01. The check lets three ranks make the call that you name, and shows what it leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Collective {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    Scatter,
}

/// The calls A, B, C, D and E, in this order: `[Collective::AllGather, …]`.
pub fn calls() -> [Collective; 5] {
    todo!("five calls: is A {:?}?", Collective::AllGather)
}
