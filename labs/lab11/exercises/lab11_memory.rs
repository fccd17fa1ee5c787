//! lab11-memory · The bytes of a plan
//!
//! A plan says how many data, tensor and pipeline ranks share a model. Before you ask for devices, compute what the fullest
//! rank of a pipeline holds: a rank of the first stage.
//!
//! - Tensor and pipeline ranks divide the parameters. Norms, tables and rounding are left out.
//! - A parameter takes 2 bytes, its gradient 4, and the optimizer 12. ZeRO's stage 1 divides the optimizer's bytes among data
//!   ranks, stage 2 also the gradients, stage 3 also the parameters.
//! - Attention keeps no scores, and tensor ranks also divide the sequence. So each layer keeps 34 bytes per token and unit of
//!   width, divided by the tensor ranks. With recomputation it keeps its input: 2 bytes, divided by them as well.
//! - The schedule is 1F1B. The first stage has a micro-batch in flight for every stage of the pipeline, or all micro-batches
//!   if there are fewer.

/// A model, and how ranks share it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub parameters: f64,
    pub layers: f64,
    pub width: f64,
    /// Tokens of a micro-batch.
    pub tokens: f64,
    pub data: f64,
    pub tensor: f64,
    pub pipeline: f64,
    /// Micro-batches per replica and step.
    pub micro_batches: f64,
    /// ZeRO's stage, 0 to 3.
    pub zero: usize,
    /// Whether the backward pass recomputes each layer from its input.
    pub recompute: bool,
}

/// The bytes that a rank of the first stage holds: parameters, gradients, optimizer, activations.
pub fn bytes(plan: &Plan) -> [f64; 4] {
    let Plan {
        parameters,
        layers,
        width,
        tokens,
        data,
        tensor,
        pipeline,
        micro_batches,
        zero,
        recompute,
    } = *plan;
    todo!(
        "{parameters} parameters in {layers} layers of width {width}, {tokens} tokens, {data} x {tensor} x {pipeline} ranks, \
         {micro_batches} micro-batches, ZeRO-{zero}, recomputation: {recompute}"
    )
}
