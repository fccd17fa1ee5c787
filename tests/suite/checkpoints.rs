//! A training that continues from a checkpoint ends with the bits of one that was not interrupted.

use super::bad_steps::Training;
pub use super::trained::checkpoints;
use super::trained::config;
use labs::lab08::skipping::{Counters, LossScaler, Ranges, ScalerConfig, ScalerRule, state_bits};
use shardlab::checkpoint::{Checkpoints, MANIFEST, Resume, rank_file};
use shardlab::comm::Comm;
use shardlab::mesh::{Axis, Coordinates};
use shardlab::parallel::pipeline::Schedule;
use shardlab::parallel::zero::{Offload, OffloadFolder, Stage};
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{self, Config};
use std::path::Path;

/// A strategy that is told from others by its stage.
pub fn of(zero: Stage) -> Strategy {
    Strategy { zero, ..Strategy::SINGLE }
}

/// A loss scale that is infinite in f32, so that the first step is refused. The second step has
/// 2^16.
fn overflowing_once() -> LossScaler {
    LossScaler::new(ScalerConfig {
        initial: 2f64.powi(130),
        min: 2f64.powi(16),
        backoff: 0.0,
        hysteresis: 1,
        window: 2,
        ..ScalerRule::DeepSpeed0171.defaults()
    })
}

/// Saves a training.
pub fn save(all: &Checkpoints, training: &mut Training) -> anyhow::Result<std::path::PathBuf> {
    training.start_save(all)?.finish()
}

/// Puts a saved state into a training that has just begun. Returns the files that could not be
/// used, or `None` if it begins at the start.
pub fn resume(
    all: &Checkpoints,
    which: &Resume,
    training: &mut Training,
) -> anyhow::Result<Option<Vec<String>>> {
    let Some(resumed) = training.resume(all, which)? else {
        return Ok(None);
    };
    assert_eq!(training.counters.global_steps, resumed.step);
    Ok(Some(resumed.rejected.into_iter().map(|error| error.what).collect()))
}

/// The checkpoints in `dir`, which rank 0 reads for all: other ranks look for them in a folder that
/// does not exist.
pub fn readers(comm: &Comm, config: &Config, dir: &Path, strategy: Strategy) -> Checkpoints {
    let own = if comm.rank() == 0 {
        dir.to_path_buf()
    } else {
        dir.join("nowhere")
    };
    let mut all = checkpoints(comm, config, &own, strategy);
    all.rank0_reads = true;
    all
}

/// Rank 0 reads a checkpoint, and all ranks have the bits that they have if each reads its own
/// file, also after more steps. Where all files are the same, rank 0 reads one. Every stage, both
/// types. `dir` is a folder that all ranks reach.
pub fn rank_0_reads_for_all(comm: &Comm, dir: &Path) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |_| ());
    let first = comm.rank() == 0;
    let others = comm.size() as u64 - 1;
    for (stage, precision) in Stage::ALL
        .into_iter()
        .flat_map(|stage| [Precision::F32, Precision::Bf16].map(|precision| (stage, precision)))
    {
        let what = format!("{stage:?}, {}", precision.name());
        let begin = || {
            let zero = ZeroConfig::new(stage, precision, config.adamw);
            Training::new(comm, &config, &corpus.train, zero, false)
        };
        let dir = dir.join(&what);
        let all = checkpoints(comm, &config, &dir, of(stage));
        let mut saved = begin()?;
        saved.until(2)?;
        let folder = save(&all, &mut saved)?;
        let mut each = begin()?;
        resume(&all, &Resume::Auto, &mut each)?.expect("a checkpoint");

        let group = comm.split(0, comm.rank() as i64)?;
        let readers = readers(&group, &config, &dir, of(stage));
        let mut received = begin()?;
        let before = group.traffic().bytes;
        let rejected = resume(&readers, &Resume::Auto, &mut received)?;
        let sent = group.traffic().bytes - before;
        assert_eq!(rejected, Some(Vec::new()), "{what}");
        assert!(
            received.state()? == saved.state()? && received.state()? == each.state()?,
            "{what}: the state that rank {} got is not the one that was saved",
            comm.rank()
        );
        assert_eq!(received.counters, saved.counters, "{what}");

        // The bytes that rank 0 reads and sends: one file for all if each has the whole state, and
        // each rank's file otherwise.
        let size = |name: &str| std::fs::metadata(folder.join(name)).unwrap().len();
        let files: Vec<u64> = (0..comm.size()).map(|rank| size(&rank_file(rank))).collect();
        let (read, least) = if stage == Stage::Ddp {
            (files[0], others * files[0])
        } else {
            (files.iter().sum(), files[1..].iter().sum())
        };
        let manifest = size(MANIFEST);
        let read = if first { read + manifest } else { 0 };
        assert_eq!(readers.bytes_read.get() as u64, read, "{what}");
        let least = if first { least + others * manifest } else { 0 };
        assert!(
            (least..least + 1000).contains(&sent),
            "{what}: rank {} sent {sent} bytes, of which {least} are needed",
            comm.rank()
        );

        for training in [&mut received, &mut each, &mut saved] {
            training.until(4)?;
        }
        assert!(
            received.state()? == saved.state()? && received.state()? == each.state()?,
            "{what}: state differs after more steps"
        );
        assert_eq!(received.steps, saved.steps[2..], "{what}");
    }
    Ok(())
}

