//! ZeRO's stages by arithmetic: memory and traffic.
//!
//! Source: Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter
//! Models* (arXiv 1910.02054), figure 1 and section 7.

/// Bytes per parameter: the parameter, its gradient, and its optimizer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesEach {
    pub parameter: u64,
    pub gradient: u64,
    pub optimizer: u64,
}

impl BytesEach {
    /// All in f32: 4 + 4 and AdamW's two moments.
    pub const F32: BytesEach = BytesEach { parameter: 4, gradient: 4, optimizer: 8 };
    /// Mixed precision: 2 + 2, two moments in f32, and the f32 master of the parameter. The paper's
    /// 2 + 2 + K with K = 12.
    pub const MIXED: BytesEach = BytesEach { parameter: 2, gradient: 2, optimizer: 12 };
    /// The same with gradients in f32, as Megatron-LM adds them up: 18 bytes.
    pub const MEGATRON: BytesEach = BytesEach { gradient: 4, ..BytesEach::MIXED };

    /// Bytes per parameter on each rank if `data` ranks divide the optimizer's state: ZeRO-1,
    /// Megatron-LM's distributed optimizer. With 1, no rank divides it.
    pub fn on_a_rank(&self, data: usize) -> f64 {
        (self.parameter + self.gradient) as f64 + self.optimizer as f64 / data as f64
    }
}

/// Bytes that one of `ranks` ranks holds of a model of `numel` parameters: parameters, gradients,
/// optimizer state. Stage 1 shards the optimizer state, stage 2 also the gradients, stage 3 also
/// the parameters. Padding and temporary buffers are not counted.
pub fn zero_memory(stage: usize, numel: u64, ranks: u64, each: BytesEach) -> [u64; 3] {
    let share = |bytes: u64, from: usize| {
        if stage >= from {
            (bytes * numel).div_ceil(ranks)
        } else {
            bytes * numel
        }
    };
    [share(each.parameter, 3), share(each.gradient, 2), share(each.optimizer, 1)]
}

/// The part of [`zero_memory`] that stays in memory when the optimizer state, and in stage 3 the
/// parameters, are in files.
pub fn zero_memory_offloaded(stage: usize, numel: u64, ranks: u64, each: BytesEach) -> [u64; 3] {
    let [parameters, gradients, _] = zero_memory(stage, numel, ranks, each);
    [if stage == 3 { 0 } else { parameters }, gradients, 0]
}

/// How often one step reduces all gradients and gathers all parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroVolumes {
    pub reduced: u64,
    pub gathered: u64,
}

impl ZeroVolumes {
    /// Both together.
    pub fn total(&self) -> u64 {
        self.reduced + self.gathered
    }
}

/// How often one step reduces all gradients and gathers all parameters. Stage 0 gathers the
/// averaged gradients instead: an all-reduce is a reduction and a gather. Stages 2 and 3 have no
/// room for whole gradients, so they reduce in every micro-step, and stage 3 gathers for each
/// forward and each backward pass.
pub fn zero_volumes(stage: usize, micro_steps: u64) -> ZeroVolumes {
    match stage {
        0 | 1 => ZeroVolumes { reduced: 1, gathered: 1 },
        2 => ZeroVolumes { reduced: micro_steps, gathered: 1 },
        _ => ZeroVolumes { reduced: micro_steps, gathered: 2 * micro_steps },
    }
}

/// Bytes that each of `ranks` ranks sends per step, on average: (n-1)/n of the [`zero_volumes`] of
/// a model of `numel` numbers of `bytes` bytes.
pub fn zero_traffic(stage: usize, numel: u64, ranks: u64, bytes: u64, micro_steps: u64) -> f64 {
    let volumes = zero_volumes(stage, micro_steps).total();
    (volumes * numel * bytes) as f64 * (ranks - 1) as f64 / ranks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's figure 1 and table 1: 7.5 billion parameters, GB = 1e9 bytes.
    #[test]
    fn the_papers_table() {
        let gb = |stage, ranks| {
            zero_memory(stage, 7_500_000_000, ranks, BytesEach::MIXED).iter().sum::<u64>() as f64
                / 1e9
        };
        for (stage, paper) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
            let is = gb(stage, 64);
            assert_eq!((is * 10.0).round() / 10.0, paper, "stage {stage}: {is}");
        }
        for (ranks, one, two, three) in [
            (4, 52.5, 41.25, 30.0),
            (16, 35.625, 21.5625, 7.5),
            (1024, 30.088, 15.103, 0.117),
        ] {
            for (stage, expected) in [(1, one), (2, two), (3, three)] {
                assert!(
                    (gb(stage, ranks) - expected).abs() < 5e-4,
                    "stage {stage} on {ranks}: {}",
                    gb(stage, ranks)
                );
            }
        }
    }

    #[test]
    fn a_distributed_optimizer_divides_twelve_bytes_of_eighteen() {
        assert_eq!([1, 2, 4].map(|data| BytesEach::MEGATRON.on_a_rank(data)), [18.0, 12.0, 9.0]);
        assert_eq!([1, 2, 4].map(|data| BytesEach::F32.on_a_rank(data)), [16.0, 12.0, 10.0]);
        assert_eq!(BytesEach::MIXED.on_a_rank(1), 16.0);
    }

    #[test]
    fn two_ranks_send_the_model_once_and_eight_nearly_twice() {
        let psi = |stage, ranks| zero_traffic(stage, 1000, ranks, 2, 1) / 2000.0;
        assert_eq!(
            [psi(0, 2), psi(1, 8), psi(2, 8), psi(3, 2), psi(3, 8)],
            [1.0, 1.75, 1.75, 1.5, 2.625]
        );
        let four = |stage| zero_traffic(stage, 1000, 4, 2, 4) / 2000.0;
        assert_eq!([0, 1, 2, 3].map(four), [1.5, 1.5, 3.75, 9.0]);
    }
}
