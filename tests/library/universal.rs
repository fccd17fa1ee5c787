//! Universal checkpoints: from any number of ranks to any other, bit for bit, and what is refused.

use crate::suite::trained::loss_rounding;
use crate::suite::universal as suite;
use shardlab::checkpoint::universal::{Universal, merge};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::error::BadInput;
use shardlab::launch;
use shardlab::mesh::Coordinates;
use shardlab::parallel::zero::Stage;
use std::path::{Path, PathBuf};

fn close(found: &[f64], expected: &[f64], what: &str) {
    let tokens = suite::SEQUENCES * suite::config(1).0.shape.block;
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
                close(&losses[0], &expected[0], &what);
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
            close(&losses[0], &expected[0], &format!("{from:?} to {stage:?}"));
        }
    }
}

fn mesh(data: usize, pipeline: usize, tensor: usize) -> Coordinates {
    Coordinates { data, pipeline, tensor }
}

/// Also where ranks share layers and matrices: rows, columns, padded vocabularies, a tied table on
/// two stages. Each source has every second target here, so that each target has two sources.
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
    let sources = [mesh(1, 2, 2), mesh(2, 1, 2), mesh(2, 2, 1), mesh(1, 1, 1)];
    for (i, from) in sources.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("universal");
        let train = |part: (Coordinates, Stage), source: Option<&Path>, name: &str, to: &Path| {
            let ranks = part.0.data * part.0.pipeline * part.0.tensor;
            launch::run(ranks, |comm| {
                suite::on_a_mesh(&comm, part, source, &dir.path().join(name), to)
            })
            .unwrap()
        };
        let expected = train((from, Stage::One), None, "first", &to);
        let targets = [
            (mesh(1, 1, 1), Stage::Ddp),
            (mesh(1, 1, 2), Stage::One),
            (mesh(1, 1, 4), Stage::One),
            (mesh(1, 4, 1), Stage::Ddp),
            (mesh(3, 1, 1), Stage::Three),
            (mesh(2, 1, 2), Stage::Two),
            (mesh(1, 2, 2), Stage::One),
            (mesh(2, 2, 2), Stage::One),
        ];
        for (j, (sizes, stage)) in targets.into_iter().enumerate() {
            if !is_tried(i, j) {
                continue;
            }
            let name = format!("{sizes:?}");
            let losses = train(
                (sizes, stage),
                Some(&to),
                &name,
                &dir.path().join(format!("universal {name}")),
            );
            let mean = |losses: &[Vec<f64>]| -> Vec<f64> {
                let of = |step: usize| {
                    losses.iter().map(|rank| rank[step]).sum::<f64>() / losses.len() as f64
                };
                (0..losses[0].len()).map(of).collect()
            };
            close(&mean(&losses), &mean(&expected), &format!("{from:?} to {sizes:?}"));
        }
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
