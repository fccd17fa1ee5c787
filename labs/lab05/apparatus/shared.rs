//! A model that tensor ranks share, with its optimizer.

use super::broken::{Break, Broken, same_seed};
use anyhow::Result;
use candle_core::Tensor;
use kit::parity::{self, Replica};
use kit::report;
use kit::show::{Screen, thousands};
use shardlab::comm::Comm;
use shardlab::data::{Batch, Corpus};
use shardlab::mesh::{Axis, Layout, Mesh};
use shardlab::model::{Gpt, Plain};
use shardlab::parallel::zero::{Stage, Zero};
use shardlab::parallel::{TensorParallel, ZeroConfig};
use shardlab::plan::Shards;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Diverged, Trainer, initial};
use std::path::Path;

/// One rank's part of the model and of its training.
pub struct Shared {
    pub gpt: Gpt,
    pub tensor: TensorParallel,
    pub zero: Zero,
}

impl Shared {
    // ANCHOR: build
    /// The part of the rank that is `mesh.at`: its tensor group shares the model, and ZeRO works in
    /// its data group.
    pub fn new(
        config: &Config,
        mesh: &Mesh,
        (sequence, multiple): (bool, usize),
        zero: ZeroConfig,
        init_from: Option<&Path>,
    ) -> Result<Shared> {
        let tensor_ranks = mesh.group(Axis::Tensor).clone();
        let mut tensor = TensorParallel::new(tensor_ranks).pad_vocabulary_to(multiple);
        if sequence {
            tensor = tensor.sequence_parallel();
        }
        let gpt = Gpt::build(&config.shape, &tensor)?; // the one GPT, of sharded layers
        let zero = initial(&gpt, mesh.group(Axis::Data), zero, config.seed, init_from)?
            .with_tensor(&tensor)?;
        Ok(Shared { gpt, tensor, zero })
    }
    // ANCHOR_END: build

    /// Without data parallelism, for the ranks of `group`; with a mistake, if there is one.
    pub fn alone(
        config: &Config,
        group: &Comm,
        sequence: bool,
        multiple: usize,
        broken: Option<Break>,
    ) -> Result<Shared> {
        let mut tensor = TensorParallel::new(group.clone()).pad_vocabulary_to(multiple);
        if sequence {
            tensor = tensor.sequence_parallel();
        }
        let gpt = match broken {
            Some(mistake) => Gpt::build(
                &config.shape,
                &Broken {
                    tensor: tensor.clone(),
                    mistake,
                    last: config.shape.layers - 1,
                },
            )?,
            None if group.size() == 1 => Gpt::build(&config.shape, &Plain)?,
            None => Gpt::build(&config.shape, &tensor)?,
        };
        let params = &gpt.params;
        let alone = Comm::alone();
        let zero = ZeroConfig::new(Default::default(), Precision::F32, config.adamw);
        let zero = match broken {
            Some(Break::SameSeed) => {
                Zero::begin_with(params, &alone, zero, &same_seed(config.seed))?
            }
            _ => Zero::init(params, &alone, zero, config.seed)?,
        };
        let zero = zero.with_tensor(&tensor)?;
        Ok(Shared { gpt, tensor, zero })
    }

    /// Runs `work` with the whole model, which every rank holds meanwhile: to evaluate it, and to
    /// let it write.
    pub fn whole<R>(&mut self, whole: &Gpt, work: impl FnOnce(&Gpt) -> Result<R>) -> Result<R> {
        self.zero.whole(|| Ok(self.tensor.unshard(&self.gpt.params, &whole.params)?))?;
        work(whole)
    }

    /// The loss of a batch, of which each rank computes its part.
    pub fn loss(&self, config: &Config, step: usize, batch: &Batch) -> Result<Tensor> {
        loss_of(&self.gpt, &self.tensor, config, step, batch)
    }

