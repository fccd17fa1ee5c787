//! The cost of a whole training, from the time of a step: tokens per second, MFU and days.

use crate::TrainingJob;

/// Tokens per parameter if none are given: about what Hoffmann et al. (arXiv 2203.15556) found best
/// for a given compute.
pub const TOKENS: f64 = 20.0;

/// A training with a given time per step.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Cost {
    pub tokens_per_second: f64,
    /// Model FLOPs utilisation: their share of the data sheet's peak.
    pub mfu: f64,
    pub days: f64,
    pub device_hours: f64,
}

impl TrainingJob {
    /// The cost of a training on `tokens` tokens with steps of `seconds`.
    pub fn cost(&self, seconds: f64, tokens: f64) -> Cost {
        let devices = self.devices as f64;
        let tokens_per_second = (self.batch * self.model.block) as f64 / seconds;
        let flops = self.model.matmul_flops_per_token() as f64 * tokens_per_second / devices;
        let hours = tokens / tokens_per_second / 3600.0;
        Cost {
            tokens_per_second,
            mfu: flops / self.cluster.device.peak,
            days: hours / 24.0,
            device_hours: hours * devices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device};
    use shapes::model::ModelShape;

    /// Narayanan et al., section 5.1: 34 days for GPT-3 on 300 billion tokens with 1,024 A100 at
    /// 140 TFLOP/s, and 84 days for a trillion parameters on 450 billion tokens with 3,072 at 163.
    /// Their FLOPs count a second forward pass.
    #[test]
    fn days_are_the_published_ones() {
        for (model, devices, batch, tokens, tera, days) in [
            (ModelShape::gpt2(96, 12_288, 96, 51_200, 2048), 1024, 1536, 300e9, 140e12, 34.0),
            (
                ModelShape::gpt2(128, 25_600, 160, 51_200, 2048),
                3072,
                3072,
                450e9,
                163e12,
                84.0,
            ),
        ] {
            let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
            let job = TrainingJob { batch, ..TrainingJob::new(model, cluster, devices) };
            // 8TP / nX: eight FLOPs per parameter and token.
            let seconds =
                8.0 * (batch * 2048) as f64 * model.parameters() as f64 / (devices as f64 * tera);
            assert!(
                (job.cost(seconds, tokens).days - days).abs() < 0.6,
                "{}",
                job.cost(seconds, tokens).days
            );
        }
    }
}
