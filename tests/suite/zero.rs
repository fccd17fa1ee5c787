//! All stages of ZeRO take the steps that DDP takes.

use super::parity::config;
use shardlab::comm::{Comm, Reduce};
use shardlab::model::{Gpt, LinearStack};
use shardlab::optim::{Fragment, NotFinite};
use shardlab::parallel::zero::{Offload, Stage, Wrap, Zero, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::parity::{self, GptReplica};
use shardlab::train::{AdamWConfig, Config};
use std::collections::BTreeMap;

pub const ADAMW: AdamWConfig = AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };

/// The result of a short training on this rank. Losses are means over ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub values: Vec<f32>,
}

/// Trains a small GPT. Each rank has its own seed, and rank 0's counts.
pub fn train(comm: &Comm, config: &Config, text: &[u32], zero: ZeroConfig, steps: usize) -> anyhow::Result<Trained> {
    let gpt = Gpt::new(&config.shape)?;
    let (seed, offloads, stage) = (config.seed_of(comm.rank()), zero.offload.is_some(), zero.stage);
    let mut zero = Zero::init(&gpt.params, comm, zero, seed)?;
    let sampler = config.sampler(comm.rank());
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 0..steps {
        zero.begin()?;
        let mut sum = [0.0];
        for micro in 0..config.grad_accum {
            let batch = sampler.batch(text, step, micro);
            let loss = (gpt.loss(&batch, &config.pass(step, &batch.sequences))? / config.grad_accum as f64)?;
            sum[0] += f64::from(loss.to_scalar::<f32>()?);
            zero.synchronise(micro + 1 == config.grad_accum);
            loss.backward()?;
        }
        zero.finish()?;
        comm.all_reduce(&mut sum, Reduce::Mean)?;
        losses.push(sum[0]);
        norms.push(zero.step(config.schedule.at(step), config.clip)?);
    }
    let (numel, held) = (gpt.params.numel(), zero.memory());
    assert_eq!((held.optimizer == 0, held.optimizer_file > 0), (offloads, offloads), "{held:?}");
    let parameters_offloaded = offloads && stage == Stage::Three;
    assert_eq!(
        (held.parameters == 0, held.parameters_file > 0),
        (parameters_offloaded, parameters_offloaded),
        "{held:?}"
    );
    assert!(held.optimizer + held.optimizer_file >= 8 * numel / comm.size() / 2);
    zero.leave()?;
    let values = gpt.params.whole()?.clone();
    Ok(Trained { losses, norms, values })
}

impl Trained {
    /// Asserts that two trainings agree: to the bit, or in losses within `bound` if the transport chooses the order of additions.
    fn ensure_like(&self, other: &Trained, same_order: bool, bound: f64, what: &str) {
        if same_order {
            assert_eq!(self.losses, other.losses, "{what}");
            assert_eq!(self.norms, other.norms, "{what}");
            assert!(self.values == other.values, "{what}: parameters differ");
        }
        for (loss, expected) in self.losses.iter().zip(&other.losses) {
            assert!((loss - expected).abs() < bound, "{what}: {:?} against {:?}", self.losses, other.losses);
        }
        for (a, b) in self.values.iter().zip(&other.values) {
            // A few steps move a parameter by a few times the learning rate, less than 1e-3 here; bf16 rounds to 8 bits.
            assert!((a - b).abs() < 1e-3 + b.abs() / 256.0, "{what}: {a} against {b}");
        }
    }
}

/// The largest difference of losses between the two storage types, and between two orders of additions in bf16, which has 8 bits.
const BF16: f64 = 2e-3;

