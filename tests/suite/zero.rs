//! All stages of ZeRO take the steps that DDP takes.

use super::trained::{config, loss_rounding, train_by_hand};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, largest_relative_difference, same_bits};
use shardlab::model::{Gpt, LinearStack};
use shardlab::optim::{Fragment, NotFinite};
use shardlab::parallel::zero::{Offload, OffloadFolder, Stage, Wrap, Zero, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{AdamWConfig, Config};
use std::collections::BTreeMap;

/// Types of parameters and products, and of gradients.
pub const TYPES: [(Precision, Precision); 3] = [
    (Precision::F32, Precision::F32),
    (Precision::Bf16, Precision::F32),
    (Precision::Bf16, Precision::Bf16),
];

pub const ADAMW: AdamWConfig = AdamWConfig::NANOGPT;

/// The result of a short training on this rank. Losses are means over ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub begun: Vec<f32>,
    pub values: Vec<f32>,
}

/// Trains a small GPT. Each rank has its own seed, and rank 0's counts.
pub fn train(
    comm: &Comm,
    config: &Config,
    text: &[u32],
    zero: ZeroConfig,
    steps: usize,
) -> anyhow::Result<Trained> {
    let gpt = Gpt::new(&config.shape)?;
    let seed = config.seed_of(comm.rank());
    let offloads = zero.offload.is_some();
    let stage = zero.stage;
    let mut zero = Zero::init(&gpt.params, comm, zero, seed)?;
    let mut begun = vec![f32::NAN; gpt.params.numel()];
    zero.each(|spec, whole| begun[spec.range()].copy_from_slice(whole))?;
    let sampler = config.sampler(comm.rank());
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let micro_steps = config.grad_accum;
        let mut mean = [0.0];
        zero.begin()?;
        for micro in 0..micro_steps {
            let batch = sampler.batch(text, step, micro);
            let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
            mean[0] += f64::from(loss.to_scalar::<f32>()?) / micro_steps as f64;
            zero.synchronise(micro + 1 == micro_steps);
            (loss / micro_steps as f64)?.backward()?;
        }
        zero.finish()?;
        norms.push(zero.step(config.schedule.at(step), config.clip)?);
        comm.all_reduce(&mut mean, Reduce::Mean)?;
        losses.push(mean[0]);
    }
    let numel = gpt.params.numel();
    let held = zero.memory();
    assert_eq!(
        (held.optimizer == 0, held.optimizer_offloaded > 0),
        (offloads, offloads),
        "{held:?}"
    );
    let parameters_offloaded = offloads && stage == Stage::Three;
    assert_eq!(
        (held.parameters == 0, held.parameters_offloaded > 0),
        (parameters_offloaded, parameters_offloaded),
        "{held:?}"
    );
    assert!(held.optimizer + held.optimizer_offloaded >= 8 * numel / comm.size() / 2);
    zero.leave()?;
    let values = gpt.params.whole()?.clone();
    Ok(Trained { losses, norms, begun, values })
}

impl Trained {
    /// Asserts that two trainings agree: to the bit, or, if additions may have a different order,
    /// within what `rounding` explains.
    fn ensure_like(&self, other: &Trained, same_order: bool, rounding: &Rounding, what: &str) {
        if same_order {
            assert!(
                same_bits(&self.losses, &other.losses),
                "{what}: {:?} against {:?}",
                self.losses,
                other.losses
            );
            assert!(
                same_bits(&self.norms, &other.norms),
                "{what}: {:?} against {:?}",
                self.norms,
                other.norms
            );
            assert!(same_bits(&self.values, &other.values), "{what}: parameters differ");
            return;
        }
        let unlike = self.unlike(other, rounding);
        assert!(unlike.is_none(), "{what}: {}", unlike.unwrap_or_default());
    }

    /// What rounding does not explain of the difference of two trainings.
    fn unlike(&self, other: &Trained, rounding: &Rounding) -> Option<String> {
        let first = |norms: &Vec<f64>| norms.iter().copied().take(1).collect::<Vec<f64>>();
        let gradients = rounding.of_gradients();
        let moves = rounding.of_moves(other);
        let compared = [
            (
                "losses",
                largest_difference(&self.losses, &other.losses),
                rounding.of_losses(other),
            ),
            (
                "first norms",
                largest_relative_difference(&first(&self.norms), &first(&other.norms)),
                gradients,
            ),
            ("models", self.apart(other), moves),
            // Later norms depend on how far the models are apart.
            ("norms", largest_relative_difference(&self.norms, &other.norms), moves),
        ];
        let found = compared.into_iter().find(|(_, apart, most)| apart.is_nan() || apart >= most);
        found.map(|(what, apart, most)| {
            format!("{what} are {apart:e} apart, and rounding explains {most:e}")
        })
    }

