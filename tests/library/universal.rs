//! Universal checkpoints: from any number of ranks to any other, bit for bit, and what is refused.

use crate::suite::trained::{Model, SELECTING, loss_rounding};
use crate::suite::universal as suite;
use shardlab::checkpoint::universal::{Universal, merge};
use shardlab::comm::Comm;
use shardlab::difference::{largest_difference, same_bits};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{Experts, Family};
use std::path::{Path, PathBuf};

const GPT: Model = (Family::Gpt, None);

/// The tokens of a step of [`suite::config`].
fn tokens() -> usize {
    suite::SEQUENCES * suite::config(1).0.shape.block
}

fn close(found: &[f64], expected: &[f64], tokens: usize, what: &str) {
    assert!(
        largest_difference(found, expected) < loss_rounding(tokens),
        "{what}: {found:?} against {expected:?}"
    );
}

/// From each number of ranks up to 6 to each other, in every stage that shards: the pairs that
/// `chosen` takes.
fn from_each_number(chosen: impl Fn(usize, usize) -> bool) {
    for stage in [Stage::One, Stage::Two, Stage::Three] {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=6 {
            let at = |name: String| dir.path().join(name);
            let to = at(format!("universal-{n}"));
            let expected = launch::run(n, |comm| {
                suite::train_and_convert(&comm, stage, &at(format!("save-{n}")), &to)
            })
            .unwrap();
            for m in (1..=6).filter(|&m| chosen(n, m)) {
                let again = at(format!("again-{n}-{m}"));
                let losses =
                    launch::run(m, |comm| suite::continue_from(&comm, stage, &to, &again)).unwrap();
                let what = format!("{stage:?}, {n} to {m}");
                close(&losses[0], &expected[0], tokens(), &what);
                assert!(
                    n != m || same_bits(&losses[0], &expected[0]),
                    "{what}: the same ranks continue with the same bits"
                );
            }
        }
    }
}

/// The next number (their shards have other sizes), and from 6 to 1.
fn is_next(n: usize, m: usize) -> bool {
    m == n % 6 + 1
}

#[test]
fn from_n_ranks_to_m() {
    from_each_number(is_next);
}

#[test]
#[ignore = "the other pairs, for the gate"]
fn from_n_ranks_to_all_others() {
    from_each_number(|n, m| !is_next(n, m));
}

#[test]
fn from_any_stage_to_any() {
    let dir = tempfile::tempdir().unwrap();
    for from in Stage::ALL {
        let save = dir.path().join(format!("{from:?}"));
        let to = dir.path().join(format!("universal-{from:?}"));
        let expected =
            launch::run(3, |comm| suite::train_and_convert(&comm, from, &save, &to)).unwrap();
        for stage in Stage::ALL {
            let again = dir.path().join(format!("{from:?}-{stage:?}"));
            let losses =
                launch::run(2, |comm| suite::continue_from(&comm, stage, &to, &again)).unwrap();
            close(&losses[0], &expected[0], tokens(), &format!("{from:?} to {stage:?}"));
        }
    }
}

/// Also where ranks share layers, matrices and sequences: rows, columns, padded vocabularies, a
/// tied table on two stages, virtual stages. Each source has every second target here, so that each
/// target has two sources.
#[test]
fn from_mesh_to_mesh() {
    from_each_mesh(|source, target| source % 2 == target % 2);
}

#[test]
#[ignore = "the other half of the pairs, for the gate"]
fn from_mesh_to_the_other_meshes() {
    from_each_mesh(|source, target| source % 2 != target % 2);
}

fn from_each_mesh(is_tried: impl Fn(usize, usize) -> bool) {
    let sources = ["tp=2,pp=2,zero=1", "dp=2,tp=2,zero=1", "dp=2,pp=2,zero=1", "zero=1"];
    let targets = [
        "dp=1",
        "tp=2,zero=1",
        "tp=4,zero=1",
        "pp=4",
        "dp=3,zero=3",
        "dp=2,tp=2,zero=2,sp",
        "tp=2,pp=2,chunks=2,zero=1",
        "dp=2,tp=2,pp=2,zero=1",
    ];
    for (i, from) in sources.into_iter().enumerate() {
        let tried = (0..targets.len()).filter(|&j| is_tried(i, j)).map(|j| targets[j]);
        from_a_mesh(GPT, from, tried);
    }
}

/// Experts, of which ranks have all, some or one: those that saved, and those that go on. The first
/// layer has one MLP, so that a stage of it has no experts.
#[test]
#[ignore = "takes all meshes: the gate runs it; run it when you change how states are cut"]
fn from_experts_to_experts() {
    let experts = Experts { count: 4, top_k: 2, normalized: true, ..Experts::default() };
    let experts = Experts { dense_layers: 1, ffn: 32, ..experts };
    let model = (Family::Gpt, Some(experts));
    for (from, to) in [
        ("dp=1", ["dp=4,ep=4,zero=2", "dp=2,ep=2,zero=3", "pp=2,chunks=2"]),
        ("pp=2,chunks=2,zero=1", ["dp=4,ep=2,zero=1", "cp=2,ep=2", "dp=4,ep=4"]),
        ("dp=2,ep=2,zero=3", ["dp=1", "dp=4,ep=4,zero=2", "tp=2"]),
        ("cp=2,ep=2", ["tp=2,cp=2", "dp=2,ep=2,zero=1", "pp=4"]),
        ("dp=2,pp=2,ep=2,zero=1", ["dp=4,ep=4", "tp=2,pp=2,zero=1", "dp=3,zero=3"]),
        ("dp=4,ep=4,zero=1", ["dp=2,tp=2,ep=2", "dp=1", "dp=2,cp=2,ep=4,zero=3"]),
    ] {
        from_a_mesh(model, from, to);
    }
}

