//! Stage 0: nothing is divided.

use super::begin::Begin;
use super::{Averaged, Each, Engine, Held, Volumes, ZeroConfig};
use crate::comm::Comm;
use crate::optim::{AdamW, clip_scale, global_norm};
use crate::parallel::Ddp;
use crate::tensor::Params;
use anyhow::Result;
use std::sync::Arc;

/// [`Ddp`] and [`AdamW`], as lab03 has them.
pub(super) struct Replicated {
    params: Arc<Params>,
    ddp: Ddp,
    adamw: AdamW,
    peak_buffers: usize,
}

impl Replicated {
    pub fn new(params: &Arc<Params>, comm: &Comm, config: &ZeroConfig, begin: Begin) -> Replicated {
        *params.values_mut() = begin.all(params);
        *params.gradients() = vec![0.0; params.numel()];
        let ddp = Ddp::with_buckets(params, comm, config.reduce_bucket);
        ddp.overlap(config.overlap);
        Replicated { params: params.clone(), ddp, adamw: AdamW::new(config.adamw, params), peak_buffers: 0 }
    }
}

impl Engine for Replicated {
    fn begin(&mut self) -> Result<()> {
        self.params.zero_gradients();
        Ok(())
    }

    fn synchronise(&self, last_micro_step: bool) {
        self.ddp.synchronise(last_micro_step);
    }

    fn finish(&mut self) -> Result<Vec<Averaged>> {
        let averaged = self.ddp.finish()?;
        self.peak_buffers = self.peak_buffers.max(self.ddp.travelling_bytes());
        Ok(averaged)
    }

    fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        let norm = global_norm(&self.params.gradients());
        self.adamw.step(&self.params, lr, clip_scale(norm, clip));
        Ok(norm)
    }

    fn each(&mut self, each: &mut Each) -> Result<()> {
        let values = self.params.values();
        self.params.specs().iter().for_each(|spec| each(spec, &values[spec.range()]));
        Ok(())
    }

    fn volumes(&self) -> Volumes {
        Volumes { gathered: 0, reduced: self.params.numel(), bytes_each: size_of::<f32>() }
    }

    fn held(&self) -> Held {
        let bytes = |numbers: &Vec<f32>| size_of::<f32>() * numbers.capacity();
        Held {
            parameters: bytes(&self.params.values()),
            gradients: bytes(&self.params.gradients()),
            optimizer: self.adamw.bytes(),
            parameters_file: 0,
            optimizer_file: 0,
            buffers: self.ddp.travelling_bytes(),
            peak_buffers: self.peak_buffers,
        }
    }
}