    /// The distance of two trained models, divided by the distance that the other one has come.
    fn apart(&self, other: &Trained) -> f64 {
        match largest_difference(&self.values, &other.values).is_finite() {
            true => distance(&self.values, &other.values) / other.moved(),
            false => f64::INFINITY,
        }
    }

    fn moved(&self) -> f64 {
        distance(&self.values, &self.begun)
    }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

/// What rounding can do to a training whose sums are added in a different order.
struct Rounding {
    /// The spacing of numbers in [1, 2): rounding moves a number by at most half of this, relative
    /// to it.
    epsilon: f64,
    /// Roundings of each gradient on its way from the ranks and micro-steps to the optimizer.
    roundings: usize,
    /// Tokens whose losses a rank adds up.
    tokens: usize,
}

impl Rounding {
    fn new(precision: Precision, config: &Config) -> Rounding {
        let tokens = config.tokens_per_step() / config.ranks;
        match precision {
            Precision::F32 => {
                let epsilon = f64::from(f32::EPSILON);
                Rounding { epsilon, roundings: config.ranks * config.grad_accum, tokens }
            }
            // Ranks add in f32, and round once; micro-steps add in bf16.
            Precision::Bf16 => {
                Rounding { epsilon: 2f64.powi(-7), roundings: config.grad_accum, tokens }
            }
        }
    }

    /// Each addition rounds a gradient by at most half of epsilon.
    fn of_gradients(&self) -> f64 {
        self.roundings as f64 * self.epsilon / 2.0
    }

    /// The distance of two models relative to their moves. AdamW moves a parameter by about the
    /// learning rate, in the direction of its gradient, whatever the gradient's size. So rounding
    /// matters where it decides the direction: for gradients that are smaller than their rounding.
    /// If gradients are distributed normally, that is the share √(2/π) x rounding of all, and each
    /// moves two steps away from the other model. Besides, stored parameters are rounded, on
    /// average by ε/√12. The two have nothing to do with each other, so their squares add up.
    fn of_moves(&self, other: &Trained) -> f64 {
        let share = (2.0 / std::f64::consts::PI).sqrt() * self.of_gradients();
        let origin = vec![0.0; other.values.len()];
        let stored = self.epsilon / 12f64.sqrt() * distance(&other.values, &origin) / other.moved();
        (4.0 * share + stored * stored).sqrt()
    }

