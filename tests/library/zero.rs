//! ZeRO between threads: the same steps as DDP's to the bit, what is sent, and what is said of a
//! parameter that is not here.

use crate::suite;
use crate::suite::trained::config;
use crate::suite::zero::{
    ADAMW, TYPES, a_bad_step_moves_nothing, a_model_begins_as_allocated,
    a_step_that_was_given_up_is_forgotten, micro_steps_add_up, ranks_may_hold_nothing,
    rounding_explains_no_mistake, stages_take_the_same_steps, state_goes_from_stage_to_stage,
    train, two_groups_train_side_by_side,
};
use candle_core::{DType, Device, Var};
use shardlab::comm::Comm;
use shardlab::launch;
use shardlab::model::{Gpt, LinearStack, Pass};
use shardlab::parallel::zero::{
    EventKind, Gatherer, MemoryUsage, Offload, OffloadFolder, Stage, Wrap, Zero, ZeroConfig,
};
use shardlab::tensor::{Activation, Precision, Spec, Storage};
use std::ops::Range;
use std::sync::Arc;

#[test]
fn stages_take_the_same_steps_on_1_to_5_ranks() {
    for ranks in 1..=5 {
        launch::run(ranks, |comm| stages_take_the_same_steps(&comm, true)).unwrap();
    }
}

#[test]
fn rounding_is_no_excuse_for_a_mistake() {
    for ranks in [1, 5] {
        launch::run(ranks, |comm| rounding_explains_no_mistake(&comm)).unwrap();
    }
}

#[test]
fn models_begin_as_allocated() {
    for ranks in 1..=5 {
        launch::run(ranks, |comm| a_model_begins_as_allocated(&comm)).unwrap();
    }
}

#[test]
fn micro_steps() {
    for ranks in [1, 2, 3] {
        launch::run(ranks, |comm| micro_steps_add_up(&comm, true)).unwrap();
    }
}

#[test]
fn more_ranks_than_elements() {
    for ranks in 1..=5 {
        launch::run(ranks, |comm| ranks_may_hold_nothing(&comm, true)).unwrap();
    }
}

#[test]
fn states_go_from_stage_to_stage() {
    for ranks in 1..=4 {
        launch::run(ranks, |comm| state_goes_from_stage_to_stage(&comm, true)).unwrap();
    }
}

#[test]
fn bad_steps_move_nothing() {
    for ranks in [1, 2, 3] {
        launch::run(ranks, |comm| a_bad_step_moves_nothing(&comm)).unwrap();
    }
}

#[test]
fn steps_that_were_given_up_are_forgotten() {
    for ranks in [1, 2] {
        launch::run(ranks, |comm| a_step_that_was_given_up_is_forgotten(&comm)).unwrap();
    }
}

/// Without overlap the backward pass stops for each reduction, so no rank has anything left to wait
/// for at its end.
#[test]
fn without_overlap_the_backward_pass_waits_for_each_reduction() {
    let (config, corpus) = config(2, |_| ());
    launch::run(2, |comm| {
        for stage in [Stage::One, Stage::Two, Stage::Three] {
            let gpt = Gpt::new(&config.shape)?;
            let zero = ZeroConfig {
                overlap: false,
                reduce_bucket: 1 << 12,
                ..ZeroConfig::new(stage, Precision::F32, ADAMW)
            };
            let mut zero = Zero::init(&gpt.params, &comm, zero, config.seed)?;
            zero.begin()?;
            let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
            let pass = config.pass(0, &batch.sequences);
            gpt.loss(&batch, &pass)?.backward()?;
            let backward = std::time::Instant::now();
            let averaged = zero.finish()?;
            assert!(averaged.len() > 2, "{stage:?}: {averaged:?}");
            for bucket in &averaged {
                assert!(bucket.waited.1 <= backward, "{stage:?}: {averaged:?}");
            }
            zero.leave()?;
        }
        Ok(())
    })
    .unwrap();
}