/// Routers with biases, groups of experts and a shared one: biases are where the loads have moved
/// them, and move on from there.
#[test]
fn from_biases_to_biases() {
    for (from, to) in [
        ("dp=2,ep=2,zero=1", ["dp=4,ep=4,zero=3", "dp=1", "pp=2"]),
        ("dp=4,ep=4", ["dp=2,ep=2,zero=2", "tp=2", "dp=2,pp=2,ep=2"]),
        ("dp=2,tp=2,ep=2,zero=1", ["cp=2,ep=2", "dp=4,ep=2", "dp=3,zero=3"]),
    ] {
        from_a_mesh((Family::Gpt, Some(SELECTING)), from, to);
    }
}

/// What one mesh saves, each of `targets` loads, and trains on with the same losses.
fn from_a_mesh<'a>(model: Model, from: &str, targets: impl IntoIterator<Item = &'a str>) {
    let dir = tempfile::tempdir().unwrap();
    let saved = mesh(model, from, None, dir.path());
    for strategy in targets {
        let found = mesh(model, strategy, Some(&saved), dir.path());
        let (config, _) = suite::mesh_config(&strategy.parse().unwrap(), model);
        let what = format!("{from} to {strategy}");
        close(&found.losses, &saved.losses, config.tokens_per_step(), &what);
    }
}

fn mesh(model: Model, strategy: &str, from: Option<&suite::Saved>, dir: &Path) -> suite::Saved {
    let ranks = strategy.parse::<Strategy>().unwrap().ranks();
    let dir = dir.join(strategy);
    let run = |comm: Comm| suite::on_a_mesh(&comm, model, strategy, from, &dir);
    launch::run(ranks, run).unwrap().remove(0)
}

/// Neither micro-batches nor the batch are in a state, so any number of them loads it. But a
/// sequence is drawn by its number in its micro-batch: with others the losses are no longer those
/// of the run that saved.
#[test]
fn other_batches_load_the_same_state_and_draw_other_sequences() {
    let dir = tempfile::tempdir().unwrap();
    let saved = mesh(GPT, "dp=2,zero=1", None, dir.path());
    for strategy in ["dp=2,m=1,zero=1", "dp=2,m=3,zero=1", "dp=2,mb=5,zero=1"] {
        let found = mesh(GPT, strategy, Some(&saved), dir.path());
        let apart = largest_difference(&found.losses, &saved.losses);
        let (config, _) = suite::mesh_config(&strategy.parse().unwrap(), GPT);
        assert!(apart > 10.0 * loss_rounding(config.tokens_per_step()), "{strategy}: {apart:e}");
    }
}

/// Ranks that should hold the same numbers, and differ in the last bit of one, are no model that
/// could be merged.
#[test]
fn ranks_that_drifted_apart_are_not_merged() {
    for (kind, name) in ["values", "exp_avg", "exp_avg_sq"].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let saved = launch::run(3, |comm| suite::save_drifted(&comm, kind, dir.path())).unwrap();
        let BadInput { what, help } = merge(&saved[0], &dir.path().join("universal")).unwrap_err();
        let expected =
            format!("ranks 0 and 1 hold different {name} of wpe.weight, first at element 5");
        assert_eq!(what, expected);
        assert!(help.starts_with("the ranks' models have drifted apart"), "{help}");
        assert!(!dir.path().join("universal").exists());
    }
}

#[test]
fn ranks_of_different_steps_are_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let saved = launch::run(2, |comm| suite::save_of_other_steps(&comm, dir.path())).unwrap();
    let BadInput { what, .. } = merge(&saved[0], &dir.path().join("universal")).unwrap_err();
    let expected = "rank-001.safetensors is of optimizer step 1, and the first rank's file of 0";
    assert!(what.ends_with(expected), "{what}");
    assert!(!dir.path().join("universal").exists());
}

/// The checkpoint of two ranks.
fn saved(dir: &Path) -> (PathBuf, PathBuf) {
    let to = dir.join("universal");
    launch::run(2, |comm| suite::train_and_convert(&comm, Stage::One, &dir.join("save"), &to))
        .unwrap();
    (dir.join("save/save-0001-step-2"), to)
}

#[test]
fn damage_is_named_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = saved(dir.path());
    let convert_again = |expected: &[&str]| {
        let BadInput { what, .. } = merge(&from, &dir.path().join("second")).unwrap_err();
        assert!(expected.iter().all(|words| what.contains(words)), "{what}");
        assert!(!dir.path().join("second").exists());
    };
    // A folder that exists is never replaced.
    assert!(merge(&from, &to).unwrap_err().what.contains("cannot be a new folder"));
    let file = from.join("rank-001.safetensors");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 4]).unwrap();
    convert_again(&["rank-001.safetensors is damaged: it is truncated"]);
    std::fs::remove_file(&file).unwrap();
    convert_again(&["cannot read", "rank-001.safetensors"]);
    std::fs::write(&file, &whole).unwrap();
    // A conversion that was interrupted can be run again.
    std::fs::create_dir_all(dir.path().join(".second.partial/zero/half")).unwrap();
    let second = merge(&from, &dir.path().join("second")).unwrap();
    assert_eq!(second.parameters, Universal::open(&to).unwrap().parameters);
    assert!(!dir.path().join("second/zero/half").exists());

    // A flipped bit of a universal checkpoint.
    let path = to.join("zero/wte.weight/exp_avg.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let error = launch::run(3, |comm| {
        suite::continue_from(&comm, Stage::One, &to, &dir.path().join("third"))
    });
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("is damaged: the SHA-256"), "{error}");
}