    /// The difference of two losses. Each is a sum of tokens' losses in f32. And stored parameters
    /// are rounded: by ε/√12 of the largest of them, a gain of 1. The loss moves by the gradient's
    /// norm times this.
    fn of_losses(&self, other: &Trained) -> f64 {
        let norm = other.norms.iter().copied().fold(0.0, f64::max);
        loss_rounding(self.tokens) + norm * self.epsilon / 12f64.sqrt()
    }
}

/// Compares every stage, with settings that cut at odd offsets, with stage 0, and stage 0 with DDP.
/// `same_order`: whether this transport adds in rank order.
pub fn stages_take_the_same_steps(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    const STEPS: usize = 4;
    let (config, corpus) = config(comm.size(), |config| (config.dropout, config.clip) = (0.1, 0.5));
    let text = &corpus.train;
    let ddp = train_by_hand(comm, &config, text, STEPS)?;
    let mut of_f32 = None;
    for (precision, reduce) in TYPES {
        let config = Config { precision, reduce, ..config.clone() };
        let run = |zero: ZeroConfig| train(comm, &config, text, zero, STEPS);
        let of = |stage| config.zero(stage);
        let rounding = Rounding::new(precision, &config);
        let zero = run(of(Stage::Ddp))?;
        if precision == Precision::F32 {
            assert!(!same_order || same_bits(&zero.values, &ddp.values), "stage 0 is DDP");
        }
        let first = of_f32.get_or_insert(zero.clone());
        zero.ensure_like(first, false, &rounding, "bf16 against f32");
        let three = of(Stage::Three);
        for (what, zero_config) in [
            ("stage 1", of(Stage::One)),
            (
                "stage 1, buckets of a parameter, no overlap",
                ZeroConfig { reduce_bucket: 1, overlap: false, ..of(Stage::One) },
            ),
            ("stage 2", ZeroConfig { reduce_bucket: 5000, ..of(Stage::Two) }),
            (
                "stage 2, one bucket",
                ZeroConfig { reduce_bucket: usize::MAX, ..of(Stage::Two) },
            ),
            ("stage 2, no overlap", ZeroConfig { overlap: false, ..of(Stage::Two) }),
            ("stage 3", three.clone()),
            (
                "stage 3, no prefetch, no overlap",
                ZeroConfig { prefetch_bucket: 0, overlap: false, ..three.clone() },
            ),
            (
                "stage 3, nothing persistent",
                ZeroConfig { persistence_threshold: 0, ..three.clone() },
            ),
            (
                "stage 3, all persistent",
                ZeroConfig { persistence_threshold: usize::MAX, ..three.clone() },
            ),
            (
                "stage 3, one unit",
                ZeroConfig { wrap: Wrap::Model, persistence_threshold: 0, ..three.clone() },
            ),
            (
                "stage 3, a unit a parameter",
                ZeroConfig { wrap: Wrap::Parameters, prefetch_bucket: 7000, ..three },
            ),
        ] {
            run(zero_config)?.ensure_like(
                &zero,
                same_order,
                &rounding,
                &format!("{what}, {}, gradients in {}", precision.name(), reduce.name()),
            );
        }
    }
    Ok(())
}

/// A model is the same whether each shard is made from the seed, or the whole is allocated and
/// divided.
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
                let mut zero =
                    begin(&gpt, comm, ZeroConfig::new(stage, precision, config.adamw), seed)?;
                let mut values = vec![f32::NAN; gpt.params.numel()];
                zero.each(|spec, whole| values[spec.range()].copy_from_slice(whole))?;
                zero.leave()?;
                assert!(
                    same_bits(&values, &gpt.params.whole()?),
                    "{stage:?}, {precision:?}: one by one, and as a whole"
                );
                anyhow::Ok(values)
            };
            let seeded = begun(|gpt, comm, zero, seed| Zero::init(&gpt.params, comm, zero, seed))?;
            let divided = begun(|gpt, comm, zero, seed| {
                gpt.params.allocate(seed);
                Zero::new(&gpt.params, comm, zero)
            })?;
            assert!(same_bits(&seeded, &divided), "{stage:?}, {precision:?}");
            // bf16 has 8 bits, so it rounds by at most half of 2^-7.
            let most = if precision == Precision::F32 {
                0.0
            } else {
                2f64.powi(-8)
            };
            let apart = largest_relative_difference(&seeded, &whole.params.values());
            assert!(apart <= most, "{stage:?}, {precision:?}: {apart:e}");
        }
    }
    Ok(())
}

/// The bounds of [`Rounding`] are narrower than what a mistake does.
pub fn rounding_explains_no_mistake(comm: &Comm) -> anyhow::Result<()> {
    const STEPS: usize = 4;
    // As many roundings as in any comparison here.
    let (config, corpus) =
        config(comm.size(), |config| (config.grad_accum, config.clip) = (3, 0.5));
    for (precision, reduce) in TYPES {
        let config = Config { precision, reduce, ..config.clone() };
        let rounding = Rounding::new(precision, &config);
        let zero = config.zero(Stage::Ddp);
        let good = train(comm, &config, &corpus.train, zero.clone(), STEPS)?;
        assert_eq!(good.unlike(&good, &rounding), None);
        // The values after a part of the way: 1 is the whole.
        let moved = |part: f32| -> Trained {
            let way = good
                .values
                .iter()
                .zip(&good.begun)
                .map(|(value, begun)| begun + part * (value - begun));
            Trained { values: way.collect(), ..good.clone() }
        };
        let norms = |factor: f64| Trained {
            norms: good.norms.iter().map(|x| factor * x).collect(),
            ..good.clone()
        };
        let losses = |factor: f64| Trained {
            losses: good.losses.iter().map(|x| factor * x).collect(),
            ..good.clone()
        };
        let mut last_missing = train(comm, &config, &corpus.train, zero, STEPS - 1)?;
        (last_missing.losses, last_missing.norms) = (good.losses.clone(), good.norms.clone());
        let mut nan = good.clone();
        let mut shorter = good.clone();
        nan.values[7] = f32::NAN;
        shorter.values.pop();
        let mut nan_loss = good.clone();
        let mut shorter_losses = good.clone();
        nan_loss.losses[1] = f64::NAN;
        shorter_losses.losses.pop();
        let mut nan_norm = good.clone();
        let mut shorter_norms = good.clone();
        nan_norm.norms[STEPS - 1] = f64::NAN;
        shorter_norms.norms.pop();
        for (mistake, wrong) in [
            ("no step", moved(0.0)),
            ("steps in the wrong direction", moved(-1.0)),
            ("steps that are half as long", moved(0.5)),
            ("the last step is missing", last_missing),
            ("a sum over two ranks instead of the mean", norms(2.0)),
            ("one of five ranks is left out of the mean", norms(0.8)),
            ("one of a hundred tokens is left out of the mean", losses(0.99)),
            ("a NaN among the values", nan),
            ("a value too few", shorter),
            ("a NaN among the losses", nan_loss),
            ("a loss too few", shorter_losses),
            ("a NaN among the norms", nan_norm),
            ("a norm too few", shorter_norms),
        ] {
            let most = rounding.of_moves(&good);
            assert!(
                wrong.unlike(&good, &rounding).is_some(),
                "{precision:?}: {mistake}, and rounding explains {most:e}"
            );
        }
    }
    Ok(())
}