/// A pass finds the parameters while they may be gathered, and later not.
#[test]
fn shards_without_training_are_whole_in_a_pass() {
    let (config, corpus) = config(2, |_| ());
    launch::run(2, |comm| {
        let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
        let loss = |gpt: &Gpt| gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>();
        let whole = Gpt::new(&config.shape)?;
        whole.params.allocate(config.seed);
        let gpt = Gpt::new(&config.shape)?;
        let begin = |spec: &Spec, elements: Range<usize>, out: &mut [f32]| {
            spec.initial(config.seed, elements, out);
        };
        let shards = Gatherer::<f32>::begin_with(&gpt.params, &comm, Wrap::Blocks, 100, &begin)?;
        let shards = Arc::new(shards);
        gpt.params.set_values(Storage::Sharded(shards.clone()));
        shards.open(false)?;
        assert_eq!(loss(&gpt)?, loss(&whole)?);
        shards.close();
        let error = loss(&gpt).unwrap_err();
        assert!(error.to_string().contains("not gathered now"), "{error}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn groups_train_side_by_side() {
    for ranks in [4, 6] {
        launch::run(ranks, |comm| two_groups_train_side_by_side(&comm, true)).unwrap();
    }
}

/// Mixed precision as its inventors describe it (Micikevicius et al., arXiv 1710.03740), written
/// down once more in f64: a master copy in f32, weights rounded from it, gradients rounded to their
/// own type, the update on the master.
#[test]
fn bf16_is_mixed_precision_by_the_book() {
    use half::bf16;
    use shardlab::model::LinearStack;
    const LR: f64 = 1e-2;
    let x = |step: usize| [0.5 + step as f32, -1.0, 0.25, 2.0];
    for (stage, reduce) in [
        (Stage::Ddp, Precision::F32),
        (Stage::Ddp, Precision::Bf16),
        (Stage::Three, Precision::F32),
        (Stage::Three, Precision::Bf16),
    ] {
        let made = || {
            let stack = LinearStack::new(&[4, 3, 4]).unwrap();
            stack.params.allocate(3);
            stack
        };
        // The reference: plain f32 parameters that are set to rounded weights before each step.
        let plain = made();
        let mut master: Vec<f64> = plain.params.values().iter().map(|&w| f64::from(w)).collect();
        let mut m = vec![0.0; master.len()];
        let mut v = vec![0.0; master.len()];
        let stack = made();
        let mut zero = Zero::new(
            &stack.params,
            &Comm::alone(),
            ZeroConfig { reduce, ..ZeroConfig::new(stage, Precision::Bf16, ADAMW) },
        )
        .unwrap();
        for step in 0..4 {
            zero.begin().unwrap();
            stack.loss(&x(step)).unwrap().backward().unwrap();
            zero.finish().unwrap();
            zero.step(LR, 0.0).unwrap();

            let rounded = |x: &f64| bf16::from_f32(*x as f32).to_f32();
            plain
                .params
                .values_mut()
                .iter_mut()
                .zip(&master)
                .for_each(|(w, exact)| *w = rounded(exact));
            plain.params.zero_gradients();
            plain.loss(&x(step)).unwrap().backward().unwrap();
            let correction = |beta: f64| 1.0 - beta.powi(step as i32 + 1);
            for spec in plain.params.specs() {
                for i in spec.range() {
                    let g = f64::from(reduce.rounded(&[plain.params.gradients()[i]])[0]);
                    m[i] = ADAMW.beta1 * m[i] + (1.0 - ADAMW.beta1) * g;
                    v[i] = ADAMW.beta2 * v[i] + (1.0 - ADAMW.beta2) * g * g;
                    let decay = if spec.shape.len() == 2 {
                        LR * ADAMW.weight_decay
                    } else {
                        0.0
                    };
                    let m = m[i] / correction(ADAMW.beta1);
                    let v = v[i] / correction(ADAMW.beta2);
                    master[i] -= master[i] * decay + LR * m / (v.sqrt() + ADAMW.epsilon);
                }
            }
        }
        let mut seen = 0;
        zero.fragments(|fragment, elements, state| {
            let start = fragment.spec.range().start;
            for (value, i) in state.values.iter().zip(elements) {
                let expected = master[start + i];
                assert!(
                    (f64::from(*value) - expected).abs() < 1e-5,
                    "{stage:?}: {value} but {expected}"
                );
                seen += 1;
            }
        })
        .unwrap();
        assert_eq!(seen, master.len());
    }
}

/// Passes outside of a step, unit by unit, while everything is in files.
#[test]
fn passes_between_steps_find_parameters_that_are_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let losses = launch::run(2, |comm| {
        let (config, corpus) = config(2, |_| ());
        let offload =
            Some(Offload::Files(OffloadFolder { dir: dir.path().to_path_buf(), window: 500 }));
        let zero = ZeroConfig {
            offload,
            ..ZeroConfig::new(Stage::Three, Precision::Bf16, ADAMW)
        };
        one_step(&comm, zero, 2, |zero, gpt| {
            let batch = config.sampler(0).batch(&corpus.train, 7, 0);
            let loss = || Ok(gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?);
            Ok((zero.passes(loss)?, zero.whole(loss)?))
        })
    });
    for (unit_by_unit, at_once) in losses.unwrap() {
        assert_eq!(unit_by_unit.to_bits(), at_once.to_bits());
    }
}

/// What another rank counts does not count twice, whatever is divided.
#[test]
fn copies_count_once_in_the_norm() {
    use shardlab::mesh::Axis;
    use shardlab::tensor::{Copies, Cut, Init, Params, Whole, linear_bias};
    for stage in Stage::ALL {
        let norm = |first: bool| {
            let norms = launch::run(2, |comm| {
                let params = Params::new();
                let weight = params.declare("weight", &[3, 2], Init::Normal(1.0))?;
                let whole = Whole::new("bias", &[3], Init::Constant(0.0));
                let bias = params.declare_shard(
                    "bias",
                    whole,
                    Cut::All,
                    Copies::Same { axis: Axis::Tensor, first },
                )?;
                let mut zero =
                    Zero::init(&params, &comm, ZeroConfig::new(stage, Precision::F32, ADAMW), 1)?;
                zero.begin()?;
                let x = candle_core::Var::from_slice(
                    &[3.0f32, 4.0],
                    (1, 2),
                    &candle_core::Device::Cpu,
                )?;
                linear_bias(x.as_tensor(), &weight, &bias, Precision::F32)?
                    .sum_all()?
                    .backward()?;
                zero.finish()?;
                zero.norm()
            });
            norms.unwrap()[0]
        };
        // Three rows of gradients 3 and 4, and three ones of the bias.
        assert_eq!(norm(true), 78f64.sqrt(), "{stage:?}");
        assert_eq!(norm(false), 75f64.sqrt(), "{stage:?}");
    }
}

/// In the host's memory; in files with windows that end in the middle of parameters, and with one
/// that is larger than all.
#[test]
fn offloaded_shares_take_the_same_steps() {
    let dir = tempfile::tempdir().unwrap();
    let windows = [(1, Some(1000)), (2, Some(4096)), (3, Some(777)), (2, Some(1 << 30)), (3, None)];
    for (ranks, window) in windows {
        let offload = window.map_or(Offload::Host, |window| {
            Offload::Files(OffloadFolder { dir: dir.path().to_path_buf(), window })
        });
        launch::run(ranks, |comm| {
            let (config, corpus) = config(ranks, |config| config.clip = 0.5);
            for precision in [Precision::F32, Precision::Bf16] {
                for stage in Stage::ALL {
                    let zero = ZeroConfig::new(stage, precision, config.adamw);
                    let elsewhere = ZeroConfig { offload: Some(offload.clone()), ..zero.clone() };
                    let in_memory = train(&comm, &config, &corpus.train, zero, 3)?;
                    let offloaded = train(&comm, &config, &corpus.train, elsewhere, 3)?;
                    assert!(
                        in_memory == offloaded,
                        "{stage:?}, {precision:?}, {ranks} ranks, {offload:?}"
                    );
                }
            }
            Ok(())
        })
        .unwrap();
    }
    // It leaves nothing behind.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_for_the_optimizer_that_is_not_there_is_bad_input() {
    let (config, corpus) = config(1, |_| ());
    let offload = Some(Offload::Files(OffloadFolder::to("no/such/folder".into())));
    let zero = ZeroConfig {
        offload,
        ..ZeroConfig::new(Stage::One, Precision::F32, ADAMW)
    };
    let error =
        launch::run(1, |comm| train(&comm, &config, &corpus.train, zero.clone(), 1)).unwrap_err();
    assert!(
        format!("{error:#}").contains("cannot make a file in `offload` no/such/folder: "),
        "{error:#}"
    );
}

/// One step of a small GPT; returns what `after` makes of it.
fn one_step<R>(
    comm: &Comm,
    zero: ZeroConfig,
    steps: usize,
    after: impl Fn(&mut Zero, &Gpt) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let (config, _) = config(comm.size(), |_| ());
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(1);
    let mut zero = Zero::new(&gpt.params, comm, zero)?;
    for step in 0..steps {
        take_step(comm, &mut zero, &gpt, step, 1)?;
    }
    after(&mut zero, &gpt)
}

fn take_step(
    comm: &Comm,
    zero: &mut Zero,
    gpt: &Gpt,
    step: usize,
    micro_steps: usize,
) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |config| config.grad_accum = micro_steps);
    zero.begin()?;
    for micro in 0..micro_steps {
        let batch = config.sampler(comm.rank()).batch(&corpus.train, step, micro);
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        zero.synchronise(micro + 1 == micro_steps);
        loss.backward()?;
    }
    zero.finish()?;
    zero.step(1e-3, 1.0).map(drop)
}