/// A second job in one folder: every rank gets the same error, which names the process that has the
/// folder, and nothing changes.
pub fn one_job_at_a_time_saves_to_a_folder(comm: &Comm, dir: &Path) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |_| ());
    let zero = ZeroConfig::new(Stage::One, Precision::F32, config.adamw);
    let mut training = Training::new(comm, &config, &corpus.train, zero, false)?;
    let first = checkpoints(comm, &config, dir, Strategy::SINGLE);
    save(&first, &mut training)?;
    let second = checkpoints(comm, &config, dir, Strategy::SINGLE);
    let error = second.claim().expect_err("the folder is taken").to_string();
    let owner = std::fs::read_to_string(dir.join("writer.lock"))?;
    let expected = format!("{} is being written by {owner}", dir.display());
    assert!(error.starts_with(&expected), "rank {}: {error}", comm.rank());
    assert!(error.contains("help: wait until it has ended"), "rank {}: {error}", comm.rank());
    // Who reads needs no lock. The first job goes on.
    assert!(resume(&second, &Resume::Auto, &mut training)?.is_some());
    save(&first, &mut training)?;
    drop(first);
    comm.barrier()?;
    second.claim()?;
    comm.barrier()?;
    drop(second);
    comm.barrier()?;
    assert!(!dir.join("writer.lock").exists(), "the lock has outlived its owner");
    Ok(())
}

/// Every stage, both types, state in memory and in files: with accumulation, dropout, clipping, a
/// loss scale whose first step overflows, and a range to skip, in whose middle the training is
/// interrupted. So every counter is a different number there. `dir` is a folder that all ranks
/// reach.
pub fn resumed_training_is_uninterrupted_training(comm: &Comm, dir: &Path) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |config| {
        (config.grad_accum, config.dropout, config.clip) = (2, 0.1, 0.5);
    });
    for stage in Stage::ALL {
        for (precision, offload) in [(Precision::F32, false), (Precision::Bf16, true)] {
            let what = format!("{stage:?}, {}", precision.name());
            let begin = || -> anyhow::Result<_> {
                let offload = offload.then(|| {
                    Offload::Files(OffloadFolder {
                        window: 1000,
                        ..OffloadFolder::to(dir.to_path_buf())
                    })
                });
                let zero =
                    ZeroConfig { offload, ..ZeroConfig::new(stage, precision, config.adamw) };
                let mut training = Training::new(comm, &config, &corpus.train, zero, false)?;
                training.ranges = Ranges::parse(&[3, 4])?;
                training.scaler = Some(overflowing_once());
                Ok(training)
            };
            let all = checkpoints(comm, &config, &dir.join(&what), of(stage));
            let mut uninterrupted = begin()?;
            uninterrupted.until(6)?;

            let mut first = begin()?;
            assert!(
                resume(&all, &Resume::Auto, &mut first)?.is_none(),
                "{what}: nothing is there yet"
            );
            first.until(3)?;
            // The training goes on while the copy is written.
            let writing = first.start_save(&all)?;
            let Counters { global_steps, schedule, .. } = first.counters;
            assert_eq!((global_steps, schedule, first.training.zero.steps()), (3, 2, 1));
            first.step()?;
            let folder = writing.finish()?;
            drop(first);

            for which in [Resume::Auto, Resume::Path(folder)] {
                let mut second = begin()?;
                assert_eq!(resume(&all, &which, &mut second)?, Some(Vec::new()), "{what}");
                second.until(6)?;
                assert!(second.state()? == uninterrupted.state()?, "{what}: state differs");
                assert_eq!(second.steps, uninterrupted.steps[3..], "{what}");
                assert_eq!(
                    (second.counters, &second.scaler),
                    (uninterrupted.counters, &uninterrupted.scaler),
                    "{what}"
                );
            }
        }
    }
    Ok(())
}

/// The same on a mesh of data x pipeline x tensor ranks.
pub fn resumed_pipelines_are_uninterrupted(
    world: &Comm,
    sizes: Coordinates,
    dir: &Path,
) -> anyhow::Result<()> {
    let (config, corpus) = config(sizes.data, |config| {
        (config.dropout, config.clip, config.grad_accum, config.batch) = (0.1, 0.5, 4, 1);
        (config.shape.layers, config.shape.heads) = (2 * sizes.pipeline, 4);
    });
    let chunks = if sizes.pipeline > 1 { 2 } else { 1 };
    let schedule = (chunks > 1).then_some(Schedule::Interleaved { group: 4 });
    for stage in [Stage::Ddp, Stage::One] {
        let strategy = Strategy { chunks, schedule, ..super::strategy(sizes, stage) };
        let begin = || train::Training::new(&config, &strategy, world);
        let all = checkpoints(world, &config, &dir.join(format!("{stage:?}")), strategy);
        let train = |training: &mut train::Training,
                     steps: std::ops::Range<usize>|
         -> anyhow::Result<Vec<u64>> {
            let step = |step| Ok(training.step(&corpus.train, step)?.loss.to_bits());
            steps.map(step).collect()
        };
        let mut uninterrupted = begin()?;
        let losses = train(&mut uninterrupted, 0..4)?;
        let mut first = begin()?;
        train(&mut first, 0..2)?;
        all.save(2, &mut first.zero, &2usize)?;
        drop(first);
        let mut second = begin()?;
        let resumed = all.resume::<usize>(&Resume::Auto, &mut second.zero)?.expect("a checkpoint");
        assert_eq!(train(&mut second, resumed.record..4)?, losses[2..], "{strategy}");
        assert!(
            state_bits(&mut second.zero)? == state_bits(&mut uninterrupted.zero)?,
            "{strategy}: rank {}",
            second.mesh.group(Axis::Data).rank()
        );
    }
    Ok(())
}
