//! lab03-replicas · One model, or two?

/// Whether both ranks hold the same model in the end, for A to F in this order.
pub fn one_model() -> [bool; 6] {
    // Before the average, ranks may differ. After it they must not.
    [false, true, false, true, false, true]
}