/// 2Ψ(n-1)/n for stages 0 to 2 and 3Ψ(n-1)/n for stage 3, in bytes, less the position table, which
/// the backward pass does not need; and a few for the global norm.
#[test]
fn what_a_step_sends_is_the_formulas() {
    for (ranks, micro_steps) in [(2, 1), (3, 1), (4, 2), (5, 1)] {
        for (precision, reduce) in TYPES {
            for stage in Stage::ALL {
                let bytes = launch::run(ranks, |comm| {
                    let (config, corpus) = config(ranks, |config| config.grad_accum = micro_steps);
                    let gpt = Gpt::new(&config.shape)?;
                    gpt.params.allocate(1);
                    let zero = ZeroConfig {
                        persistence_threshold: 0,
                        reduce,
                        ..ZeroConfig::new(stage, precision, ADAMW)
                    };
                    let mut zero = Zero::new(&gpt.params, &comm, zero)?;
                    let mut sent = 0;
                    for step in 0..2 {
                        let before = comm.traffic();
                        zero.begin()?;
                        for micro in 0..micro_steps {
                            let batch =
                                config.sampler(comm.rank()).batch(&corpus.train, step, micro);
                            zero.synchronise(micro + 1 == micro_steps);
                            gpt.loss(&batch, &config.pass(step, &batch.sequences))?.backward()?;
                        }
                        zero.finish()?;
                        zero.step(1e-3, 1.0)?;
                        sent = (comm.traffic() - before).bytes;
                    }
                    Ok((sent, gpt.params.numel(), zero.bytes_a_step()))
                })
                .unwrap();
                let n = ranks as f64;
                let numel = bytes[0].1 as f64;
                let micro = micro_steps as f64;
                // Gradients that are reduced, in bytes per parameter, and what is then gathered:
                // they again, or parameters.
                let [parameter, gradient] = [precision, reduce].map(|one| one.bytes() as f64);
                let volumes = match stage {
                    Stage::Ddp => 2.0 * gradient,
                    Stage::One => gradient + parameter,
                    Stage::Two => micro * gradient + parameter,
                    Stage::Three => micro * (gradient + 2.0 * parameter),
                };
                let positions = if stage == Stage::Three {
                    micro * 16.0 * 32.0 * parameter
                } else {
                    0.0
                };
                let formula = (n - 1.0) / n * (volumes * numel - positions);
                let mean = bytes.iter().map(|(sent, ..)| *sent as f64).sum::<f64>() / n;
                // A maximum of 4 bytes and two sums of 8, all-reduced; and what padding adds: less
                // than 1 element in 100.
                let norm = if stage == Stage::Ddp {
                    0.0
                } else {
                    2.0 * (n - 1.0) / n * 20.0
                };
                let apart = (mean - norm) / formula - 1.0;
                assert!(
                    (-1e-9..0.01).contains(&apart),
                    "{stage:?}, {precision:?}, {reduce:?}, {ranks} ranks: {mean} bytes, {formula} by the formula"
                );
                // The library's own words for it, which lab03 prints beside what rank 0 sent.
                let said = bytes[0].0 as f64 / bytes[0].2 - 1.0;
                assert!(
                    said.abs() < 0.01,
                    "{stage:?}, {precision:?}, {reduce:?}, {ranks} ranks: {:?}",
                    bytes[0]
                );
            }
        }
    }
}

