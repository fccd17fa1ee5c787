//! Checkpoints: what continues from them, what is refused, and what a kill, a full disk or a
//! flipped bit leaves.

use crate::suite::bad_steps::Training;
use crate::suite::checkpoints as suite;
use crate::suite::trained::config;
use shardlab::checkpoint::{Checkpoints, Job, MANIFEST, Resume};
use shardlab::comm::Comm;
use shardlab::data::{Corpus, Sampling};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::mesh::Coordinates;
use shardlab::model::{Auxiliary, Scope};
use shardlab::optim::{MuonConfig, MuonScale, NewtonSchulz};
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::plan::Experts;
use shardlab::tensor::Precision;
use shardlab::train::{AdamWConfig, Config, LrSchedule};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn coordinates(data: usize, pipeline: usize, tensor: usize) -> Coordinates {
    Coordinates { data, pipeline, tensor }
}

#[test]
fn resumed_training_is_uninterrupted_training() {
    for ranks in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        launch::run(ranks, |comm| {
            suite::resumed_training_is_uninterrupted_training(&comm, dir.path())
        })
        .unwrap();
    }
}

#[test]
fn rank_0_reads_for_all() {
    for ranks in [1, 2, 3] {
        let dir = tempfile::tempdir().unwrap();
        launch::run(ranks, |comm| suite::rank_0_reads_for_all(&comm, dir.path())).unwrap();
    }
}

#[test]
fn one_job_at_a_time_saves_to_a_folder() {
    for ranks in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        launch::run(ranks, |comm| suite::one_job_at_a_time_saves_to_a_folder(&comm, dir.path()))
            .unwrap();
    }
}

#[test]
fn resumed_pipelines_are_uninterrupted() {
    for sizes in [coordinates(2, 2, 1), coordinates(1, 2, 2), coordinates(2, 1, 2)] {
        let dir = tempfile::tempdir().unwrap();
        launch::run(4, |comm| suite::resumed_pipelines_are_uninterrupted(&comm, sizes, dir.path()))
            .unwrap();
    }
}

const STRATEGY: Strategy = Strategy { zero: Stage::One, ..Strategy::SINGLE };

fn begin<'a>(
    comm: &'a Comm,
    config: &'a Config,
    corpus: &'a Corpus,
) -> anyhow::Result<(Training<'a>, Vec<u32>)> {
    let zero = ZeroConfig::new(Stage::One, Precision::F32, config.adamw);
    let mut training = Training::new(comm, config, &corpus.train, zero, false)?;
    let state = training.state()?;
    Ok((training, state))
}

/// Two ranks train, and save after each step; `body` then gets the checkpoints, and each rank's
/// state after each of them.
fn after_saves(
    steps: usize,
    dir: &Path,
    body: impl Fn(&Checkpoints, &[Vec<u32>]) -> anyhow::Result<()> + Sync,
) {
    let (config, corpus) = config(2, |_| ());
    launch::run(2, |comm| {
        let (mut training, initial) = begin(&comm, &config, &corpus)?;
        let all = suite::checkpoints(&comm, &config, dir, STRATEGY);
        let mut states = vec![initial];
        for _ in 0..steps {
            training.step()?;
            suite::save(&all, &mut training)?;
            states.push(training.state()?);
        }
        comm.barrier()?;
        body(&all, &states)?;
        Ok(comm.barrier()?)
    })
    .unwrap();
}

/// The step after which a training continues, the checkpoints that it could not use, and its state.
type Resumed = (usize, Vec<String>, Vec<u32>);

/// Tries to resume a training that has just begun. A refused checkpoint must not change its state.
fn try_resume(all: &Checkpoints, which: &Resume) -> anyhow::Result<Result<Resumed, BadInput>> {
    let (mut config, corpus) = config(2, |_| ());
    (config.shape, config.ranks) = (all.job.shape, all.comm.size());
    let (mut training, initial) = begin(&all.comm, &config, &corpus)?;
    match suite::resume(all, which, &mut training) {
        Ok(None) => Ok(Ok((0, Vec::new(), training.state()?))),
        Ok(Some(rejected)) => Ok(Ok((training.counters.global_steps, rejected, training.state()?))),
        Err(error) => {
            assert!(training.state()? == initial, "a refused checkpoint has changed the state");
            Ok(Err(error.downcast::<BadInput>()?))
        }
    }
}

