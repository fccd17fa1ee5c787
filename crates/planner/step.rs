//! The time of one step.
//!
//! A rank computes products at a part of its peak, and moves the bytes between them at a part of
//! its memory's bandwidth (a roofline: Williams et al., 2009). Collectives take the time of their
//! best algorithm (alpha and beta). Communication that computing hides is subtracted, and a
//! pipeline waits for (p-1)/v micro-batches.

use super::memory::{mlp_results, written};
use crate::{Degrees, Offloaded, Overlap, Program, Recompute, Strategy, TrainingJob};
use shapes::exposed;
use shapes::model::ModelShape;
use shapes::strategy::Exchange;

/// Seconds of a step on the slowest rank, by what they are for. Communication counts only where
/// nothing hides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Time {
    pub compute: f64,
    /// Forward passes that are computed again.
    pub recompute: f64,
    pub tensor: f64,
    pub context: f64,
    pub pipeline: f64,
    pub bubble: f64,
    pub data: f64,
    /// The update, and with offloading its way to the host and back.
    pub optimizer: f64,
}

impl Time {
    /// The seconds by name.
    pub fn parts(&self) -> [(&'static str, f64); 8] {
        [
            ("compute", self.compute),
            ("recompute", self.recompute),
            ("tensor", self.tensor),
            ("context", self.context),
            ("pipeline", self.pipeline),
            ("bubble", self.bubble),
            ("data", self.data),
            ("optimizer", self.optimizer),
        ]
    }

    pub fn total(&self) -> f64 {
        self.parts().iter().map(|part| part.1).sum()
    }
}

/// FLOPs of one layer's forward pass for one token, as a mean of all layers.
pub fn layer_flops(model: &ModelShape) -> u64 {
    2 * model.matrices() / model.layers.max(1) as u64 + layer_attention_flops(model)
}

/// Attention's part of [`layer_flops`].
fn layer_attention_flops(model: &ModelShape) -> u64 {
    model.attention_flops(model.block) / model.layers.max(1) as u64
}

/// Seconds of one layer for a micro-batch.
struct Layer {
    forward: f64,
    backward: f64,
    again: f64,
    /// Exposed seconds of its context ranks' messages.
    context: f64,
    /// Exposed seconds of its tensor ranks' collectives.
    tensor: f64,
    /// The same, of the forward pass that is computed again.
    tensor_again: f64,
}

impl TrainingJob {
    /// Seconds of one layer, which the papers measure alone (Korthikanti et al., table 4).
    fn layer(&self, s: &Strategy) -> Layer {
        let model = &self.model;
        let device = &self.cluster.device;
        let n = s.tokens(model.block);
        let t = s.tensor as f64;
        let h = model.embd as f64;
        let side = n.min(h / t);
        let kept = self.kept(s);
        let products = device.computes(n * layer_flops(model) as f64 / t, side);
        let attention = device.computes(n * layer_attention_flops(model) as f64 / t, side);
        // Each number that is kept was written and read once. A backward pass handles its gradient
        // as well.
        let moves = device.streams(2.0 * written(&kept, s) * n);
        let forward = products + moves;
        let backward = 2.0 * (products + moves);
        let moved_again = device.streams(2.0 * self.discarded(s) * n);
        let again = match s.recompute {
            Recompute::Selective => attention + moved_again,
            Recompute::Mlp => {
                // All of the MLP's matrices, or all but the last one.
                let last = if self.program.stops_early() { 1.0 } else { 0.0 };
                let products = 2.0 * h * model.ffn() as f64 * (mlp_results(model) - last);
                device.computes(n * products / t, side) + moved_again
            }
            Recompute::None | Recompute::Norms => moved_again,
            Recompute::OneIn(_) | Recompute::Full | Recompute::Blocks(_) => {
                s.whole_layers() * forward
            }
        };
        // As many all-reduces backward as forward. In the backward pass the gradients of the
        // weights hide them, as in Megatron-LM (`async_tensor_model_parallel_allreduce`); PyTorch
        // and this library wait. With sequence parallelism they hide the reduce-scatters, but a
        // layer needs what it gathers. What is gathered again is there when the gradients of the
        // inputs are.
        let all_reduces = self.all_reduces_of_a_layer() * self.tensor_seconds(s);
        let hides = self.overlap != Overlap::None && self.program.hides_tensor();
        let behind = if hides { products } else { 0.0 };
        let sums = if s.sequence { 0.5 } else { 1.0 } * all_reduces;
        let inputs = if self.gathers_again(s) { all_reduces / 2.0 } else { 0.0 };
        // A ring's messages travel while a block is attended to; the others are waited for.
        let [there, back] = self.context_seconds(s);
        let behind_attention = match s.exchange {
            Exchange::Ring if self.overlap != Overlap::None => attention,
            _ => 0.0,
        };
        let waits = |seconds: f64, work: f64| (seconds - work).max(0.0);
        let context = (1.0 + s.whole_layers()) * waits(there, behind_attention)
            + waits(back, 2.0 * behind_attention);
        Layer {
            forward,
            backward,
            again,
            context,
            tensor: 2.0 * all_reduces - sums.min(behind) + (inputs - behind).max(0.0),
            tensor_again: self.recomputed_all_reduces(s) * self.tensor_seconds(s),
        }
    }

