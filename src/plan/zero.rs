//! Memory and traffic of ZeRO's stages, by arithmetic.
//!
//! Source: Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models* (arXiv 1910.02054),
//! figure 1 and section 7.

/// Bytes of one parameter's numbers: itself, its gradient, and what the optimizer keeps of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesEach {
    pub parameter: u64,
    pub gradient: u64,
    pub optimizer: u64,
}

impl BytesEach {
    /// All in f32: 4 + 4 and AdamW's two moments.
    pub const F32: BytesEach = BytesEach { parameter: 4, gradient: 4, optimizer: 8 };
    /// Mixed precision: 2 + 2, two moments in f32, and the f32 master of the parameter. The paper's 2 + 2 + K with K = 12.
    pub const MIXED: BytesEach = BytesEach { parameter: 2, gradient: 2, optimizer: 12 };
}

/// Bytes that one of `ranks` ranks holds of a model of `numel` parameters: parameters, gradients, optimizer's state. A stage
/// divides the optimizer's state (1), also the gradients (2), also the parameters (3). Padding is not counted, nor what is
/// gathered for a moment.
pub fn zero_memory(stage: usize, numel: u64, ranks: u64, each: BytesEach) -> [u64; 3] {
    let share = |bytes: u64, from: usize| if stage >= from { (bytes * numel).div_ceil(ranks) } else { bytes * numel };
    [share(each.parameter, 3), share(each.gradient, 2), share(each.optimizer, 1)]
}

/// The part of [`zero_memory`] that stays in memory when the optimizer's state, and in stage 3 the parameters, are in files.
pub fn zero_memory_offloaded(stage: usize, numel: u64, ranks: u64, each: BytesEach) -> [u64; 3] {
    let [parameters, gradients, _] = zero_memory(stage, numel, ranks, each);
    [if stage == 3 { 0 } else { parameters }, gradients, 0]
}

/// Bytes that each of `ranks` ranks sends in a step, on average: 2Ψ(n-1)/n numbers in stages 0 to 2, and 3Ψ(n-1)/n in stage 3,
/// where parameters are gathered twice.
pub fn zero_traffic(stage: usize, numel: u64, ranks: u64, bytes: u64) -> f64 {
    let volumes = if stage == 3 { 3 } else { 2 };
    (volumes * numel * bytes) as f64 * (ranks - 1) as f64 / ranks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's figure 1 and table 1: 7.5 billion parameters, GB = 1e9 bytes.
    #[test]
    fn the_papers_table() {
        let gb =
            |stage, ranks| zero_memory(stage, 7_500_000_000, ranks, BytesEach::MIXED).iter().sum::<u64>() as f64 / 1e9;
        for (stage, paper) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
            let is = gb(stage, 64);
            assert_eq!((is * 10.0).round() / 10.0, paper, "stage {stage}: {is}");
        }
        for (ranks, one, two, three) in
            [(4, 52.5, 41.25, 30.0), (16, 35.625, 21.5625, 7.5), (1024, 30.088, 15.103, 0.117)]
        {
            for (stage, expected) in [(1, one), (2, two), (3, three)] {
                assert!((gb(stage, ranks) - expected).abs() < 5e-4, "stage {stage} on {ranks}: {}", gb(stage, ranks));
            }
        }
    }

    #[test]
    fn two_ranks_send_the_model_once_and_eight_nearly_twice() {
        let psi = |stage, ranks| zero_traffic(stage, 1000, ranks, 2) / 2000.0;
        assert_eq!([psi(0, 2), psi(1, 8), psi(2, 8), psi(3, 2), psi(3, 8)], [1.0, 1.75, 1.75, 1.5, 2.625]);
    }
}