/// What is in a folder, but for the lock of the job that saves to it.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "writer.lock");
    names.sort();
    names
}

#[test]
fn the_newest_are_kept_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    after_saves(5, dir.path(), |all, states| {
        if all.comm.rank() == 0 {
            assert_eq!(
                names(&all.dir),
                ["latest", "save-0003-step-3", "save-0004-step-4", "save-0005-step-5"]
            );
            assert_eq!(std::fs::read_to_string(all.dir.join("latest"))?, "save-0005-step-5");
            let files = names(&all.dir.join("save-0005-step-5"));
            assert_eq!(
                files,
                [MANIFEST, "manifest.json.sha256", "rank-000.safetensors", "rank-001.safetensors"]
            );
            // What a kill leaves behind is no checkpoint, and the next save removes it.
            std::fs::create_dir(all.dir.join(".save-0006.partial"))?;
            std::fs::write(all.dir.join(".save-0006.partial/rank-000.safetensors"), "half")?;
        }
        all.comm.barrier()?;
        let (step, rejected, state) = try_resume(all, &Resume::Auto)??;
        assert!((step, rejected.len()) == (5, 0) && state == states[5]);
        assert_eq!(try_resume(all, &Resume::None)??.0, 0);

        // A run that is set back to step 3 saves step 4 once more: under a new number, as the
        // newest.
        let (config, corpus) = config(2, |_| ());
        let (mut training, _) = begin(&all.comm, &config, &corpus)?;
        suite::resume(all, &Resume::Path(all.dir.join("save-0003-step-3")), &mut training)?;
        training.step()?;
        suite::save(all, &mut training)?;
        if all.comm.rank() == 0 {
            assert_eq!(
                names(&all.dir),
                ["latest", "save-0004-step-4", "save-0005-step-5", "save-0006-step-4"]
            );
        }
        assert_eq!(try_resume(all, &Resume::Auto)??.0, 4);

        // `latest` decides, also if a person has written it.
        all.comm.barrier()?;
        if all.comm.rank() == 0 {
            std::fs::write(all.dir.join("latest"), "save-0005-step-5\n")?;
        }
        all.comm.barrier()?;
        assert_eq!(try_resume(all, &Resume::Auto)??.0, 5);
        Ok(())
    });
}

/// A second run in the same folder begins at step 1, and keeps one checkpoint. Those of the first
/// run are still there, and the first run can continue.
#[test]
fn checkpoints_of_other_runs_stay() {
    let dir = tempfile::tempdir().unwrap();
    after_saves(2, dir.path(), |_, _| Ok(()));
    let (config, corpus) = config(2, |_| ());
    launch::run(2, |comm| {
        let (mut training, _) = begin(&comm, &config, &corpus)?;
        let mut all = suite::checkpoints(&comm, &config, dir.path(), STRATEGY);
        all.keep = 1;
        for _ in 0..2 {
            training.step()?;
            suite::save(&all, &mut training)?;
        }
        assert_eq!(
            names(dir.path()),
            ["latest", "save-0001-step-1", "save-0002-step-2", "save-0004-step-2"]
        );
        Ok(comm.barrier()?)
    })
    .unwrap();
    // The first run continues from its own, and removes only its own.
    launch::run(2, |comm| {
        let (mut training, _) = begin(&comm, &config, &corpus)?;
        let mut all = suite::checkpoints(&comm, &config, dir.path(), STRATEGY);
        all.keep = 1;
        suite::resume(&all, &Resume::Path(dir.path().join("save-0002-step-2")), &mut training)?;
        training.step()?;
        suite::save(&all, &mut training)?;
        assert_eq!(names(dir.path()), ["latest", "save-0004-step-2", "save-0005-step-3"]);
        Ok(comm.barrier()?)
    })
    .unwrap();
}

