//! What ranks say that they hold against what the process has allocated.

use crate::alone;
use crate::process::{process_live, process_peak, reset_process_peak};
use crate::suite::trained::config;
use crate::suite::zero::ADAMW;
use shardlab::launch;
use shardlab::model::Gpt;
use shardlab::parallel::zero::{Offload, OffloadFolder, Stage, Zero, ZeroConfig};
use shardlab::tensor::Precision;

/// A stage whose parameters and gradients have one type.
fn all_in(precision: Precision, stage: Stage) -> ZeroConfig {
    ZeroConfig {
        reduce: precision,
        ..ZeroConfig::new(stage, precision, ADAMW)
    }
}

/// A model that begins from a seed is never whole anywhere, whatever is divided of it.
#[test]
fn no_rank_begins_with_more_than_it_will_hold() {
    if !alone("zero_memory::no_rank_begins_with_more_than_it_will_hold") {
        return;
    }
    let ranks = 4;
    let (config, _) = config(ranks, |config| (config.shape.embd, config.shape.heads) = (128, 4));
    for precision in [Precision::F32, Precision::Bf16] {
        for stage in Stage::ALL {
            let all = launch::run(ranks, |comm| {
                let gpt = Gpt::new(&config.shape)?;
                comm.barrier()?;
                let before = process_live();
                reset_process_peak();
                comm.barrier()?;
                let zero = Zero::init(&gpt.params, &comm, all_in(precision, stage), 1)?;
                comm.barrier()?;
                let peak = process_peak() - before;
                comm.barrier()?;
                Ok((
                    peak,
                    zero.memory().total() as isize,
                    gpt.params.specs().iter().map(|spec| spec.numel()).max(),
                ))
            })
            .unwrap();
            let held: isize = all.iter().map(|(_, held, _)| held).sum();
            // A parameter that is stored in bf16 is made in f32, one at a time; a few kilobytes for
            // names and messages.
            let largest =
                all[0].2.unwrap_or_default() * if precision == Precision::Bf16 { 4 } else { 0 };
            let bound = held + (ranks * largest) as isize + 200_000;
            let what = format!("stage {}, {}", stage.number(), precision.name());
            println!("{what}: {held} bytes held, {} at the peak, at most {bound}", all[0].0);
            assert!(all[0].0 <= bound, "{what}: {} bytes at the peak, {held} held", all[0].0);
        }
    }
}

/// In files, a rank's share takes no memory but a window.
#[test]
fn what_is_offloaded_is_not_in_memory() {
    if !alone("zero_memory::what_is_offloaded_is_not_in_memory") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ranks = 2;
    // So wide that names and the like are far less than a hundredth of the gradients.
    let (config, corpus) =
        config(ranks, |config| (config.shape.embd, config.shape.heads) = (256, 4));
    let all = launch::run(ranks, |comm| {
        let run = || -> anyhow::Result<(Gpt, Zero)> {
            let gpt = Gpt::new(&config.shape)?;
            let offload =
                Some(Offload::Files(OffloadFolder { dir: dir.path().to_path_buf(), window: 1000 }));
            let zero = ZeroConfig { offload, ..all_in(Precision::Bf16, Stage::Three) };
            let mut zero = Zero::init(&gpt.params, &comm, zero, 1)?;
            zero.begin()?;
            let batch = config.sampler(comm.rank()).batch(&corpus.train, 0, 0);
            gpt.loss(&batch, &config.pass(0, &batch.sequences))?.backward()?;
            zero.finish()?;
            zero.step(1e-3, 1.0)?;
            zero.events();
            Ok((gpt, zero))
        };
        drop(run()?);
        comm.barrier()?;
        let before = process_live();
        comm.barrier()?;
        let (gpt, zero) = run()?;
        comm.barrier()?;
        let live = process_live() - before;
        comm.barrier()?;
        Ok((live, zero.memory(), gpt.params.numel()))
    })
    .unwrap();
    let live = all[0].0;
    let held = all[0].1;
    let numel = all[0].2;
    println!("{live} bytes live, {held:?}, {numel} parameters");
    assert_eq!((held.parameters, held.optimizer), (0, 0));
    assert!(
        held.parameters_offloaded >= numel && held.optimizer_offloaded >= 6 * numel,
        "{held:?}"
    );
    // Gradients of both ranks, 2 bytes a parameter.
    let apart = live as f64 / (2 * numel) as f64 - 1.0;
    assert!(apart.abs() < 0.03, "{live} bytes live, {numel} parameters");
}

#[test]
fn ranks_hold_what_they_say() {
    if !alone("zero_memory::ranks_hold_what_they_say") {
        return;
    }
    for ranks in [1, 2, 4] {
        let (config, corpus) =
            config(ranks, |config| (config.shape.embd, config.shape.heads) = (128, 4));
        for precision in [Precision::F32, Precision::Bf16] {
            for stage in Stage::ALL {
                // gemm's packing buffers, the corpus and what else a first step leaves are there
                // before.
                let measured = launch::run(ranks, |comm| {
                    let step = |gpt: &Gpt, zero: &mut Zero, step: usize| -> anyhow::Result<()> {
                        let batch = config.sampler(comm.rank()).batch(&corpus.train, step, 0);
                        zero.begin()?;
                        gpt.loss(&batch, &config.pass(step, &batch.sequences))?.backward()?;
                        zero.finish()?;
                        zero.step(1e-3, 1.0).map(drop)
                    };
                    let make = || -> anyhow::Result<(Gpt, Zero)> {
                        let gpt = Gpt::new(&config.shape)?;
                        gpt.params.allocate(0);
                        let zero = Zero::new(&gpt.params, &comm, all_in(precision, stage))?;
                        Ok((gpt, zero))
                    };
                    let (gpt, mut zero) = make()?;
                    step(&gpt, &mut zero, 0)?;
                    drop((gpt, zero));
                    comm.barrier()?;
                    let before = process_live();
                    comm.barrier()?;
                    let (gpt, mut zero) = make()?;
                    (0..2).try_for_each(|i| step(&gpt, &mut zero, i))?;
                    zero.events();
                    comm.barrier()?;
                    let live = process_live() - before;
                    let held = zero.memory();
                    comm.barrier()?;
                    Ok((live, held, gpt.params.numel()))
                })
                .unwrap();
                let what = format!("stage {}, {}, {ranks} ranks", stage.number(), precision.name());
                let said: usize = measured.iter().map(|(_, held, _)| held.total()).sum();
                let ratio = measured[0].0 as f64 / said as f64;
                println!("{what}: {said} bytes said, {} live, {:?}", measured[0].0, measured[0].1);
                assert!(
                    (0.99..1.01).contains(&ratio),
                    "{what}: {said} bytes said, {} live",
                    measured[0].0
                );

                // And it is what the paper's formula says, without what is here for a moment.
                let psi = measured[0].2 as f64;
                let n = ranks as f64;
                let bytes = precision.bytes() as f64;
                let divided = |from: Stage| if stage >= from { n } else { 1.0 };
                let state = if precision == Precision::Bf16 { 12.0 } else { 8.0 };
                for (_, held, _) in &measured {
                    for (name, is, formula) in [
                        ("parameters", held.parameters, bytes * psi / divided(Stage::Three)),
                        ("gradients", held.gradients, bytes * psi / divided(Stage::Two)),
                        ("optimizer", held.optimizer, state * psi / divided(Stage::One)),
                    ] {
                        assert!(
                            (is as f64 / formula - 1.0).abs() < 0.01,
                            "{what}: {name} {is}, formula {formula}"
                        );
                    }
                }
            }
        }
    }
}