    /// Takes a step, counted from 0, of one micro-batch. Returns its loss.
    pub fn step(&mut self, config: &Config, step: usize, batch: &Batch) -> Result<f64> {
        let Shared { gpt, tensor, zero } = self;
        Trainer::new(zero, 1, config.clip)
            .step(config.schedule.at(step), |_| loss_of(gpt, tensor, config, step, batch))
            .map(|taken| taken.loss)
            .map_err(|error| Diverged::at(step + 1, error))
    }
}

/// [`Shared::loss`], while ZeRO is in use.
pub(super) fn loss_of(
    gpt: &Gpt,
    tensor: &TensorParallel,
    config: &Config,
    step: usize,
    batch: &Batch,
) -> Result<Tensor> {
    let pass = config.pass(step, &batch.sequences);
    Ok(gpt.loss(batch, &tensor.pass(pass, batch.length))?)
}

/// Prints the setup: of a training on a `corpus`, or without one of the comparison.
pub fn introduce(
    screen: &Screen,
    corpus: Option<&Corpus>,
    config: &Config,
    layout: &Layout,
    (sp, zero): (bool, &ZeroConfig),
) {
    let ranks = layout.ranks();
    let sizes = layout.sizes;
    let Some(corpus) = corpus else {
        report::ranks(screen, ranks);
        let dot = screen.separator();
        let model = report::model(screen, &config.shape, "");
        let dropout = config.dropout;
        screen.say(screen.row("model", &format!("{model}{dot}dropout {dropout}")));
        let tokens = thousands(config.tokens_per_step() as u64);
        return screen
            .say(screen.row("steps", &format!("{}{dot}{tokens} tokens per step", config.steps)));
    };
    report::data(screen, corpus);
    report::ranks(screen, ranks);
    let sequence = if sp { ", with sequence parallelism" } else { "" };
    let mesh = format!("{} data x {} tensor{sequence}", sizes.data, sizes.tensor);
    screen.say(screen.row("mesh", &mesh));
    report::job(screen, config, "replica");
    if zero.stage > Stage::Ddp {
        screen.say(
            screen
                .row("sharded", &format!("ZeRO stage {} in each data group", zero.stage.number())),
        );
    }
}

/// The bytes that rank 0 sends for a step, in words and as a number.
pub fn expected_bytes(
    config: &Config,
    layout: &Layout,
    shared: &mut Shared,
    zero: &ZeroConfig,
    shards: &Shards,
) -> (String, f64) {
    let tensor = layout.sizes.tensor;
    let micro_steps = config.grad_accum;
    let (words, data) = report::bytes_of_zero(&shared.zero, zero.stage);
    let norm = if tensor > 1 { 20.0 } else { 0.0 };
    let layers = shards.sent(config.batch * micro_steps, shared.zero.copies());
    let words = match layout.sizes.data {
        1 => format!("{} by layers + {norm} for the norm", thousands(layers as u64)),
        _ => format!(
            "{} by layers + {words} + {norm} for the tensor ranks' norm",
            thousands(layers as u64)
        ),
    };
    (words, layers + data + norm)
}

/// Trains a small model for three steps on the mesh, and on one rank that takes the replicas'
/// batches in turn. Returns whether the losses agree; rank 0 prints the check.
pub fn same_as_one_rank(
    mesh: &Mesh,
    screen: &Screen,
    config: &Config,
    text: &[u32],
    sharing: (bool, usize),
    zero: &ZeroConfig,
) -> Result<bool> {
    const STEPS: usize = 3;
    let config = config.parity_check();
    let mut shared = Shared::new(&config, mesh, sharing, zero.clone(), None)?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let batch = config.sampler(mesh.at.data).batch(text, step, 0);
        losses.push(shared.step(&config, step, &batch)?);
    }
    let data = mesh.group(Axis::Data);
    let bound = zero.precision.loss_bound();
    parity::compare(mesh.world(), data, screen, bound, &losses, None, || {
        let one = Replica::alone(&config, text, zero.precision)?;
        parity::serial(one, data.size(), STEPS)
    })
}