#[test]
fn a_divided_parameter_is_told_to_be_so() {
    let errors = launch::run(3, |comm| {
        let zero = ZeroConfig::new(Stage::Three, Precision::F32, ADAMW);
        one_step(&comm, zero, 1, |zero, gpt| {
            let touch = || gpt.logits(&[1, 2, 3], 3, &Pass::evaluate());
            // Rank 0 alone, as one who lets the model write would.
            let error = if comm.rank() == 0 {
                touch().unwrap_err().to_string()
            } else {
                String::new()
            };
            let whole = gpt.params.whole().map(drop).unwrap_err().to_string();
            assert!(whole.contains("see Zero::whole"), "{whole}");
            // And this is how.
            zero.whole(|| {
                if comm.rank() == 0 {
                    touch()?;
                }
                Ok(())
            })?;
            assert!(touch().is_err());
            Ok(error)
        })
    })
    .unwrap();
    let error = &errors[0];
    for part in [
        "parameter wte.weight [65, 32] is sharded among 3 ranks, and not gathered now",
        "\n  rank 0  holds 694 elements: 0 to 693",
        "\n  rank 2  holds 692 elements: 1388 to 2079",
        "help: use it within a step, between Zero::begin and Zero::finish",
    ] {
        assert!(error.contains(part), "{part:?} is missing in\n{error}");
    }
    // Nothing after that, also with RUST_BACKTRACE=1, which a notebook's kernel sets.
    assert!(error.ends_with("with Zero::whole"), "{error}");
}