/// Compares every stage, with settings that cut at odd offsets, with stage 0, and stage 0 with DDP. `same_order`: whether this
/// transport adds in rank order.
pub fn stages_take_the_same_steps(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    const STEPS: usize = 4;
    let (config, corpus) = config(comm.size(), |config| (config.dropout, config.clip) = (0.1, 0.5));
    let text = &corpus.train;
    let run = |zero: ZeroConfig| train(comm, &config, text, zero, STEPS);
    let ddp = parity::parallel(comm, GptReplica::new(&config, text, config.seed_of(comm.rank()))?, STEPS)?;
    let mut of_f32 = None;
    for precision in [Precision::F32, Precision::Bf16] {
        let of = |stage| ZeroConfig::new(stage, precision, config.adamw);
        let bound = if precision == Precision::F32 { 1e-5 } else { BF16 };
        let zero = run(of(Stage::Zero))?;
        if precision == Precision::F32 {
            assert!(!same_order || zero.values == ddp.values, "stage 0 is DDP");
        }
        let first = of_f32.get_or_insert(zero.clone());
        zero.ensure_like(first, false, BF16, "bf16 against f32");
        let three = of(Stage::Three);
        for (what, zero_config) in [
            ("stage 1", of(Stage::One)),
            (
                "stage 1, buckets of a parameter, no overlap",
                ZeroConfig { reduce_bucket: 1, overlap: false, ..of(Stage::One) },
            ),
            ("stage 2", ZeroConfig { reduce_bucket: 5000, ..of(Stage::Two) }),
            ("stage 2, one bucket", ZeroConfig { reduce_bucket: usize::MAX, ..of(Stage::Two) }),
            ("stage 2, no overlap", ZeroConfig { overlap: false, ..of(Stage::Two) }),
            ("stage 3", three.clone()),
            ("stage 3, no prefetch, no overlap", ZeroConfig { prefetch_bucket: 0, overlap: false, ..three.clone() }),
            ("stage 3, nothing persistent", ZeroConfig { persistence_threshold: 0, ..three.clone() }),
            ("stage 3, all persistent", ZeroConfig { persistence_threshold: usize::MAX, ..three.clone() }),
            ("stage 3, one unit", ZeroConfig { wrap: Wrap::Model, persistence_threshold: 0, ..three.clone() }),
            ("stage 3, a unit a parameter", ZeroConfig { wrap: Wrap::Parameters, prefetch_bucket: 7000, ..three }),
        ] {
            run(zero_config)?.ensure_like(&zero, same_order, bound, &format!("{what}, {}", precision.name()));
        }
    }
    Ok(())
}

/// A model is the same whether each shard is made from the seed, or the whole is allocated and divided.
pub fn a_model_begins_as_allocated(comm: &Comm) -> anyhow::Result<()> {
    let (config, _) = config(comm.size(), |_| ());
    let whole = Gpt::new(&config.shape)?;
    whole.params.allocate(config.seed);
    for precision in [Precision::F32, Precision::Bf16] {
        for stage in Stage::ALL {
            let begun = |begin: fn(&Gpt, &Comm, ZeroConfig, u64) -> anyhow::Result<Zero>| {
                let gpt = Gpt::new(&config.shape)?;
                // Rank 0's seed counts.
                let seed = config.seed_of(comm.rank());
                let mut zero = begin(&gpt, comm, ZeroConfig::new(stage, precision, config.adamw), seed)?;
                let mut values = vec![f32::NAN; gpt.params.numel()];
                zero.each(|spec, whole| values[spec.range()].copy_from_slice(whole))?;
                zero.leave()?;
                assert!(values == *gpt.params.whole()?, "{stage:?}, {precision:?}: one by one, and as a whole");
                anyhow::Ok(values)
            };
            let seeded = begun(|gpt, comm, zero, seed| Zero::init(&gpt.params, comm, zero, seed))?;
            let divided = begun(|gpt, comm, zero, seed| {
                gpt.params.allocate(seed);
                Zero::new(&gpt.params, comm, zero)
            })?;
            assert!(seeded == divided, "{stage:?}, {precision:?}");
            let rounds =
                |(a, b): (&f32, &f32)| (a - b).abs() <= if precision == Precision::F32 { 0.0 } else { b.abs() / 256.0 };
            assert!(seeded.iter().zip(&*whole.params.values()).all(rounds), "{stage:?}, {precision:?}");
        }
    }
    Ok(())
}

/// With micro-steps, stages 0 and 1 add up before they average, and stages 2 and 3 average before they add up.
pub fn micro_steps_add_up(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |config| config.grad_accum = 3);
    for precision in [Precision::F32, Precision::Bf16] {
        let run = |stage| train(comm, &config, &corpus.train, ZeroConfig::new(stage, precision, config.adamw), 3);
        let [zero, one, two, three] = Stage::ALL.map(run);
        let (zero, two) = (zero?, two?);
        let bound = if precision == Precision::F32 { 1e-5 } else { BF16 };
        one?.ensure_like(&zero, same_order, bound, "stage 1 against 0");
        three?.ensure_like(&two, same_order, bound, "stage 3 against 2");
        two.ensure_like(&zero, false, bound, "stage 2 against 0");
    }
    Ok(())
}