/// With micro-steps, stages 0 and 1 add up before they average, and stages 2 and 3 average before
/// they add up.
pub fn micro_steps_add_up(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |config| config.grad_accum = 3);
    for (precision, reduce) in TYPES {
        let config = Config { precision, reduce, ..config.clone() };
        let run = |stage| train(comm, &config, &corpus.train, config.zero(stage), 3);
        let [zero, one, two, three] = Stage::ALL.map(run);
        let zero = zero?;
        let two = two?;
        let rounding = Rounding::new(precision, &config);
        one?.ensure_like(&zero, same_order, &rounding, "stage 1 against 0");
        three?.ensure_like(&two, same_order, &rounding, "stage 3 against 2");
        two.ensure_like(&zero, false, &rounding, "stage 2 against 0");
    }
    Ok(())
}

/// With parameters of one and two elements and more ranks than that, some ranks hold no part of the
/// model.
pub fn ranks_may_hold_nothing(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    const STEPS: usize = 3;
    const LR: f64 = 1e-2;
    let run = |stage, precision| -> anyhow::Result<Vec<f32>> {
        let stack = LinearStack::new(&[1, 2, 1])?;
        stack.params.allocate(comm.rank() as u64);
        let config = ZeroConfig {
            persistence_threshold: 0,
            ..ZeroConfig::new(stage, precision, ADAMW)
        };
        let mut zero = Zero::new(&stack.params, comm, config)?;
        for step in 0..STEPS {
            zero.begin()?;
            stack.loss(&[0.5 + step as f32, 1.0 + comm.rank() as f32])?.backward()?;
            zero.finish()?;
            zero.step(LR, 1.0)?;
        }
        zero.leave()?;
        Ok(stack.params.whole()?.clone())
    };
    for precision in [Precision::F32, Precision::Bf16] {
        let zero = run(Stage::Ddp, precision)?;
        for stage in Stage::ALL {
            let values = run(stage, precision)?;
            let apart = largest_difference(&values, &zero);
            // The ranks' few gradients have one sign, and are rounded in each addition, in bf16
            // only once. So each of AdamW's steps is off by that share of the learning rate, and
            // the parameter by its own rounding, one unit in the last digit.
            let largest = largest_difference(&zero, &vec![0.0; zero.len()]);
            let most = match precision {
                Precision::F32 => {
                    f64::from(f32::EPSILON)
                        * (STEPS as f64 * LR * comm.size() as f64 + STEPS as f64 * largest)
                }
                Precision::Bf16 => 2f64.powi(-7) * (STEPS as f64 * LR + largest),
            };
            assert!(
                if same_order { apart == 0.0 } else { apart < most },
                "{stage:?}, {precision:?}: {apart:e} {most:e}"
            );
        }
    }
    Ok(())
}

/// A rank's state, by the names of whole parameters: values, first and second moments. Elements of
/// other ranks are NaN.
type Saved = BTreeMap<String, [Vec<f32>; 3]>;