/// Unit by unit, with fewer batches than ranks times passes, and as whole.
#[test]
fn divided_models_evaluate_and_write() {
    use shardlab::model::generate;
    use shardlab::tensor::random::Stream;
    use shardlab::train::evaluate;
    for precision in [Precision::F32, Precision::Bf16] {
        let run = |stage| {
            launch::run(3, |comm| {
                let config = ZeroConfig {
                    persistence_threshold: 100,
                    ..ZeroConfig::new(stage, precision, ADAMW)
                };
                one_step(&comm, config, 2, |zero, gpt| {
                    let (config, corpus) = suite::trained::config(3, |_| ());
                    let sampler = config.sampler(comm.rank());
                    let both = || -> anyhow::Result<(f64, Vec<u32>)> {
                        let loss = evaluate(gpt, &comm, &sampler, &corpus.validation, 4)?;
                        Ok((loss, generate(gpt, &[1, 2], 20, 0.8, Stream::new(1, "test"))?))
                    };
                    let by_units = zero.passes(both)?;
                    assert!(stage == Stage::Ddp || zero.memory().buffers == 0);
                    assert_eq!(zero.whole(both)?, by_units);
                    Ok(by_units)
                })
            })
            .unwrap()
        };
        let ddp = run(Stage::Ddp);
        assert!(ddp.iter().all(|rank| rank == &ddp[0]));
        assert_eq!(run(Stage::Two), ddp);
        assert_eq!(run(Stage::Three), ddp);
    }
}

