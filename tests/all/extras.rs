//! What can only be tested with files that the project does not ship. These tests are ignored
//! unless they are asked for, as `.ci/run` does where it finds the files. Two variables name them:
//! SHARDLAB_CORPUS (the tiny Shakespeare text) and SHARDLAB_EXTRAS (a folder with
//! `golden/gpt_training.json` and `fixtures/deepspeed/`).
//!
//! `SHARDLAB_CORPUS=… SHARDLAB_EXTRAS=… cargo test --test all -- --ignored extras::`

use crate::suite::needed;
use crate::suite::program::{ROOT, program};
use deepspeed::torch::TorchFile;
use shardlab::data::Corpus;
use shardlab::sha256;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
#[ignore = "needs SHARDLAB_CORPUS: the tiny Shakespeare text"]
fn the_real_corpus_has_the_published_figures() {
    let corpus = Corpus::read(&needed("SHARDLAB_CORPUS")).unwrap();
    assert_eq!((corpus.chars(), corpus.vocabulary.size()), (1_115_394, 65));
    assert_eq!((corpus.train.len(), corpus.validation.len()), (1_003_854, 111_540));
    // Models and figures are the same on both texts.
    assert_eq!(corpus.vocabulary, Corpus::embedded().unwrap().vocabulary);
}

/// Found beside a lab as `data/tinyshakespeare.txt`, it is verified, and preferred to the embedded
/// text.
#[test]
#[ignore = "needs SHARDLAB_CORPUS: the tiny Shakespeare text"]
fn the_fetched_corpus_is_found_and_verified() {
    let path = needed("SHARDLAB_CORPUS");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::copy(path, data.join("tinyshakespeare.txt")).unwrap();
    let run = || {
        let mut lab03 = Command::new(program("lab03"));
        lab03
            .env_remove("SHARDLAB_CORPUS")
            .current_dir(dir.path())
            .arg("--dry-run")
            .output()
            .unwrap()
    };
    let output = run();
    assert!(output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .contains("data/tinyshakespeare.txt · 1,115,394 chars")
    );
    std::fs::write(data.join("tinyshakespeare.txt"), "cut short").unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not the tiny Shakespeare file"));
}

/// PyTorch, with the same model and schedule, reaches 2.21.
#[test]
#[ignore = "needs SHARDLAB_CORPUS: the tiny Shakespeare text"]
fn the_main_job_learns_shakespeare() {
    let corpus = needed("SHARDLAB_CORPUS");
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(program("lab03"))
        .current_dir(dir.path())
        .arg("--data")
        .arg(corpus)
        .args("--ranks 2 --steps 500 --eval-interval 500 --metrics m.jsonl".split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metrics = std::fs::read_to_string(dir.path().join("m.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    let val_loss = last["val_loss"].as_f64().unwrap();
    println!("val_loss {val_loss}");
    assert!(val_loss <= 2.26, "{val_loss}");
}

/// What DeepSpeed itself saved: the hashes of all values and moments after the conversion are those
/// that DeepSpeed held.
#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with fixtures/deepspeed"]
fn checkpoints_of_the_real_deepspeed_are_converted() {
    let folder = needed("SHARDLAB_EXTRAS").join("fixtures/deepspeed");
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let cases: Vec<PathBuf> =
        entries.map(|case| case.unwrap().path()).filter(|path| path.is_dir()).collect();
    assert!(!cases.is_empty(), "{} has no checkpoint", folder.display());
    for case in cases {
        let text = std::fs::read_to_string(case.join("expected.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        // Where DeepSpeed's own converter scrambles parameters, the right ones are in a separate
        // list.
        let right = expected
            .get("correct_params")
            .unwrap_or(&expected["params"])
            .as_object()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let universal = dir.path().join("universal");
        let output = Command::new(program("ds_to_universal"))
            .arg("--input_folder")
            .arg(case.join("global_step5"))
            .arg("--output_folder")
            .arg(&universal)
            .arg("--verify")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for (name, parameter) in right {
            for state in ["fp32", "exp_avg", "exp_avg_sq"] {
                let path = universal.join("zero").join(name).join(format!("{state}.pt"));
                let file = TorchFile::open(&path).unwrap();
                let root = file.graph.root();
                let tensor = file.tensor(root.get("param").unwrap_or(root)).unwrap().unwrap();
                let mut bytes = vec![0; tensor.numel() * tensor.dtype.size()];
                tensor.read(0..tensor.numel(), &mut bytes).unwrap();
                let what = format!("{state} of {name} in {}", case.display());
                assert_eq!(
                    sha256::hex(&bytes),
                    parameter[state]["sha256"].as_str().unwrap(),
                    "{what}"
                );
                let shape: Vec<u64> = tensor.shape.iter().map(|size| *size as u64).collect();
                let golden = parameter[state]
                    .get("golden_shape")
                    .unwrap_or(&expected["params"][name]["shape"]);
                assert_eq!(serde_json::json!(shape), *golden, "{what}");
            }
        }
    }
}

/// The figures in these sources are those of the files that PyTorch wrote, digit by digit.
#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with golden/gpt_training.json and golden/hsdp"]
fn the_golden_figures_are_the_files() {
    for (source, golden, count) in [
        ("tests/library/golden.rs", "golden/gpt_training.json", 20 + 15),
        ("tests/suite/hsdp.rs", "golden/hsdp/fsdp2_hsdp.json", 8 * 2 * 5),
    ] {
        let path = needed("SHARDLAB_EXTRAS").join(golden);
        let file = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let source = std::fs::read_to_string(Path::new(ROOT).join(source)).unwrap();
        let words = source.split(|c: char| !c.is_ascii_digit() && c != '.');
        let figures: Vec<&str> = words.filter(|word| word.len() > 12).collect();
        assert_eq!(figures.len(), count, "{golden}");
        for figure in figures {
            let found = [": ", ":"].iter().any(|colon| file.contains(&format!("{colon}{figure}")));
            assert!(found, "{golden}: {figure}");
        }
    }
}
