//! A [`Training`] takes the steps that its parts take by themselves.

use super::trained::config;
use super::zero::TYPES;
use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::difference::same_bits;
use shardlab::model::Gpt;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::{Mistake, Stage, Zero, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{Config, Setup, Training};

const STEPS: usize = 3;

/// What a short training ends with.
struct Trained {
    losses: Vec<f64>,
    norms: Vec<f64>,
    values: Vec<f32>,
}

/// The step in its plainest form, on ZeRO's parts.
fn plainly(comm: &Comm, config: &Config, zero: ZeroConfig, text: &[u32]) -> Result<Trained> {
    let gpt = Gpt::new(&config.shape)?;
    let mut zero = Zero::init(&gpt.params, comm, zero, config.seed)?;
    let sampler = config.sampler(comm.rank());
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..STEPS {
        let mut loss = 0.0;
        zero.begin()?;
        for micro in 0..config.grad_accum {
            let batch = sampler.batch(text, step, micro);
            let whole = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
            loss += f64::from(whole.to_scalar::<f32>()?);
            zero.synchronise(micro + 1 == config.grad_accum);
            (whole / config.grad_accum as f64)?.backward()?;
        }
        zero.finish()?;
        norms.push(zero.step(config.schedule.at(step), config.clip)?);
        losses.push(loss / config.grad_accum as f64);
    }
    zero.leave()?;
    let values = gpt.params.whole()?.to_vec();
    Ok(Trained { losses, norms, values })
}

fn trained(mut training: Training, text: &[u32]) -> Result<Trained> {
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..STEPS {
        let taken = training.step(text, step)?;
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
        assert_eq!(taken.lr, training.config.schedule.at(step));
        let times = taken.computed.times;
        assert!(times.begun <= times.drawn && times.passed <= times.averaged);
    }
    let values = training.whole(|gpt| Ok(gpt.params.whole()?.to_vec()))?;
    Ok(Trained { losses, norms, values })
}

/// Every stage of ZeRO, in both precisions, with accumulation: the same bits.
pub fn a_training_takes_the_plain_step(comm: &Comm) -> Result<()> {
    let (config, corpus) = config(comm.size(), |config| {
        config.grad_accum = 3;
        config.dropout = 0.1;
    });
    let text = &corpus.train;
    for zero in Stage::ALL {
        for (precision, reduce) in TYPES {
            let config = Config { precision, reduce, ..config.clone() };
            let settings = config.zero(zero);
            let expected = plainly(comm, &config, settings.clone(), text)?;
            let strategy = Strategy::data(comm.size(), zero);
            let training = Setup::new(&config, &strategy).zero(settings).begin(comm)?;
            let found = trained(training, text)?;
            let what = format!("{strategy}, {precision:?}, {reduce:?}");
            assert!(
                same_bits(&found.losses, &expected.losses),
                "{what}: {:?} {:?}",
                found.losses,
                expected.losses
            );
            assert!(
                same_bits(&found.norms, &expected.norms),
                "{what}: {:?} {:?}",
                found.norms,
                expected.norms
            );
            assert!(same_bits(&found.values, &expected.values), "{what}: a parameter differs");
        }
    }
    Ok(())
}

/// Clipping by a shard's own norm changes what two ranks or more train.
pub fn a_local_norm_changes_what_is_trained(comm: &Comm) -> Result<()> {
    let (config, corpus) = config(comm.size(), |config| config.clip = 0.01);
    let train = |local_norm: bool| {
        let mut zero = ZeroConfig::new(Stage::One, Precision::F32, config.adamw);
        zero.mistake = local_norm.then_some(Mistake::LocalNorm);
        let strategy = Strategy::data(comm.size(), Stage::One);
        let training = Setup::new(&config, &strategy).zero(zero).begin(comm)?;
        trained(training, &corpus.train).map(|trained| trained.values)
    };
    assert_eq!(same_bits(&train(false)?, &train(true)?), comm.size() == 1);
    Ok(())
}