/// Gradients on their way to their owners count, until the step has them all.
#[test]
fn a_step_that_has_not_ended_holds_buffers() {
    launch::run(2, |comm| {
        let zero = ZeroConfig {
            persistence_threshold: 0,
            ..ZeroConfig::new(Stage::Three, Precision::F32, ADAMW)
        };
        one_step(&comm, zero, 1, |zero, gpt| {
            let idle = zero.memory().buffers;
            let (config, corpus) = config(comm.size(), |_| ());
            let batch = config.sampler(comm.rank()).batch(&corpus.train, 1, 0);
            zero.begin()?;
            let loss = gpt.loss(&batch, &config.pass(1, &batch.sequences))?;
            zero.synchronise(true);
            loss.backward()?;
            assert!(zero.memory().buffers > idle);
            zero.finish()?;
            assert_eq!(zero.memory().buffers, idle);
            Ok(())
        })
    })
    .unwrap();
}

/// What stage 3 is for: no rank ever has more than a unit or two of the model.
#[test]
fn units_come_and_go() {
    let run = |prefetch_bucket: usize| {
        let config = |stage| ZeroConfig {
            prefetch_bucket,
            persistence_threshold: 0,
            ..ZeroConfig::new(stage, Precision::F32, ADAMW)
        };
        launch::run(2, |comm| {
            one_step(&comm, config(Stage::Three), 2, |zero, gpt| {
                let held = zero.memory();
                let names = zero.units().iter().map(|unit| unit.name.clone()).collect::<Vec<_>>();
                let events = zero.events();
                Ok((held, names, events, gpt.params.numel()))
            })
        })
        .unwrap()
        .remove(0)
    };
    let (held, names, events, numel) = run(0);
    assert_eq!(names, ["wte", "wpe", "blocks.0", "blocks.1", "lnf"]);
    let gathers = |events: &[shardlab::parallel::zero::Event]| {
        events
            .iter()
            .filter(|event| event.kind == EventKind::Gather)
            .map(|event| event.unit)
            .collect::<Vec<_>>()
    };
    // Forward; the head is the token table once more, and is still here when the backward pass
    // begins with it.
    let step = [0, 1, 2, 3, 4, 0, 4, 3, 2];
    assert_eq!(gathers(&events), [step, step].concat());
    // A block's life in each of the two steps.
    let life = |unit| {
        let mut life: Vec<_> = events
            .iter()
            .filter(|event| event.unit == unit && event.kind != EventKind::Wait)
            .collect();
        life.sort_by_key(|event| event.start);
        life.iter().map(|event| event.kind).collect::<Vec<_>>()
    };
    let once = [
        EventKind::Gather,
        EventKind::Forward,
        EventKind::Gather,
        EventKind::Backward,
        EventKind::ReduceScatter,
        EventKind::Step,
    ];
    assert_eq!(life(2), [once, once].concat());
    let largest = 12 * 32 * 32 + 2 * 32;
    let MemoryUsage { buffers, peak_buffers, .. } = held;
    assert_eq!(buffers, 0);
    // A unit whole, and as it came; its gradients whole, and cut.
    assert!(peak_buffers <= 4 * 4 * largest + 64, "{peak_buffers}");
    assert!(2 * largest < numel);

    let (_, _, events, _) = run(1 << 20);
    assert_eq!(gathers(&events).len(), 2 * step.len());
    // In the second step, which begins with the token table's third gather, a unit is on its way
    // before the one before it is dropped.
    let tokens = |(_, event): &(usize, &shardlab::parallel::zero::Event)| {
        event.kind == EventKind::Gather && event.unit == 0
    };
    let second = events.iter().enumerate().filter(tokens).nth(2).unwrap().0;
    let second = &events[second..];
    let gather = second
        .iter()
        .find(|event| event.kind == EventKind::Gather && event.unit == 3)
        .unwrap();
    let here = second
        .iter()
        .find(|event| event.kind == EventKind::Forward && event.unit == 2)
        .unwrap();
    assert!(gather.start < here.end, "{gather:?} {here:?}");
}

