//! The program that trains. Strategies of the same name keep, send and hide different things in
//! different programs.

use serde::Serialize;
use shapes::named::named;
use shapes::strategy::Exchange;

named! {
    /// A program that trains, by what it does.
    ///
    /// | | sequence parallelism | ZeRO-1's and 2's gather | tensor ranks' sums in the backward pass | ZeRO in a pipeline |
    /// |---|---|---|---|---|
    /// | Megatron-LM | gathers inputs again | hidden by the next forward pass | hidden | stages 1 and 2 |
    /// | PyTorch | keeps gathered inputs | hidden | waited for | all stages |
    /// | DeepSpeed | as Megatron-LM | waited for | hidden | stage 1 |
    /// | this library | keeps gathered inputs | waited for | waited for | stage 1 |
    ///
    /// In a pipeline, ZeRO-2 reduces gradients after every micro-batch, and ZeRO-3 gathers for each
    /// as well. Left to itself, a stage of PyTorch's pipelines does neither: it reduces once, after
    /// the last micro-batch, and keeps what it has gathered, which is ZeRO-1 here.
    ///
    /// Sources: Korthikanti et al. (arXiv 2205.05198), section 4.2.2, and Megatron-LM's
    /// `core/tensor_parallel/layers.py` and `--overlap-param-gather`; PyTorch's DTensor and FSDP2,
    /// whose calls were counted; DeepSpeed's `runtime/zero/stage_1_and_2.py` and
    /// `runtime/pipe/engine.py`, whose tensor ranks are Megatron-LM's. Megatron-LM's ZeRO-2 is
    /// Megatron-FSDP's `optim_grads`, which its `training/arguments.py` (d98e8a6) does not refuse
    /// in a pipeline; no test of its runs that.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Program by default Megatron {
        Megatron = "megatron",
        Pytorch = "pytorch",
        Deepspeed = "deepspeed",
        Shardlab = "shardlab",
    }
}

impl Program {
    /// In a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Program::Megatron => "Megatron-LM",
            Program::Pytorch => "PyTorch",
            Program::Deepspeed => "DeepSpeed",
            Program::Shardlab => "this library",
        }
    }

    /// Whether sequence parallelism keeps the gathered inputs of matrices for the backward pass. If
    /// not, each rank keeps its part, and the backward pass gathers them once more.
    pub fn keeps_gathered(self) -> bool {
        matches!(self, Program::Pytorch | Program::Shardlab)
    }

    /// Whether the next forward pass hides the gather of ZeRO-1 and 2.
    pub fn hides_gather(self) -> bool {
        matches!(self, Program::Megatron | Program::Pytorch)
    }

    /// Whether the gradients of weights hide the tensor ranks' sums of input gradients.
    pub fn hides_tensor(self) -> bool {
        matches!(self, Program::Megatron | Program::Deepspeed)
    }

    /// What its context ranks send each other, unless it is told otherwise: Megatron-LM's
    /// `--cp-comm-type` is `p2p`, and torchtitan gathers since 2026.
    pub fn exchange(self) -> Exchange {
        match self {
            Program::Megatron | Program::Deepspeed => Exchange::Ring,
            Program::Pytorch | Program::Shardlab => Exchange::Gather,
        }
    }

    /// The last of ZeRO's stages that its pipelines have.
    pub fn most_zero_in_a_pipeline(self) -> usize {
        match self {
            Program::Pytorch => 3,
            Program::Megatron => 2,
            Program::Deepspeed | Program::Shardlab => 1,
        }
    }

    /// Whether it computes again only as far as something is missing, as PyTorch's checkpoints do
    /// since 2.1. Megatron-LM's run the whole module.
    pub fn stops_early(self) -> bool {
        self == Program::Pytorch
    }

    /// Whether activation functions are computed again with the norms (`recompute=norms`):
    /// PyTorch's selective checkpoints keep what matrices compute. Megatron-LM's
    /// `--recompute-modules` knows `layernorm`, and of activation functions those of experts alone.
    pub fn recomputes_activations(self) -> bool {
        self == Program::Pytorch
    }

    /// Whether it can compute a part of a layer again, or some layers and not all.
    pub fn recomputes_parts(self) -> bool {
        self != Program::Shardlab
    }

    /// Bytes per logit that come and go beside the 4 that are kept: Megatron-LM's 16-bit logits,
    /// and later their 16-bit gradients; PyTorch's f32 copy as well, because a softmax is not
    /// computed in place; here two more tensors in f32.
    pub fn passing_logit_bytes(self) -> f64 {
        match self {
            Program::Megatron => 2.0,
            Program::Pytorch | Program::Deepspeed => 6.0,
            Program::Shardlab => 8.0,
        }
    }
}
