//! lab01-which · Which collective was it?

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
    [
        Collective::AllReduce,
        Collective::Broadcast,
        Collective::ReduceScatter,
        Collective::Scatter,
        Collective::Reduce,
    ]
}