/// With parameters of one and two elements and more ranks than that, some ranks hold no part of the model.
pub fn ranks_may_hold_nothing(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let run = |stage, precision| -> anyhow::Result<Vec<f32>> {
        let stack = LinearStack::new(&[1, 2, 1])?;
        stack.params.allocate(comm.rank() as u64);
        let config = ZeroConfig { persistence_threshold: 0, ..ZeroConfig::new(stage, precision, ADAMW) };
        let mut zero = Zero::new(&stack.params, comm, config)?;
        for step in 0..3 {
            zero.begin()?;
            stack.loss(&[0.5 + step as f32, 1.0 + comm.rank() as f32])?.backward()?;
            zero.finish()?;
            zero.step(1e-2, 1.0)?;
        }
        zero.leave()?;
        Ok(stack.params.whole()?.clone())
    };
    for precision in [Precision::F32, Precision::Bf16] {
        let zero = run(Stage::Zero, precision)?;
        for stage in Stage::ALL {
            let values = run(stage, precision)?;
            let apart = values.iter().zip(&zero).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(if same_order { apart == 0.0 } else { apart < 1e-2 }, "{stage:?}, {precision:?}: {apart:e}");
        }
    }
    Ok(())
}

/// A rank's state, by the names of whole parameters: values, first and second moments. Elements of other ranks are NaN.
type Saved = BTreeMap<String, [Vec<f32>; 3]>;

fn save(zero: &mut Zero, saved: &mut Saved) -> anyhow::Result<()> {
    zero.fragments(|Fragment { spec, .. }, elements, state| {
        let numel = spec.whole.shape.iter().product();
        let whole = saved.entry(spec.whole.name.clone()).or_insert_with(|| [(); 3].map(|()| vec![f32::NAN; numel]));
        spec.runs(elements.clone(), |here, at| {
            let here = here.start - elements.start..here.end - elements.start;
            for (whole, part) in whole.iter_mut().zip([&state.values, &state.exp_avg, &state.exp_avg_sq]) {
                whole[at..at + here.len()].copy_from_slice(&part[here.clone()]);
            }
        });
    })
}

fn restore(zero: &mut Zero, saved: &Saved, steps: u64) -> anyhow::Result<()> {
    zero.restore(steps, |Fragment { spec, .. }, elements, state| {
        let mut parts = [state.values, state.exp_avg, state.exp_avg_sq];
        spec.runs(elements.clone(), |here, at| {
            let here = here.start - elements.start..here.end - elements.start;
            for (whole, part) in saved[&spec.whole.name].iter().zip(&mut parts) {
                part[here.clone()].copy_from_slice(&whole[at..at + here.len()]);
            }
        });
    })
}

/// The states of all ranks together, on every rank.
fn all_of(comm: &Comm, zero: &mut Zero) -> anyhow::Result<Saved> {
    let mut saved = Saved::new();
    save(zero, &mut saved)?;
    for spec in zero.params().specs() {
        let numel = spec.whole.shape.iter().product();
        let whole = saved.entry(spec.whole.name.clone()).or_insert_with(|| [(); 3].map(|()| vec![f32::NAN; numel]));
        for numbers in whole {
            let mut all = vec![0.0; numel * comm.size()];
            comm.all_gather(numbers, &mut all)?;
            for (i, number) in numbers.iter_mut().enumerate() {
                let held = (0..comm.size()).map(|rank| all[rank * numel + i]).find(|number| !number.is_nan());
                *number = held.expect("some rank holds every element");
            }
        }
    }
    Ok(saved)
}

/// Trains these steps, on the same sequences in every stage.
fn go_on(comm: &Comm, gpt: &Gpt, zero: &mut Zero, steps: std::ops::Range<usize>, poison: f64) -> anyhow::Result<f64> {
    let (config, corpus) = config(comm.size(), |_| ());
    let mut norm = 0.0;
    for step in steps {
        zero.begin()?;
        let batch = config.sampler(comm.rank()).batch(&corpus.train, step, 0);
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        (loss * if comm.rank() + 1 == comm.size() { poison } else { 1.0 })?.backward()?;
        zero.finish()?;
        norm = zero.step(1e-3, 1.0)?;
    }
    Ok(norm)
}