/// Passes in between do not make stage 3 forget what a training step asks for next; and a step of
/// two micro-steps has two forward and two backward passes.
#[test]
fn a_step_goes_its_way_again_after_other_passes() {
    let config = ZeroConfig {
        prefetch_bucket: 1 << 20,
        persistence_threshold: 0,
        ..ZeroConfig::new(Stage::Three, Precision::F32, ADAMW)
    };
    launch::run(2, |comm| {
        one_step(&comm, config.clone(), 2, |zero, gpt| {
            zero.passes(|| Ok(gpt.logits(&[1, 2, 3], 3, &Pass::evaluate())?))?;
            zero.events();
            take_step(&comm, zero, gpt, 2, 1)?;
            let events = zero.events();
            let first = |what, unit| {
                *events.iter().find(|event| (event.kind, event.unit) == (what, unit)).unwrap()
            };
            // The backward pass comes from block 1, which is unit 3, to block 0.
            let gathers =
                events.iter().filter(|event| (event.kind, event.unit) == (EventKind::Gather, 2));
            let gather = gathers.max_by_key(|event| event.start).unwrap();
            let before = first(EventKind::Backward, 3);
            assert!(gather.start < before.end, "{gather:?} {before:?}");

            take_step(&comm, zero, gpt, 3, 2)?;
            let mut life: Vec<_> =
                zero.events().into_iter().filter(|event| event.unit == 2).collect();
            life.sort_by_key(|event| event.start);
            let life: Vec<_> = life
                .iter()
                .map(|event| event.kind)
                .filter(|&what| what != EventKind::Wait)
                .collect();
            let micro_step = [
                EventKind::Gather,
                EventKind::Forward,
                EventKind::Gather,
                EventKind::Backward,
                EventKind::ReduceScatter,
            ];
            assert_eq!(life, [&micro_step[..], &micro_step, &[EventKind::Step]].concat());
            Ok(())
        })
    })
    .unwrap();
}

/// With prefetch, a gather has all the time in which the unit before is in use; without, it begins
/// when that is over.
#[test]
fn prefetch_gathers_while_the_unit_before_is_in_use() {
    use std::time::Duration;
    // What a unit takes, at least.
    const WORK: Duration = Duration::from_millis(3);
    for prefetch_bucket in [1000, 0] {
        let config = ZeroConfig {
            prefetch_bucket,
            persistence_threshold: 0,
            ..ZeroConfig::new(Stage::Three, Precision::F32, ADAMW)
        };
        let events = launch::run(2, |comm| {
            let stack = shardlab::model::LinearStack::new(&[8; 7])?;
            stack.params.allocate(0);
            let mut zero = Zero::new(&stack.params, &comm, config.clone())?;
            for _ in 0..2 {
                zero.begin()?;
                zero.events();
                let mut x = Activation::new(vec![1.0; 8], (1, 8))?;
                for layer in &stack.layers {
                    x = layer.forward(&x, &Pass::evaluate())?;
                    std::thread::sleep(WORK);
                }
                stack.loss(&[0.5; 8])?.backward()?;
                zero.finish()?;
                zero.step(1e-3, 1.0)?;
            }
            Ok(zero.events())
        })
        .unwrap()
        .remove(0);
        // The first of each unit in the second step: its first pass.
        let first = |what, unit| {
            *events.iter().find(|event| (event.kind, event.unit) == (what, unit)).unwrap()
        };
        for unit in 1..6 {
            let gather = first(EventKind::Gather, unit);
            let before = first(EventKind::Forward, unit - 1);
            if prefetch_bucket > 0 {
                assert!(gather.start + WORK <= before.end, "{gather:?} {before:?}");
            } else {
                assert!(gather.start >= before.end, "{gather:?} {before:?}");
            }
        }
    }
}