    /// Seconds of a step.
    pub fn time(&self, s: &Strategy) -> Time {
        let model = &self.model;
        let device = &self.cluster.device;
        let m = s.micro_batches_of(self.batch) as f64;
        let p = s.pipeline as f64;
        let n = s.tokens(model.block);
        let t = s.tensor as f64;
        let longest = s.layers(model.layers) as f64;
        let last = s.layers_of(model.layers, s.pipeline - 1) as f64;
        let layer = self.layer(s);

        // The last stage also computes the logits. Their loss and its gradient go over them three
        // times, in f32.
        let logits = n * model.logits() as f64 / t;
        let head = device.computes(n * model.head_flops() as f64 / t, n.min(model.embd as f64))
            + device.streams(4.0 * logits);
        // The longest stage: the last one with the head, or one before it.
        let each = layer.forward + layer.backward + layer.again;
        let (layers, head) = if last * each + 3.0 * head >= longest * each {
            (last, head)
        } else {
            (longest, 0.0)
        };
        let forward = layers * layer.forward + head;
        let backward = layers * (layer.backward + layer.again) + 2.0 * head;
        let messages = 2.0 * s.chunks as f64 * self.message_seconds(s);
        let mut time = Time {
            compute: m * (layers * (layer.forward + layer.backward) + 3.0 * head),
            recompute: m * layers * layer.again,
            tensor: m
                * (layers * (layer.tensor + layer.tensor_again)
                    + TrainingJob::ends(s) * self.tensor_seconds(s)),
            context: m * layers * layer.context,
            pipeline: m * messages,
            ..Time::default()
        };
        time.bubble = (p - 1.0) / s.chunks as f64 / m
            * (time.compute + time.recompute + time.tensor + time.context + time.pipeline);
        time.data = self.exposed_data(s, m, longest, forward, backward);
        time.optimizer = self.update_seconds(s);
        time
    }

    /// Seconds for which a rank waits for the data axis.
    fn exposed_data(&self, s: &Strategy, m: f64, layers: f64, forward: f64, backward: f64) -> f64 {
        if s.gradient_ranks() == 1 && s.offload != Offloaded::Parameters {
            return 0.0;
        }
        let seconds = self.data_seconds(s);
        let hides = self.overlap == Overlap::All;
        // The rest that a pass does not hide, and at least one layer's share: the first gather and
        // the last reduction hide nowhere.
        let rest = |seconds: f64, pass: f64| {
            if hides {
                (seconds - pass).max(seconds / layers)
            } else {
                seconds
            }
        };
        let buckets =
            |all: f64| (1..=layers as usize).map(move |done| (done as f64 / layers, all / layers));
        // The parameters of the next step.
        let gather = if self.program.hides_gather() {
            rest(seconds.gather, forward)
        } else {
            seconds.gather
        };
        let reduce = seconds.reduce + seconds.average;
        match s.zero.number() {
            0 if hides => exposed(backward, buckets(seconds.reduce + seconds.gather)),
            0 => seconds.reduce + seconds.gather,
            1 => {
                gather
                    + if hides {
                        exposed(backward, buckets(reduce))
                    } else {
                        reduce
                    }
            }
            2 => {
                // In a pipeline, a micro-batch's gradients are on their way while the next one
                // passes forward and backward. PyTorch's FSDP2 waits for them at the end of each
                // backward pass (`finalize_backward`).
                let each = if hides && s.pipeline > 1 && self.program != Program::Pytorch {
                    (seconds.reduce - forward - backward).max(0.0)
                } else {
                    rest(seconds.reduce, backward)
                };
                (m - 1.0) * each + rest(reduce, backward) + gather
            }
            _ => {
                let both = seconds.gather + seconds.reduce;
                m * rest(seconds.gather, forward)
                    + (m - 1.0) * rest(both, backward)
                    + rest(both + seconds.average, backward)
            }
        }
    }