/// One stage saves its state fragment by fragment, and a different stage continues with it, to the same result.
pub fn state_goes_from_stage_to_stage(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let (config, _) = config(comm.size(), |_| ());
    let dir = tempfile::tempdir()?;
    for precision in [Precision::F32, Precision::Bf16] {
        let made = |stage, seed| -> anyhow::Result<(Gpt, Zero)> {
            let gpt = Gpt::new(&config.shape)?;
            let offload = (stage == Stage::Three).then(|| Offload { dir: dir.path().to_path_buf(), window: 777 });
            let zero = ZeroConfig { offload, ..ZeroConfig::new(stage, precision, ADAMW) };
            let zero = Zero::init(&gpt.params, comm, zero, seed)?;
            Ok((gpt, zero))
        };
        let (gpt, mut undisturbed) = made(Stage::Zero, 1)?;
        go_on(comm, &gpt, &mut undisturbed, 0..2, 1.0)?;
        let middle = all_of(comm, &mut undisturbed)?;
        go_on(comm, &gpt, &mut undisturbed, 2..4, 1.0)?;
        let end = all_of(comm, &mut undisturbed)?;
        for stage in Stage::ALL {
            let (gpt, mut zero) = made(stage, 2)?;
            restore(&mut zero, &middle, 2)?;
            assert!(all_of(comm, &mut zero)? == middle, "{stage:?}, {precision:?}: restored");
            go_on(comm, &gpt, &mut zero, 2..4, 1.0)?;
            assert_eq!(zero.steps(), 4);
            assert!(!same_order || all_of(comm, &mut zero)? == end, "{stage:?}, {precision:?}: at the end");
        }
    }
    Ok(())
}

/// All ranks refuse a step whose gradients are not finite, although only the last rank's are bad. Nothing moves, and the next step is
/// as if the bad one had not been.
pub fn a_bad_step_moves_nothing(comm: &Comm) -> anyhow::Result<()> {
    let (config, _) = config(comm.size(), |_| ());
    for precision in [Precision::F32, Precision::Bf16] {
        for stage in Stage::ALL {
            let gpt = Gpt::new(&config.shape)?;
            let mut zero = Zero::init(&gpt.params, comm, ZeroConfig::new(stage, precision, ADAMW), 1)?;
            go_on(comm, &gpt, &mut zero, 0..1, 1.0)?;
            let before = all_of(comm, &mut zero)?;
            for poison in [f64::NAN, f64::INFINITY] {
                let error = go_on(comm, &gpt, &mut zero, 1..2, poison).expect_err("a bad step is refused");
                assert!(error.is::<NotFinite>(), "{error:#}");
            }
            assert_eq!(zero.steps(), 1);
            assert!(all_of(comm, &mut zero)? == before, "{stage:?}, {precision:?}");
            let norm = go_on(comm, &gpt, &mut zero, 1..2, 1.0)?;
            assert!(norm.is_finite() && all_of(comm, &mut zero)? != before, "{stage:?}, {precision:?}: goes on");
        }
    }
    Ok(())
}

/// An error between a step's begin and its end leaves nothing for the next step to count.
pub fn a_step_that_was_given_up_is_forgotten(comm: &Comm) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |_| ());
    for stage in Stage::ALL {
        let train = |give_up: bool| -> anyhow::Result<Saved> {
            let gpt = Gpt::new(&config.shape)?;
            let mut zero = Zero::init(&gpt.params, comm, ZeroConfig::new(stage, Precision::F32, ADAMW), 1)?;
            if give_up {
                zero.begin()?;
                let batch = config.sampler(comm.rank()).batch(&corpus.train, 9, 0);
                gpt.loss(&batch, &config.pass(9, &batch.sequences))?.backward()?;
                comm.barrier()?;
            }
            go_on(comm, &gpt, &mut zero, 0..2, 1.0)?;
            all_of(comm, &mut zero)
        };
        assert!(train(true)? == train(false)?, "{stage:?}");
    }
    Ok(())
}

/// Two data groups side by side train what each would train alone, in all stages and with DDP: nothing of one group reaches the
/// other. `comm` has at least 4 ranks.
pub fn two_groups_train_side_by_side(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let color = comm.rank() % 2;
    let group = comm.split(color as u64, 0)?;
    let (config, corpus) = config(group.size(), |_| ());
    // Each group has its own text.
    let text = &corpus.train[color * 1000..];
    for stage in Stage::ALL {
        let zero = |comm: &Comm| train(comm, &config, text, ZeroConfig::new(stage, Precision::F32, ADAMW), 3);
        let together = zero(&group)?;
        let ddp = parity::parallel(&group, GptReplica::new(&config, text, config.seed_of(group.rank()))?, 3)?;
        // The ranks train again, one group after the other.
        for turn in 0..2 {
            if turn == color {
                let alone = zero(&group)?;
                together.ensure_like(&alone, same_order, 1e-5, &format!("{stage:?}, group {color}"));
                assert!(!same_order || alone.values == ddp.values, "{stage:?}, group {color} against DDP");
            }
            comm.barrier()?;
        }
        // Both groups have learned, and have different models.
        let mut firsts = vec![0.0; comm.size()];
        comm.all_gather(&together.values[..1], &mut firsts)?;
        assert!(firsts[0] != firsts[1] && firsts[0] == firsts[2], "{firsts:?}");
    }
    Ok(())
}
