//! The settings of a library, as its users write them: what to divide, and into how many parts.

use kit::show::only_if;
use serde_json::{Value, json};
use shardlab::data::Sampling;
use shardlab::error::BadInput;
use shardlab::mesh::Layout;
use shardlab::optim::AdamWConfig;
use shardlab::parallel::pipeline::Partition;
use shardlab::parallel::strategy::{Recompute, Strategy, ensure_tensor_llama};
use shardlab::parallel::zero::Stage;
use shardlab::plan::ModelShape;
use shardlab::tensor::Precision;
use shardlab::train::{Config, LrSchedule};
use std::ops::Range;

/// The settings of one job, with DeepSpeed's defaults: one tensor rank, one stage, ZeRO off.
#[derive(Clone, Debug)]
pub struct DsConfig {
    /// Ranks that share every layer.
    pub tensor_parallel: usize,
    pub pipeline: Option<PipelineConfig>,
    pub zero_stage: Stage,
    /// Sequences of a micro-batch on one rank.
    pub micro_batch: usize,
    /// Micro-batches per step: gradient accumulation, and a pipeline's micro-batches.
    pub accumulation: usize,
    pub adamw: AdamWConfig,
    pub lr: f64,
    /// 0 does not clip.
    pub clip: f64,
}

/// How a model is divided by layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipelineConfig {
    pub stages: usize,
    pub partition_method: Partition,
    /// Blocks whose activations are recomputed together; 0 keeps all activations.
    pub activation_checkpoint_interval: usize,
}

impl PipelineConfig {
    pub fn new(stages: usize) -> PipelineConfig {
        PipelineConfig {
            stages,
            partition_method: Partition::Parameters,
            activation_checkpoint_interval: 0,
        }
    }
}

impl Default for DsConfig {
    fn default() -> DsConfig {
        let adamw = AdamWConfig { beta2: 0.999, weight_decay: 0.01, ..AdamWConfig::NANOGPT };
        DsConfig {
            tensor_parallel: 1,
            pipeline: None,
            zero_stage: Stage::Ddp,
            micro_batch: 2,
            accumulation: 1,
            adamw,
            lr: 1e-3,
            clip: 1.0,
        }
    }
}

/// The settings of a job, checked. Write what differs from the defaults:
/// `make_ds_config(DsConfig { tensor_parallel: 2, ..DsConfig::default() })`.
pub fn make_ds_config(config: DsConfig) -> Result<DsConfig, BadInput> {
    let sizes = [config.tensor_parallel, config.stages(), config.micro_batch, config.accumulation];
    if sizes.contains(&0) {
        return Err(BadInput::new(
            format!("sizes of a job begin at 1: {sizes:?}"),
            "leave out what is not divided",
        ));
    }
    if config.stages() > 1 && config.zero_stage > Stage::One {
        return Err(BadInput::new(
            format!("ZeRO-{} and a pipeline do not go together", config.zero_stage.number()),
            "take ZeRO 0 or 1: a stage needs its weights and gradients whole for every micro-batch",
        ));
    }
    Ok(config)
}

impl DsConfig {
    pub fn stages(&self) -> usize {
        self.pipeline.map_or(1, |pipeline| pipeline.stages)
    }

    /// How these settings divide a job among `ranks` ranks. Data parallelism gets the ranks that
    /// tensor and pipeline parallelism do not take.
    pub fn strategy(&self, ranks: usize) -> Result<Strategy, BadInput> {
        let pipeline = self.stages();
        let tensor = self.tensor_parallel;
        let divided = self.pipeline.unwrap_or(PipelineConfig::new(1));
        let strategy = Strategy {
            data: (ranks / pipeline.saturating_mul(tensor).max(1)).max(1),
            tensor,
            pipeline,
            micro_batches: Some(self.accumulation),
            partition: divided.partition_method,
            zero: self.zero_stage,
            recompute: Recompute::every(divided.activation_checkpoint_interval),
            ..Strategy::SINGLE
        };
        strategy.layout().check(ranks).map(|()| strategy)
    }

    /// The mesh of `ranks` ranks.
    pub fn mesh(&self, ranks: usize) -> Result<Layout, BadInput> {
        self.strategy(ranks).map(|strategy| strategy.layout())
    }

    /// Refuses a model, or a batch of so many sequences, that `ranks` ranks cannot divide.
    pub fn check(
        &self,
        shape: &ModelShape,
        ranks: usize,
        sequences: usize,
    ) -> Result<(), BadInput> {
        let sizes = self.mesh(ranks)?.sizes;
        ensure_tensor_llama(shape, sizes.tensor)?;
        self.layers(shape)?;
        share(sequences, sizes.data, self.accumulation).map(drop)
    }

    /// The layers of each pipeline stage.
    pub fn layers(&self, shape: &ModelShape) -> Result<Vec<Range<usize>>, BadInput> {
        let method = self.pipeline.map_or(Partition::Uniform, |pipeline| pipeline.partition_method);
        method.layers(shape, self.stages())
    }

    /// The settings of a training of a model.
    pub fn training(&self, shape: ModelShape, strategy: &Strategy) -> Config {
        Config {
            ranks: strategy.data,
            shape,
            batch: 1,
            grad_accum: self.accumulation,
            sampling: Sampling::Partition,
            steps: 0,
            schedule: LrSchedule::constant(self.lr),
            adamw: self.adamw,
            clip: self.clip,
            seed: 0,
            ..Config::default()
        }
    }