/// What a run's steps depend on is compared at a resume: each field of its configuration, and each
/// setting that this gives.
#[test]
fn no_setting_is_left_out_of_the_comparison() {
    let (original, corpus) = config(2, |config| {
        let experts = Experts { count: 2, top_k: 1, normalized: false, ..Experts::default() };
        config.shape.experts = Some(Experts { ffn: 8, ..experts });
        config.muon = Some(MuonConfig::default());
    });
    // A new field does not compile here. It needs an edit below, or a reason: the model's shape,
    // the seed and the number of ranks are the job's own, more steps are the same run, and no flag
    // changes epsilon.
    let Config {
        ranks: _,
        shape: _,
        batch: _,
        grad_accum: _,
        sampling: _,
        steps: _,
        schedule: LrSchedule { lr: _, min_lr: _, warmup: _, decay_steps: _ },
        adamw:
            AdamWConfig {
                beta1: _,
                beta2: _,
                epsilon: _,
                weight_decay: _,
                bias_rate: _,
            },
        // Its weight decay is AdamW's, and nobody chooses to leave Nesterov's look ahead out.
        muon:
            Some(MuonConfig {
                momentum: _,
                nesterov: _,
                newton_schulz: _,
                scale: _,
                split_qkv: _,
                weight_decay: _,
            }),
        clip: _,
        dropout: _,
        auxiliary: Auxiliary { coefficient: _, scope: _, over_ranks: _, z: _ },
        precision: _,
        reduce: _,
        seed: _,
    } = original
    else {
        panic!("it has Muon")
    };
    type Edit = fn(&mut Config);
    fn muon(config: &mut Config, edit: fn(&mut MuonConfig)) {
        edit(config.muon.as_mut().unwrap());
    }
    let edits: [(Edit, &[&str]); 25] = [
        (|c| c.sampling = Sampling::Seeds, &["sampler"]),
        (|c| c.batch += 1, &["batch", "global-batch"]),
        (|c| c.grad_accum += 1, &["global-batch", "grad-accum"]),
        (|c| c.ranks += 1, &["global-batch"]),
        (|c| c.schedule.lr *= 2.0, &["lr"]),
        (|c| c.schedule.min_lr *= 2.0, &["min-lr"]),
        (|c| c.schedule.warmup += 1, &["warmup"]),
        (|c| c.schedule.decay_steps += 1, &["lr-decay-steps"]),
        (|c| c.adamw.weight_decay *= 2.0, &["weight-decay"]),
        (|c| c.adamw.bias_rate *= 2.0, &["bias-rate"]),
        (|c| c.adamw.beta1 = 0.5, &["beta1"]),
        (|c| c.adamw.beta2 = 0.5, &["beta2"]),
        (
            |c| c.muon = None,
            &["muon-momentum", "muon-qkv", "muon-scale", "muon-steps", "optimizer"],
        ),
        (|c| muon(c, |muon| muon.momentum = 0.5), &["muon-momentum"]),
        (|c| muon(c, |muon| muon.split_qkv = false), &["muon-qkv"]),
        (|c| muon(c, |muon| muon.scale = MuonScale::Original), &["muon-scale"]),
        (
            |c| muon(c, |muon| muon.newton_schulz = NewtonSchulz::DeepSeekV4),
            &["muon-steps"],
        ),
        (|c| c.clip *= 2.0, &["clip"]),
        (|c| c.dropout += 0.1, &["dropout"]),
        (|c| c.auxiliary.coefficient += 0.1, &["aux-loss"]),
        (|c| c.auxiliary.scope = Scope::Model, &["aux-scope"]),
        (|c| c.auxiliary.over_ranks = true, &["aux-over-ranks"]),
        (|c| c.auxiliary.z += 0.1, &["z-loss"]),
        (|c| c.precision = Precision::Bf16, &["dtype"]),
        (|c| c.reduce = Precision::Bf16, &["reduce-dtype"]),
    ];
    let settings = original.settings(&corpus.train);
    let mut compared = BTreeSet::from(["data"]);
    for (edit, expected) in edits {
        let mut edited = original.clone();
        edit(&mut edited);
        let edited = edited.settings(&corpus.train);
        let mut changed: Vec<&str> = settings.keys().map(String::as_str).collect();
        changed.retain(|name| Some(&settings[*name]) != edited.get(*name)); // Muon's may be gone
        assert_eq!(changed, expected);
        compared.extend(changed);
    }
    assert!(settings["data"] != original.settings(&corpus.validation)["data"]);
    assert!(settings.keys().eq(compared), "{settings:?}");

    let dir = tempfile::tempdir().unwrap();
    after_saves(1, dir.path(), |all, _| {
        for name in all.job.settings.keys() {
            let mut job = all.job.clone();
            job.settings.insert(name.clone(), "changed".into());
            let other = Checkpoints::new(&all.dir, 1, job, &all.comm);
            let error = try_resume(&other, &Resume::Auto)?.unwrap_err();
            let told = match name.as_str() {
                "data" => "the text with SHA-256 changed.. instead of ".to_string(),
                name => format!("`{}` changed instead of ", name.replace('-', "_")),
            };
            let expected = format!(" has other settings than this run: {told}");
            assert!(error.what.contains(&expected), "{error}");
        }
        Ok(())
    });
}