/// A step that goes another way than the one before: what was fetched ahead is not what is asked
/// for.
#[test]
fn the_order_may_change() {
    launch::run(2, |comm| {
        let zero = ZeroConfig {
            wrap: Wrap::Parameters,
            persistence_threshold: 0,
            ..ZeroConfig::new(Stage::Three, Precision::F32, ADAMW)
        };
        one_step(&comm, zero, 2, |zero, gpt| {
            let shape = gpt.shape;
            let ids: Vec<u32> = (0..shape.block as u32).collect();
            for passes in [1, 2, 1, 3] {
                zero.begin()?;
                for _ in 0..passes {
                    gpt.logits(&ids, ids.len(), &Pass::evaluate())?;
                }
                let x = gpt.logits(&ids, ids.len(), &Pass::training(None))?;
                x.sum_all()?.backward()?;
                zero.finish()?;
                zero.step(1e-3, 1.0)?;
            }
            Ok(())
        })
    })
    .unwrap();
}

/// Stages 0 and 1 average whole gradients, which must happen once per step. Stages 2 and 3 average
/// every micro-step.
#[test]
fn averaging_a_step_twice_is_an_error_in_stages_0_and_1() {
    for stage in Stage::ALL {
        let finished = launch::run(2, |comm| {
            let (config, corpus) = suite::trained::config(2, |_| ());
            let gpt = Gpt::new(&config.shape)?;
            gpt.params.allocate(0);
            let mut zero =
                Zero::new(&gpt.params, &comm, ZeroConfig::new(stage, Precision::F32, ADAMW))?;
            zero.begin()?;
            for micro in 0..2 {
                let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, micro);
                let loss = gpt.loss(&batch, &config.pass(0, &batch.sequences))?;
                zero.synchronise(true);
                loss.backward()?;
            }
            Ok(zero.finish().map_err(|error| format!("{error:#}")).err())
        });
        let error = finished.unwrap().remove(0).unwrap_or_default();
        assert_eq!(
            error.contains("averaged more than once"),
            stage < Stage::Two,
            "{stage:?}: {error}"
        );
    }
}

/// Also where the rest of its bucket is complete.
#[test]
fn a_parameter_without_a_gradient_is_an_error() {
    use shardlab::tensor::{Init, Params, linear};
    for stage in Stage::ALL {
        for shape in [&[3][..], &[2, 4]] {
            let error = launch::run(2, |comm| {
                let params = Params::new();
                let used = params.declare("used", &[2, 4], Init::Constant(1.0))?;
                params.declare("unused", shape, Init::Constant(1.0))?;
                params.allocate(0);
                let config = ZeroConfig::new(stage, Precision::F32, ADAMW);
                let mut zero = Zero::new(&params, &comm, config)?;
                zero.begin()?;
                zero.synchronise(true);
                let x = Var::ones((1, 4), DType::F32, &Device::Cpu)?;
                linear(x.as_tensor(), &used, Precision::F32)?.sum_all()?.backward()?;
                zero.finish()
            });
            let error = format!("{:#}", error.map(drop).unwrap_err());
            assert!(error.contains("unused got no gradient in this step"), "{stage:?}: {error}");
        }
    }
}

/// Stages 2 and 3 would lose the first gradients of a step that was not begun.
#[test]
fn a_step_that_was_not_begun_is_an_error_where_gradients_are_sharded() {
    for stage in [Stage::Two, Stage::Three] {
        let error = launch::run(2, |comm| {
            let model = LinearStack::new(&[4, 4])?;
            let config = ZeroConfig::new(stage, Precision::F32, ADAMW);
            let mut zero = Zero::init(&model.params, &comm, config, 0)?;
            zero.begin()?;
            model.loss(&[0.5; 4])?.backward()?;
            zero.finish()?;
            zero.step(1e-3, 1.0)?;
            zero.open()?;
            Ok(model.loss(&[0.5; 4])?.backward()?)
        });
        let error = format!("{:#}", error.map(drop).unwrap_err());
        assert!(
            error.contains("a backward pass came after its step had ended"),
            "{stage:?}: {error}"
        );
    }
}
