//! What programs refuse: a lab's `refusals.txt`, and the files in `tests/refusals`, show commands
//! and what they print, as a terminal does.
//!
//! Every command ends with exit code 2. `transcript.rs` says which marks a file may have.
//! `REFUSALS=overwrite cargo test --test all -- refusals::` writes the files anew.

use super::transcript;
use crate::suite::program::{ROOT, program, stderr, stdout};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;

/// Runs `NAME=value lab03 --flag` in a folder, where nothing else of this machine is found.
fn refused(folder: &Path, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let first = words.iter().position(|word| !word.contains('=')).expect("a program");
    let variables = words[..first].iter().filter_map(|word| word.split_once('='));
    let output = Command::new(program(words[first]))
        .args(&words[first + 1..])
        .current_dir(folder)
        .env_clear()
        .env("PATH", folder)
        .envs(variables)
        .output()
        .unwrap();
    let said = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(2), "$ {command}\n{said}");
    said
}

/// Files that are something else than a reader takes them for.
fn foreign(folder: &Path) {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 4976698672\n",
        "0".repeat(64)
    );
    let alphabet: String = ('\u{4e00}'..).take(20_000).collect();
    std::fs::create_dir(folder.join("weights")).unwrap();
    for (name, bytes) in [
        ("pointer", pointer.as_bytes()),
        ("weights/model.safetensors", pointer.as_bytes()),
        ("pointer.gguf", pointer.as_bytes()),
        ("page", b"<!DOCTYPE html>\n<html><title>404</title></html>"),
        ("utf16", &utf16(&"Who is there? ".repeat(9))),
        ("cp1252", b"It\x92s late, and nobody answered."),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
        ("alphabet", alphabet.as_bytes()),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Numbers of a Llama, for the files of `models`.
const LLAMA: &str = r#""model_type": "llama", "vocab_size": 64, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 128"#;

/// Files and folders of models, as people have them.
fn models(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let llama = format!("{{{LLAMA}}}");
    let qwen = LLAMA.replace("\"llama\"", "\"other\", \"num_experts\": 128");
    let mixtral = LLAMA.replace("llama", "mixtral");
    let other = LLAMA.replace("llama", "other");
    let wide = format!("{{\"tie_word_embeddings\": true, \"head_dim\": 16, {other}}}");
    let opt = LLAMA.replace("llama", "opt");
    let opt = format!("{{\"word_embed_proj_dim\": 16, {opt}}}");
    let wrong = llama.replace("64,", "[64, 32],");
    let nan = format!("{{\"rms_norm_eps\": NaN, {LLAMA}}}");
    let kinds = format!("{{\"layer_types\": [\"full_attention\"], {LLAMA}}}");
    for (name, text) in [
        ("experts.json", format!("{{{qwen}}}").as_str()),
        ("more-experts.json", &format!("{{\"n_shared_experts\": 2, {mixtral}}}")),
        ("mixtral.json", &format!("{{{mixtral}}}")),
        ("per-layer.json", &format!("{{\"hidden_size_per_layer_input\": 8, {other}}}")),
        ("other.json", &format!("{{{other}}}")),
        ("wide-heads.json", &wide),
        ("one-kind.json", &kinds),
        ("opt-350m.json", &opt),
        (
            "sees.json",
            r#"{"model_type": "other", "text_config": {"model_type": "other_text", "num_local_experts": 16}}"#,
        ),
        (
            "states.json",
            r#"{"model_type": "other", "state_size": 128, "hidden_size": 4096}"#,
        ),
        (
            "latent.json",
            r#"{"model_type": "minicpm3", "kv_lora_rank": 256, "hidden_size": 2560}"#,
        ),
        (
            "encoder.json",
            r#"{"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768}"#,
        ),
        ("hybrid.json", &format!("{{\"layer_types\": [\"linear_attention\"], {LLAMA}}}")),
        ("wrong-type.json", &wrong),
        (
            "params.json",
            r#"{"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8}"#,
        ),
        (
            "adapter_config.json",
            r#"{"peft_type": "LORA", "base_model_name_or_path": "some/base"}"#,
        ),
        ("list.json", "[1]"),
        ("nan/config.json", &nan),
        ("bin/config.json", &llama),
        ("bin/pytorch_model.bin", "PK"),
        ("adapter/config.json", &llama),
        ("adapter/adapter_model.safetensors", ""),
        ("shards/config.json", &llama),
        ("shards/model-00001-of-00002.safetensors", ""),
        ("fused/config.json", &llama),
    ] {
        write(name, text.as_bytes());
    }
    let fused = r#"{"model.layers.0.self_attn.qkv_proj.weight":
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}"#;
    let length = (fused.len() as u64).to_le_bytes();
    write("fused/model.safetensors", &[&length, fused.as_bytes(), &[0; 4]].concat());
    // Two keys and no tensors: the second part of three.
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut gguf =
        [&b"GGUF"[..], &3u32.to_le_bytes(), &0u64.to_le_bytes(), &2u64.to_le_bytes()].concat();
    for (key, part) in [("split.count", 3u16), ("split.no", 1)] {
        gguf.extend([text(key), 2u32.to_le_bytes().to_vec(), part.to_le_bytes().to_vec()].concat());
    }
    gguf.resize(gguf.len().next_multiple_of(32), 0);
    write("part.gguf", &gguf);
}

#[test]
fn programs_refuse_what_the_files_show() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("binary"), b"\xff\xfe").unwrap();
    std::fs::write(path("file"), "not a folder").unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    foreign(folder.path());
    models(folder.path());
    let others = std::fs::read_dir(Path::new(ROOT).join("tests/refusals")).unwrap();
    let others = others.map(|entry| entry.unwrap().path());
    let of_lab = |lab: kit::Lab| Path::new(ROOT).join("labs").join(lab.name).join("refusals.txt");
    let of_labs = crate::labs::labs().into_iter().map(of_lab).filter(|file| file.exists());
    let overwrites = std::env::var("REFUSALS").is_ok_and(|what| what == "overwrite");
    // A build with MPI runs what a launcher starts.
    let is_run = |file: &PathBuf| !(cfg!(feature = "mpi") && file.ends_with("launchers.txt"));
    transcript::each(of_labs.chain(others).filter(is_run).collect(), |file| {
        let text = std::fs::read_to_string(&file).unwrap();
        let folder = folder.path();
        // All at once: a rank that waits for rank 0's error, to repeat it, waits for seconds.
        let said: HashMap<&str, String> = std::thread::scope(|scope| {
            let start = |command| (command, scope.spawn(move || refused(folder, command)));
            let started: Vec<_> = transcript::commands(&text).into_iter().map(start).collect();
            let end = |run: ScopedJoinHandle<_>| run.join().expect("its panic is told above");
            started.into_iter().map(|(command, run)| (command, end(run))).collect()
        });
        transcript::check(&file, overwrites, |command, _| said[command].clone());
    });
    assert_eq!(std::fs::read_to_string(path("file")).unwrap(), "not a folder");
}
