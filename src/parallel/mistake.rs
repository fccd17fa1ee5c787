//! Deliberate mistakes, which labs make to show what notices them.

/// A piece of a strategy that is left out on purpose. Only
/// [`ZeroConfig`](super::ZeroConfig) takes one, in a hidden field: no setting of a training can be
/// mistaken for one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Each rank begins with weights of its own.
    OwnWeights,
    /// Each rank keeps its own gradients.
    OwnGradients,
    /// Each data rank draws the first one's sequences.
    SameBatches,
    /// Each rank clips by its own shard's norm.
    LocalNorm,
    /// Each pipeline stage trains its own copy of the tied table with its own part of the gradient.
    UntiedTable,
    /// Gradients are averaged in the backward pass of the first micro-batch, not of the last.
    EarlyAverage,
    /// Packed documents attend to each other.
    NoDocuments,
    /// Each context rank counts its positions from 0.
    OwnPositions,
    /// The backward pass of ring attention takes this rank's keys and values in all rounds.
    StaleKeys,
    /// A larger score in a later block does not rescale what earlier ones have added.
    NoRescale,
    /// What each block adds is rounded to bf16.
    RoundedPartials,
}
