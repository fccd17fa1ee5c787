//! lab11-memory · The bytes of a plan

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
    let held = parameters / (tensor * pipeline);
    let share = |from: usize| if zero >= from { data } else { 1.0 };
    let layer = if recompute { 2.0 } else { 34.0 } * tokens * width / tensor;
    let in_flight = pipeline.min(micro_batches);
    [
        2.0 * held / share(3),
        4.0 * held / share(2),
        12.0 * held / share(1),
        in_flight * layers / pipeline * layer,
    ]
}