/// A different text, batch, learning rate or schedule is no different run, but nobody changes it by
/// accident.
#[test]
fn other_settings_are_told_and_need_a_flag() {
    let dir = tempfile::tempdir().unwrap();
    after_saves(1, dir.path(), |all, states| {
        let newest = all.dir.join("save-0001-step-1");
        let other = |edit: &dyn Fn(&mut Config), anyway: bool| -> anyhow::Result<Checkpoints> {
            let (mut config, corpus) = config(2, |_| ());
            edit(&mut config);
            let job = Job { settings: config.settings(&corpus.train), ..all.job.clone() };
            let mut other = Checkpoints::new(&all.dir, 1, job, &all.comm);
            other.anyway = anyway;
            Ok(other)
        };
        type Edit<'a> = &'a dyn Fn(&mut Config);
        let edits: [(Edit, &str, &str); 4] = [
            (
                &|config| config.schedule.lr = 0.1,
                "`lr` 0.1 instead of 0.001",
                "the settings of the run that saved it; to",
            ),
            (
                &|config| config.schedule.warmup = 7,
                "`warmup` 7 instead of 5",
                "the settings of the run that saved it; to",
            ),
            (
                &|config| config.clip = 0.5,
                "`clip` 0.5 instead of 1.0",
                "the settings of the run that saved it; to",
            ),
            (
                &|config| config.schedule.decay_steps = 500,
                "`lr_decay_steps` 500 instead of 300",
                "(`lr_decay_steps` 300: without it the cosine ends with `steps`)",
            ),
        ];
        for (edit, expected, help) in edits {
            let error =
                try_resume(&other(edit, false)?, &Resume::Path(newest.clone()))?.unwrap_err();
            let what = format!("/manifest.json has other settings than this run: {expected}");
            assert!(error.what.ends_with(&what), "{error}");
            assert!(error.help.contains(help) && error.help.contains("`resume_anyway`"), "{error}");
            let error = try_resume(&other(edit, false)?, &Resume::Auto)?.unwrap_err();
            assert!(
                error.what.starts_with("no checkpoint in ") && error.what.ends_with(&what),
                "{error}"
            );
            assert!(error.help.contains("`resume_anyway`; `resume` none starts again"), "{error}");
            let (step, rejected, state) = try_resume(&other(edit, true)?, &Resume::Auto)??;
            assert!((step, rejected.len()) == (1, 0) && state == states[1]);
        }
        // A batch has three numbers, and a text has a hash.
        let error =
            try_resume(&other(&|config| config.batch = 5, false)?, &Resume::Auto)?.unwrap_err();
        assert!(
            error.what.ends_with(": `batch` 5 instead of 3, `global_batch` 10 instead of 6"),
            "{error}"
        );
        // Neither is in the state.
        let edits: [Edit; 2] = [&|config| config.batch = 5, &|config| config.grad_accum = 2];
        for edit in edits {
            let error = try_resume(&other(edit, false)?, &Resume::Auto)?.unwrap_err();
            assert!(error.help.contains("`resume_anyway`"), "{error}");
            let (step, _, state) = try_resume(&other(edit, true)?, &Resume::Auto)??;
            assert!(step == 1 && state == states[1]);
        }
        let mut text = other(&|_| (), false)?;
        text.job.settings.insert("data".to_string(), "0123456789".into());
        let error = try_resume(&text, &Resume::Auto)?.unwrap_err();
        assert!(error.what.contains(": the text with SHA-256 01234567.. instead of "), "{error}");
        Ok(())
    });
    // The change is recorded, and told by every later checkpoint.
    let (config, corpus) = config(2, |config| config.schedule.lr = 0.1);
    launch::run(2, |comm| {
        for (anyway, step) in [(true, 1), (false, 2)] {
            let mut all = suite::checkpoints(&comm, &config, dir.path(), STRATEGY);
            all.anyway = anyway;
            let (mut training, _) = begin(&comm, &config, &corpus)?;
            let resumed = training.resume(&all, &Resume::Auto)?.expect("a checkpoint");
            assert_eq!(resumed.step, step);
            assert_eq!(resumed.changes, ["from step 2 on `lr` 0.1 instead of 0.001"]);
            all.keep = 1;
            training.step()?;
            suite::save(&all, &mut training)?;
            // It is a new run, which goes on when it is resumed. The old one's checkpoint stays.
            let own = if step == 1 {
                "save-0002-step-2"
            } else {
                "save-0003-step-3"
            };
            assert_eq!(names(dir.path()), ["latest", "save-0001-step-1", own]);
            comm.barrier()?;
        }
        Ok(())
    })
    .unwrap();
}