    /// Seconds of the optimizer: it reads and writes its state, reads gradients and writes
    /// parameters.
    ///
    /// Offloaded, the host does it, at the speed of its memory. All devices of a node share it.
    /// Each gradient and each parameter passes the host's memory twice, to or from the device and
    /// to or from the processor. Memory and link work at the same time, so the slower one counts.
    fn update_seconds(&self, s: &Strategy) -> f64 {
        let device = &self.cluster.device;
        let updates = self.most_held(s)
            / if s.zero.number() > 0 {
                s.shard_ranks() as f64
            } else {
                1.0
            };
        let state = updates * self.bytes.optimizer as f64;
        let moved = updates * (self.bytes.gradient + self.bytes.parameter) as f64;
        match s.offload {
            Offloaded::None => device.streams(2.0 * state + moved),
            Offloaded::Optimizer => {
                let memory = (2.0 * state + 2.0 * moved) / device.host_bandwidth;
                memory.max(moved / device.host_link)
            }
            // Parameters and gradients are there already: the passes of the model brought and took
            // them.
            Offloaded::Parameters => (2.0 * state + moved) / device.host_bandwidth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device};
    use shapes::model::ModelShape;
    use shapes::strategy::Stage;

    fn job(batch: usize, devices: usize) -> TrainingJob {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        let model = ModelShape::gpt2(48, 6144, 64, 51_200, 2048);
        TrainingJob {
            batch,
            flash: false,
            overlap: Overlap::Tensor,
            ..TrainingJob::new(model, cluster, devices)
        }
    }

    /// Korthikanti et al., table 4: milliseconds of one layer, forward and backward. Two constants
    /// of the A100 were fitted to these ten figures, and to nothing else.
    #[test]
    fn a_layer_takes_what_was_measured() {
        let job = job(4, 8);
        for (plan, forward, backward) in [
            ("tp=8,mb=4", 7.7, 11.9),
            ("tp=8,mb=4,sp", 7.2, 11.8),
            ("tp=8,mb=4,recompute=full", 7.7, 19.5),
            ("tp=8,mb=4,recompute=selective", 7.7, 13.2),
            ("tp=8,mb=4,recompute=selective,sp", 7.2, 13.1),
        ] {
            let plan: Strategy = plan.parse().unwrap();
            // With the layer's collectives: two all-reduces in each pass.
            let layer = job.layer(&plan);
            let collectives = job.tensor_seconds(&plan);
            let f = 1e3 * (layer.forward + 2.0 * collectives);
            let waits = layer.tensor + layer.tensor_again - 2.0 * collectives;
            let b = 1e3 * (layer.backward + layer.again + waits);
            assert!(
                (f / forward - 1.0).abs() < 0.04 && (b / backward - 1.0).abs() < 0.04,
                "{plan}: {f:.1}, {b:.1}"
            );
        }
    }

    #[test]
    fn a_bubble_is_the_textbooks() {
        let job = job(64, 64);
        for (plan, bubble) in [
            ("tp=8,pp=8", 7.0 / 64.0),
            ("tp=8,pp=8,chunks=3", 7.0 / 3.0 / 64.0),
            ("tp=8,dp=8", 0.0),
        ] {
            let time = job.time(&plan.parse().unwrap());
            let work = time.compute + time.recompute + time.tensor + time.context + time.pipeline;
            assert!((time.bubble / work - bubble).abs() < 1e-12, "{plan}");
        }
    }

    #[test]
    fn what_is_hidden_is_not_waited_for() {
        let all = TrainingJob { overlap: Overlap::All, flash: true, ..job(512, 64) };
        let none = TrainingJob { overlap: Overlap::None, ..all.clone() };
        for zero in 0..4 {
            let s = Strategy {
                data: 64,
                zero: Stage::ALL[zero],
                recompute: Recompute::Full,
                ..Strategy::SINGLE
            };
            let hidden = all.time(&s).data;
            let waited = none.time(&s).data;
            assert!(hidden < waited / 4.0, "stage {zero}: {hidden}, {waited}");
            assert!((none.traffic(&s)[2].seconds / waited - 1.0).abs() < 1e-12, "stage {zero}");
        }
        let slow = Cluster::new(Device::named("a100-80g").unwrap(), "ethernet").unwrap();
        let slow = TrainingJob { cluster: slow, ..all.clone() };
        let s = Strategy { data: 64, zero: Stage::Three, ..Strategy::SINGLE };
        assert!(slow.time(&s).data > slow.time(&s).compute);
    }

    #[test]
    fn offloading_takes_time() {
        let job = job(8, 1);
        let of = |offload, zero| {
            job.time(&Strategy { offload, zero: Stage::ALL[zero], ..Strategy::SINGLE })
        };
        assert!(of(Offloaded::Optimizer, 0).optimizer > 5.0 * of(Offloaded::None, 0).optimizer);
        // The host's memory moves the state twice, and gradients and parameters twice.
        let host = of(Offloaded::Optimizer, 0).optimizer;
        let bytes = job.most_held(&Strategy::SINGLE) * (2.0 * 12.0 + 2.0 * 6.0);
        assert!((host / (bytes / job.cluster.device.host_bandwidth) - 1.0).abs() < 1e-9);
        assert!(of(Offloaded::Parameters, 3).data > 0.0 && of(Offloaded::Optimizer, 0).data == 0.0);
    }
}