    /// The same settings as DeepSpeed's JSON, for `ranks` ranks.
    pub fn deepspeed(&self, ranks: usize, dtype: Precision) -> Result<Value, BadInput> {
        let data = self.mesh(ranks)?.sizes.data;
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, .. } = self.adamw;
        let mut json = json!({
            "train_batch_size": self.micro_batch * self.accumulation * data,
            "train_micro_batch_size_per_gpu": self.micro_batch,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_clipping": self.clip,
            "optimizer": {
                "type": "AdamW",
                "params": { "lr": self.lr, "betas": [beta1, beta2], "eps": epsilon, "weight_decay": weight_decay },
            },
            "zero_optimization": { "stage": self.zero_stage.number() },
            "fp16": { "enabled": false },
            "bf16": { "enabled": dtype == Precision::Bf16 },
        });
        if self.tensor_parallel > 1 {
            json["tensor_parallel"] = json!({ "autotp_size": self.tensor_parallel });
        }
        if let Some(PipelineConfig { stages, partition_method, activation_checkpoint_interval }) =
            self.pipeline
        {
            json["pipeline"] = json!({
                "stages": stages,
                "partition": partition_method.name(),
                "activation_checkpoint_interval": activation_checkpoint_interval,
            });
        }
        Ok(json)
    }

    /// The settings that DeepSpeed does not take from the JSON, in words: it ignores keys that it
    /// does not know.
    pub fn caveats(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.tensor_parallel > 1 {
            all.push(format!(
                "tensor_parallel.autotp_size trains from DeepSpeed 0.16.4 on. 0.16.2, which the source ran, ignores the key: its \
                 {} ranks were data-parallel",
                self.tensor_parallel
            ));
        }
        if let Some(PipelineConfig { stages, partition_method, .. }) = self.pipeline {
            let method = partition_method.name();
            all.push(format!(
                "DeepSpeed reads neither pipeline.stages nor pipeline.partition: write \
                 PipelineModule(layers, num_stages={stages}, partition_method=\"{method}\")"
            ));
        }
        if self.tensor_parallel > 1 && self.stages() > 1 {
            all.push(
                "autotp_size does not divide a PipelineModule's layers: write them tensor-parallel"
                    .to_string(),
            );
        }
        all
    }
}

/// The sequences of one micro-batch, if `ranks` data ranks share a batch. Names the ranks that
/// would get an empty one. In other programs, an empty batch ends in a reshape of no elements,
/// deep inside the model.
pub fn share(sequences: usize, ranks: usize, micro_batches: usize) -> Result<usize, BadInput> {
    let parts = ranks * micro_batches;
    if sequences >= parts && sequences.is_multiple_of(parts) {
        return Ok(sequences / parts);
    }
    if sequences >= parts {
        let what =
            format!("a batch of {sequences} cannot be divided evenly into {parts} micro-batches");
        let help =
            format!("{ranks} data ranks have {micro_batches} each: give a multiple of {parts}");
        return Err(BadInput::new(what, help));
    }
    let of = |rank| sequences / ranks + usize::from(rank < sequences % ranks);
    let first = (0..ranks).find(|&rank| of(rank) < micro_batches).unwrap_or_default();
    let mut what = format!(
        "rank {first} of {ranks} data ranks would run an empty batch: the batch has {sequences}"
    );
    for rank in 0..ranks.min(8) {
        let for_them = only_if(micro_batches > 1, format!(" for {micro_batches} micro-batches"));
        what += &format!("\n  rank {rank}  {} of {sequences} sequences{for_them}", of(rank));
    }
    if ranks > 8 {
        what += "\n  …";
    }
    Err(BadInput::new(
        what,
        format!("give a batch of {parts} or more, or fewer data ranks"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::mesh::Coordinates;

    #[test]
    fn what_is_left_is_for_data_parallelism() {
        let config = make_ds_config(DsConfig {
            tensor_parallel: 2,
            pipeline: Some(PipelineConfig {
                activation_checkpoint_interval: 1,
                ..PipelineConfig::new(2)
            }),
            accumulation: 4,
            ..DsConfig::default()
        });
        let config = config.unwrap();
        assert_eq!(config.mesh(8).unwrap().sizes, Coordinates { data: 2, pipeline: 2, tensor: 2 });
        let json = config.deepspeed(8, Precision::Bf16).unwrap();
        assert_eq!(json["train_batch_size"], 2 * 4 * 2);
        assert_eq!(json["tensor_parallel"]["autotp_size"], 2);
        assert_eq!(
            json["pipeline"],
            json!({ "stages": 2, "partition": "parameters", "activation_checkpoint_interval": 1 })
        );
        assert_eq!(
            (&json["fp16"]["enabled"], &json["bf16"]["enabled"]),
            (&json!(false), &json!(true))
        );
        assert_eq!(config.caveats().len(), 3);
        assert!(config.mesh(6).is_err());
    }

    #[test]
    fn what_is_not_divided_is_left_out() {
        let json = DsConfig::default().deepspeed(4, Precision::F32).unwrap();
        assert!(json.get("tensor_parallel").is_none() && json.get("pipeline").is_none());
        assert_eq!(
            (&json["fp16"]["enabled"], &json["bf16"]["enabled"]),
            (&json!(false), &json!(false))
        );
        assert!(DsConfig::default().caveats().is_empty());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let pipeline = Some(PipelineConfig::new(2));
        for (config, says) in [
            (
                DsConfig { zero_stage: Stage::Three, pipeline, ..DsConfig::default() },
                "ZeRO-3 and a pipeline",
            ),
            (DsConfig { tensor_parallel: 0, ..DsConfig::default() }, "begin at 1"),
        ] {
            let error = make_ds_config(config).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("help:"), "{error}");
        }
        assert!(
            make_ds_config(DsConfig { zero_stage: Stage::One, pipeline, ..DsConfig::default() })
                .is_ok()
        );
    }
}
