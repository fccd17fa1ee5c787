//! What one chooses: the stage, sizes of buckets, where state lies.

use super::{Mistake, Stage, Wrap};
use crate::comm::algorithms::Algorithm;
use crate::optim::{AdamWConfig, MuonConfig, Offload};
use crate::parallel::buckets::BUCKET;
use crate::plan::BytesEach;
use crate::tensor::Precision;

/// The settings, as DeepSpeed names them; sizes are in elements.
#[derive(Clone, Debug)]
pub struct ZeroConfig {
    pub stage: Stage,
    /// The type in which parameters are stored, and matrix products computed.
    pub precision: Precision,
    /// The type in which gradients are kept, and summed between ranks: `reduce_dtype` of PyTorch's
    /// `MixedPrecisionPolicy`, and Megatron-LM's `--accumulate-allreduce-grads-in-fp32`.
    pub reduce: Precision,
    pub adamw: AdamWConfig,
    /// Updates hidden matrices, each of which then belongs to one rank; `None` leaves them to
    /// AdamW.
    pub muon: Option<MuonConfig>,
    /// Gradients that are reduced together, in stages 0 to 2. Stage 3 reduces a unit's gradients
    /// together.
    pub reduce_bucket: usize,
    /// Parameters that stage 3 may gather ahead; 0 turns prefetching off.
    pub prefetch_bucket: usize,
    /// Stage 3 gathers parameters of up to this size once per step, and keeps them whole until its
    /// end. To gather such a parameter again would cost a message; to keep it costs little memory.
    /// DeepSpeed's default is 100,000.
    pub persistence_threshold: usize,
    /// The parameters that stage 3 gathers together.
    pub wrap: Wrap,
    /// The place of the optimizer's state, and in stage 3 of parameters; `None` keeps them in the
    /// device's memory.
    pub offload: Option<Offload>,
    /// Whether the backward pass continues while gradients are reduced. A
    /// [`Training`](crate::train::Training) whose ranks share experts takes it for
    /// [`ExpertParallel::overlap`](crate::parallel::ExpertParallel::overlap), too.
    pub overlap: bool,
    /// The rounds by which stage 0 averages, while the backward pass waits; `None` leaves them to
    /// the transport.
    pub algorithm: Option<Algorithm>,
    /// Whether both ends of a pipeline add up their gradients of a tied parameter. Otherwise each
    /// keeps its own part, for a caller who adds them.
    pub add_tied: bool,
    #[doc(hidden)]
    pub mistake: Option<Mistake>,
}

impl ZeroConfig {
    /// Settings for models of a few megabytes, with gradients in f32.
    pub fn new(stage: Stage, precision: Precision, adamw: AdamWConfig) -> ZeroConfig {
        ZeroConfig {
            stage,
            precision,
            reduce: Precision::F32,
            adamw,
            muon: None,
            reduce_bucket: BUCKET,
            prefetch_bucket: 1 << 18,
            persistence_threshold: 1000,
            wrap: Wrap::Blocks,
            offload: None,
            overlap: true,
            algorithm: None,
            add_tied: true,
            mistake: None,
        }
    }

    /// Bytes per parameter: the parameter, its gradient, and its optimizer state.
    pub fn bytes_each(&self) -> BytesEach {
        self.precision.bytes_each(self.reduce)
    }
}