/// Ways to damage the newest checkpoint: each is found, named, and `auto` takes the one before,
/// with either way to read.
#[test]
fn damage_is_found_and_the_next_good_checkpoint_is_taken() {
    fn flip(path: PathBuf, at: impl Fn(usize) -> usize) {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at(bytes.len());
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    type Damage<'a> = &'a (dyn Fn(&Path) + Sync);
    let damages: [(&str, &str, Damage); 7] = [
        ("rank-001.safetensors is damaged: it is truncated", "the end", &|folder| {
            let path = folder.join("rank-001.safetensors");
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("rank-000.safetensors is damaged: its SHA-256", "the last bit", &|folder| {
            flip(folder.join("rank-000.safetensors"), |len| len - 1);
        }),
        (
            "rank-001.safetensors is damaged: its SHA-256",
            "a bit in the middle",
            &|folder| {
                flip(folder.join("rank-001.safetensors"), |len| len / 2);
            },
        ),
        ("manifest.json is damaged: its SHA-256", "a bit of the manifest", &|folder| {
            flip(folder.join(MANIFEST), |len| len / 2);
        }),
        ("manifest.json is damaged: its SHA-256", "a bit of its checksum", &|folder| {
            flip(folder.join("manifest.json.sha256"), |_| 3);
        }),
        ("cannot read ", "no file", &|folder| {
            std::fs::remove_file(folder.join("rank-001.safetensors")).unwrap()
        }),
        ("cannot read ", "no manifest", &|folder| {
            std::fs::remove_file(folder.join(MANIFEST)).unwrap()
        }),
    ];
    let ways = damages
        .iter()
        .flat_map(|damage| [false, true].map(|rank0_reads| (damage, rank0_reads)));
    for ((expected, what, damage), rank0_reads) in ways {
        let dir = tempfile::tempdir().unwrap();
        after_saves(2, dir.path(), |all, states| {
            let (config, _) = config(2, |_| ());
            let readers = suite::readers(&all.comm, &config, dir.path(), STRATEGY);
            let all = if rank0_reads { &readers } else { all };
            let newest = all.dir.join("save-0002-step-2");
            if all.comm.rank() == 0 {
                damage(&newest);
            }
            all.comm.barrier()?;
            let error = try_resume(all, &Resume::Path(newest.clone()))?.unwrap_err();
            assert!(
                error.what.contains(expected) && error.what.contains("save-0002-step-2"),
                "{what}: {error}"
            );
            assert!(error.help.contains("a good checkpoint: `resume` "), "{what}: {error}");
            assert!(error.help.ends_with("save-0001-step-1"), "{what}: {error}");
            let (step, rejected, state) = try_resume(all, &Resume::Auto)??;
            assert!(step == 1 && state == states[1], "{what}: resumed after step {step}");
            assert!(rejected.len() == 1 && rejected[0] == error.what, "{what}: {rejected:?}");
            // If none is left, the run does not silently begin again.
            all.comm.barrier()?;
            if all.comm.rank() == 0 {
                damage(&all.dir.join("save-0001-step-1"));
            }
            all.comm.barrier()?;
            let error = try_resume(all, &Resume::Auto)?.unwrap_err();
            assert!(
                error.what.starts_with("no checkpoint in ")
                    && error.what.matches(expected).count() == 2,
                "{error}"
            );
            assert!(error.help.starts_with("give `resume` none"), "{error}");
            Ok(())
        });
    }
}

#[test]
fn checkpoints_of_different_runs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    after_saves(1, dir.path(), |all, _| {
        let with = |edit: &dyn Fn(&mut Checkpoints)| {
            let mut other = Checkpoints::new(&all.dir, 1, all.job.clone(), &all.comm);
            edit(&mut other);
            let error =
                try_resume(&other, &Resume::Path(all.dir.join("save-0001-step-1")))?.unwrap_err();
            assert!(
                error
                    .what
                    .contains("save-0001-step-1/manifest.json is a checkpoint of a different "),
                "{error}"
            );
            anyhow::Ok(error)
        };
        let error = with(&|other| other.job.shape.embd = 64)?;
        assert!(
            error.what.contains("a different model: it has 2 layers, 2 heads, width 32, "),
            "{error}"
        );
        assert!(error.what.contains("and this run 2 layers, 2 heads, width 64, "), "{error}");
        for strategy in [
            "zero=3",
            "dp=2,zero=1",
            "tp=2,zero=1",
            "pp=2,zero=1",
            "cp=2,zero=1",
            "dp=2,ep=2,zero=1",
            "pp=2,chunks=2,zero=1",
            "m=2,zero=1",
            "mb=2,zero=1",
            "zero=1,sp",
        ] {
            // Nor does the flag for other settings help.
            let error = with(&|other| {
                other.job.strategy = Some(strategy.parse().unwrap());
                other.anyway = true;
            })?;
            let expected = format!("a different strategy: it has zero=1, and this run {strategy}");
            assert!(error.what.ends_with(&expected), "{error}");
        }
        let error = with(&|other| other.job.seed = 2)?;
        assert!(
            error.what.ends_with("a different run: it has seed 1337, and this run seed 2"),
            "{error}"
        );
        assert!(error.help.starts_with("give `seed` 1337"), "{error}");
        Ok(())
    });
    // A different world size, in each direction.
    for ranks in [1, 3] {
        let (config, _) = config(ranks, |_| ());
        launch::run(ranks, |comm| {
            let all = suite::checkpoints(&comm, &config, dir.path(), STRATEGY);
            let error =
                try_resume(&all, &Resume::Path(dir.path().join("save-0001-step-1")))?.unwrap_err();
            assert!(
                error.what.contains("a different world size: it has 2 ranks, and this run "),
                "{error}"
            );
            assert!(error.help.starts_with("give `ranks` 2: "), "{error}");
            assert!(
                try_resume(&all, &Resume::Auto)?
                    .unwrap_err()
                    .what
                    .contains("a different world size")
            );
            Ok(())
        })
        .unwrap();
    }
}

/// A layout that has the same name but different fragments is refused, too: the files say what they
/// hold.
#[test]
fn files_of_different_fragments_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    after_saves(1, dir.path(), |all, _| {
        let (config, corpus) = config(2, |_| ());
        let zero = ZeroConfig::new(Stage::Three, Precision::F32, config.adamw);
        let mut training = Training::new(&all.comm, &config, &corpus.train, zero, false)?;
        let error = suite::resume(all, &Resume::Auto, &mut training).unwrap_err().to_string();
        assert!(error.contains("rank-000.safetensors is not this rank's state: "), "{error}");
        assert!(
            error.contains("it has elements ") && error.contains(", and this rank elements "),
            "{error}"
        );
        Ok(())
    });
}

/// The disk is full for rank 1 alone: every rank gets an error that names the file, nothing
/// half-written is left, the earlier checkpoint stays, and the training goes on and saves again
/// when there is room.
#[cfg(unix)]
#[test]
fn a_full_disk_costs_only_the_save() {
    let dir = tempfile::tempdir().unwrap();
    let said = child(
        "a_disk_that_is_full",
        dir.path(),
        "trap '' XFSZ; ulimit -f 60; exec \"$0\" \"$@\"",
    )
    .output()
    .unwrap();
    let said = [said.stdout, said.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(said.contains("1 passed"), "{said}");
}

#[cfg(unix)]
#[test]
#[ignore = "for a_full_disk_costs_only_the_save"]
fn a_disk_that_is_full() {
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    let small = |config: &mut Config| (config.shape.layers, config.shape.embd) = (1, 8);
    let ((config, corpus), (large, _)) = (config(2, small), config(2, |_| ()));
    launch::run(2, |comm| {
        let mut training = begin(&comm, &config, &corpus)?.0;
        training.step()?;
        suite::save(&suite::checkpoints(&comm, &config, &dir, STRATEGY), &mut training)?;
        // The larger model's file is beyond the limit for the size of a file.
        let mut other = begin(&comm, &large, &corpus)?.0;
        let large = suite::checkpoints(&comm, &large, &dir, STRATEGY);
        let error = suite::save(&large, &mut other).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot write ") && error.contains("rank-000.safetensors: "),
            "{error}"
        );
        assert!(error.contains("\nhelp: files of this size are not allowed here"), "{error}");
        assert_eq!(names(&dir), ["latest", "save-0001-step-1"]);
        drop(large);
        comm.barrier()?;
        let all = suite::checkpoints(&comm, &config, &dir, STRATEGY);
        training.step()?;
        suite::save(&all, &mut training)?;
        let (step, rejected, state) = try_resume(&all, &Resume::Auto)??;
        assert!((step, rejected.len()) == (2, 0) && state == training.state()?);
        Ok(())
    })
    .unwrap();
}

#[cfg(unix)]
#[test]
fn a_killed_training_ends_as_if_it_had_not_been_killed() {
    kill_trainings(10);
}

#[cfg(unix)]
#[test]
#[ignore = "takes a minute"]
fn trainings_that_are_killed_a_hundred_times_end_as_if_they_had_not_been() {
    kill_trainings(100);
}

/// Kills trainings at random moments, every second time in the middle of a save. Each continues
/// from a checkpoint that is whole and at least as new as the last one that it reported. Each ends
/// with the bits of a training that was never killed.
#[cfg(unix)]
fn kill_trainings(most: usize) {
    use std::io::Read;
    let (config, corpus) = config(2, |_| ());
    let train = |comm: &Comm| {
        let (mut training, _) = begin(comm, &config, &corpus)?;
        training.until(KILLED_STEPS)?;
        training.state()
    };
    let expected = launch::run(2, |comm| train(&comm)).unwrap();
    let random = shardlab::tensor::random::Stream::new(16, "kills");
    let mut dir = tempfile::tempdir().unwrap();
    let mut kills = 0;
    let mut in_saves = 0;
    let mut finished = 0;
    let mut reported = 0;
    let mut at = Vec::new();
    while kills < most || finished == 0 {
        let mut process = child("a_training_that_is_killed", dir.path(), "exec \"$0\" \"$@\"");
        let mut process = process.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let killed = kills < most;
        if killed {
            // Any moment will do. These are spread over the start, the steps and the saves.
            std::thread::sleep(std::time::Duration::from_secs_f64(
                0.4 * random.uniform(kills as u64),
            ));
            while kills % 2 == 1 && !saves(dir.path()) && process.try_wait().unwrap().is_none() {
                std::hint::spin_loop();
            }
            process.kill().unwrap();
            kills += 1;
        }
        let mut said = String::new();
        process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let status = process.wait().unwrap();
        in_saves += usize::from(saves(dir.path()));
        let saved = said.lines().filter_map(|line| line.strip_prefix("saved ")?.parse().ok());
        reported = saved.fold(reported, usize::max);
        // Everything that was reported is there, and nothing is damaged.
        let states = launch::run(2, |comm| {
            try_resume(&suite::checkpoints(&comm, &config, dir.path(), STRATEGY), &Resume::Auto)
        });
        let states = states.unwrap().into_iter().map(|resumed| {
            let (step, rejected, state) =
                resumed.unwrap_or_else(|error| panic!("after {kills} kills: {error}"));
            assert!(
                step >= reported && rejected.is_empty(),
                "step {step} after {reported} were reported: {rejected:?}"
            );
            (step, state)
        });
        let (steps, states): (Vec<usize>, Vec<_>) = states.unzip();
        at.push(steps[0]);
        // Nor is any checkpoint that shows: what a kill has cut off has a name that is not one.
        for name in names(dir.path()).into_iter().filter(|name| name.starts_with("save-")) {
            let which = Resume::Path(dir.path().join(name));
            let whole = |comm: Comm| {
                Ok(try_resume(&suite::checkpoints(&comm, &config, dir.path(), STRATEGY), &which)?
                    .map(drop)?)
            };
            launch::run(2, whole).unwrap();
        }
        if steps[0] == KILLED_STEPS {
            assert!(states == expected, "after {kills} kills");
            // Begin again, if there are kills to come.
            (finished, reported, dir) = (finished + 1, 0, tempfile::tempdir().unwrap());
        } else {
            assert!(killed && !status.success(), "it ended after step {}", steps[0]);
        }
    }
    println!(
        "{kills} kills, {in_saves} in the middle of a save; {finished} trainings finished; steps after each: {at:?}"
    );
}

/// Whether a save in this folder is incomplete.
#[cfg(unix)]
fn saves(dir: &Path) -> bool {
    std::fs::read_dir(dir)
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().ends_with(".partial"))
}

const KILLED_STEPS: usize = 20;

#[cfg(unix)]
#[test]
#[ignore = "for a_killed_training_ends_as_if_it_had_not_been_killed"]
fn a_training_that_is_killed() {
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    let (config, corpus) = config(2, |_| ());
    launch::run(2, |comm| {
        let (mut training, _) = begin(&comm, &config, &corpus)?;
        let all = suite::checkpoints(&comm, &config, &dir, STRATEGY);
        suite::resume(&all, &Resume::Auto, &mut training)?;
        while training.counters.global_steps < KILLED_STEPS {
            training.step()?;
            suite::save(&all, &mut training)?;
            if comm.rank() == 0 {
                println!("saved {}", training.counters.global_steps);
            }
        }
        Ok(())
    })
    .unwrap();
}

const DIR: &str = "SHARDLAB_TEST_CHECKPOINTS";

/// This test program again, with one of its ignored tests, started by a line of the shell.
#[cfg(unix)]
fn child(test: &str, dir: &Path, shell: &str) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(shell).arg(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "--nocapture", &format!("checkpoints::{test}")])
        .env(DIR, dir);
    command
}