fn save(zero: &mut Zero, saved: &mut Saved) -> anyhow::Result<()> {
    zero.fragments(|Fragment { spec, .. }, elements, state| {
        let numel = spec.whole.shape.iter().product();
        let whole = saved
            .entry(spec.whole.name.clone())
            .or_insert_with(|| [(); 3].map(|()| vec![f32::NAN; numel]));
        spec.runs(elements.clone(), |here, at| {
            let here = here.start - elements.start..here.end - elements.start;
            for (whole, part) in
                whole.iter_mut().zip([&state.values, &state.exp_avg, &state.exp_avg_sq])
            {
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
        let whole = saved
            .entry(spec.whole.name.clone())
            .or_insert_with(|| [(); 3].map(|()| vec![f32::NAN; numel]));
        for numbers in whole {
            let mut all = vec![0.0; numel * comm.size()];
            comm.all_gather(numbers, &mut all)?;
            for (i, number) in numbers.iter_mut().enumerate() {
                let held = (0..comm.size())
                    .map(|rank| all[rank * numel + i])
                    .find(|number| !number.is_nan());
                *number = held.expect("some rank holds every element");
            }
        }
    }
    Ok(saved)
}

/// Trains these steps, on the same sequences in every stage.
fn go_on(
    comm: &Comm,
    gpt: &Gpt,
    zero: &mut Zero,
    steps: std::ops::Range<usize>,
    poison: f64,
) -> anyhow::Result<f64> {
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

/// One stage saves its state fragment by fragment, and a different stage continues with it, to the
/// same result.
pub fn state_goes_from_stage_to_stage(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let (config, _) = config(comm.size(), |_| ());
    let dir = tempfile::tempdir()?;
    for precision in [Precision::F32, Precision::Bf16] {
        let made = |stage, seed| -> anyhow::Result<(Gpt, Zero)> {
            let gpt = Gpt::new(&config.shape)?;
            // Stage 1's state is on the host, and stage 3's in files.
            let offload = match stage {
                Stage::One => Some(Offload::Host),
                Stage::Three => Some(Offload::Files(OffloadFolder {
                    dir: dir.path().to_path_buf(),
                    window: 777,
                })),
                _ => None,
            };
            let zero = ZeroConfig { offload, ..ZeroConfig::new(stage, precision, ADAMW) };
            let zero = Zero::init(&gpt.params, comm, zero, seed)?;
            Ok((gpt, zero))
        };
        let (gpt, mut undisturbed) = made(Stage::Ddp, 1)?;
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
            assert!(
                !same_order || all_of(comm, &mut zero)? == end,
                "{stage:?}, {precision:?}: at the end"
            );
        }
    }
    Ok(())
}

/// All ranks refuse a step whose gradients are not finite, although only the last rank's are bad.
/// Nothing moves, and the next step is as if the bad one had not been.
pub fn a_bad_step_moves_nothing(comm: &Comm) -> anyhow::Result<()> {
    let (config, _) = config(comm.size(), |_| ());
    for precision in [Precision::F32, Precision::Bf16] {
        for stage in Stage::ALL {
            let gpt = Gpt::new(&config.shape)?;
            let mut zero =
                Zero::init(&gpt.params, comm, ZeroConfig::new(stage, precision, ADAMW), 1)?;
            go_on(comm, &gpt, &mut zero, 0..1, 1.0)?;
            let before = all_of(comm, &mut zero)?;
            for poison in [f64::NAN, f64::INFINITY] {
                let error =
                    go_on(comm, &gpt, &mut zero, 1..2, poison).expect_err("a bad step is refused");
                assert!(error.is::<NotFinite>(), "{error:#}");
            }
            assert_eq!(zero.steps(), 1);
            assert!(all_of(comm, &mut zero)? == before, "{stage:?}, {precision:?}");
            let norm = go_on(comm, &gpt, &mut zero, 1..2, 1.0)?;
            assert!(
                norm.is_finite() && all_of(comm, &mut zero)? != before,
                "{stage:?}, {precision:?}: goes on"
            );
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
            let mut zero =
                Zero::init(&gpt.params, comm, ZeroConfig::new(stage, Precision::F32, ADAMW), 1)?;
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

/// Two data groups side by side train what each would train alone, in all stages and with DDP:
/// nothing of one group reaches the other. `comm` has at least 4 ranks.
pub fn two_groups_train_side_by_side(comm: &Comm, same_order: bool) -> anyhow::Result<()> {
    let color = comm.rank() % 2;
    let group = comm.split(color as u64, 0)?;
    let (config, corpus) = config(group.size(), |_| ());
    // Each group has its own text.
    let text = &corpus.train[color * 1000..];
    for stage in Stage::ALL {
        let zero = |comm: &Comm| {
            train(comm, &config, text, ZeroConfig::new(stage, Precision::F32, ADAMW), 3)
        };
        let together = zero(&group)?;
        let ddp = train_by_hand(&group, &config, text, 3)?;
        // The ranks train again, one group after the other.
        for turn in 0..2 {
            if turn == color {
                let alone = zero(&group)?;
                let rounding = Rounding::new(Precision::F32, &config);
                together.ensure_like(
                    &alone,
                    same_order,
                    &rounding,
                    &format!("{stage:?}, group {color}"),
                );
                assert!(
                    !same_order || same_bits(&alone.values, &ddp.values),
                    "{stage:?}, group {color} against DDP"
                );
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
